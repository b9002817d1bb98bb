"""`lmq serve`: the broker."""

from __future__ import annotations

import logging
import sys


def main(argv: list[str]) -> int:
    """Run the broker."""
    from mqtt_proxy.settings import SettingsError
    from mqtt_proxy.settings_files import check_files
    from mqtt_proxy.settings_sources import HelpAsked, from_arguments

    try:
        settings = from_arguments(argv, prog="lmq serve")
        check_files(settings)
    except SettingsError as error:
        print(f"lmq serve: {error}", file=sys.stderr)
        return 2
    except HelpAsked as asked:
        print(asked, end="")
        return 0
    from lmq_store.source_first import compiled
    from mqtt_proxy import log_lines
    from mqtt_proxy.server import run

    log_lines.start(settings.log_level, settings.log_format)
    if not compiled():
        logging.getLogger("lmq.serve").info("runs uncompiled: correct, but several times slower; `make build` compiles it")
    return run(settings)
