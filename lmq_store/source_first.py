"""Says whether the hot modules run compiled, and with LMQ_PURE=1 makes Python take their sources.

A compiled module lies beside the `.py` that it was built from, and Python prefers the compiled one. Tests and profiles want
the other: with LMQ_PURE=1 in the environment at start, the `.py` of each of our packages is imported although its `.so` exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

PACKAGES = frozenset({"lmq_store", "mqtt_proxy", "notify", "loadtest", "spark_telemetry"})


class SourceFirst:
    """A finder that knows only the `.py` files of our packages and leaves all else to the finders after it."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, tail = name.rpartition(".")
        if path is None or package.partition(".")[0] not in PACKAGES:
            return None
        for folder in path:
            source = os.path.join(folder, tail + ".py")
            if os.path.isfile(source):
                return spec_from_file_location(name, source)
        return None


def install_if_asked() -> None:
    """Puts the finder before Python's own when LMQ_PURE is set (to anything but 0); called when lmq_store is imported."""
    if os.environ.get("LMQ_PURE", "0") not in ("", "0") and SourceFirst not in sys.meta_path:
        sys.meta_path.insert(0, SourceFirst)


def compiled() -> bool:
    """True when the store's model, which every hot module is built against, runs compiled."""
    import lmq_store.api.model as model

    return (model.__file__ or "").endswith(tuple(EXTENSION_SUFFIXES))
