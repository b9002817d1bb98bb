"""Load any MQTT broker, account for every message, break things, and end in a verdict."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadtest.units import UsageError

if TYPE_CHECKING:
    from loadtest.options import Output
    from loadtest.plan import Plan
    from loadtest.report import Report

OTHERS = ("list", "compare", "versus", "sink", "bench")


def main(argv: list[str] | None = None) -> int:
    """Load any MQTT broker, account for every message, break things, and end in a verdict."""
    from loadtest.secrets import hide_passwords

    arguments = list(sys.argv[1:] if argv is None else argv)
    hide_passwords(arguments)
    try:
        if not arguments or arguments[0] in ("-h", "--help", "help"):
            print(usage())
            return 0 if arguments else 2
        if "--help" in arguments or "-h" in arguments:
            print(usage())
            return 0
        if arguments[0] == "list":
            return list_scenarios()
        if arguments[0] == "compare":
            from loadtest.compare import main as compare

            return compare(arguments[1:])
        if arguments[0] == "versus":
            from loadtest.versus import main as versus

            return versus(arguments[1:])
        if arguments[0] == "bench":
            from loadtest.bench import main as bench

            return bench(arguments[1:])
        if arguments[0] == "sink":
            from loadtest.sink import main as sink

            return sink(arguments[1:])
        return _load(arguments)
    except UsageError as failure:
        print(f"lmq load: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def usage() -> str:
    from loadtest.options import OPTIONS
    from loadtest.scenarios import NAMES

    out = [
        "lmq load SCENARIO mqtt|mqtts|ws|wss://[user[:password]@]host:port [options]",
        "lmq load list | compare A.json B.json… | versus PEER… --scenario S | bench | sink URL",
        f"scenarios: {', '.join(NAMES)}, file:PLAN.toml",
        "",
    ]
    for option in OPTIONS:
        left = f"--{option.name} {option.value}".strip()
        out.append(f"  {left:<28} {option.help} [{option.default}]")
    return "\n".join(out)


def list_scenarios() -> int:
    from loadtest.scenarios import NAMES, module_of

    for name in NAMES:
        module = module_of(name)
        print(f"{name:<18} {module.HELP}")
    print(f"{'file:PLAN.toml':<18} groups of clients of your own, in the format of fleet")
    return 0


def _load(arguments: list[str]) -> int:
    from loadtest.options import read_arguments

    plan, output = read_arguments(arguments)
    if output.explain:
        return _explain(plan)
    _check_plan(plan)
    made = _check_outputs(output)
    reports: list[Report] = []
    stop = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for _ in range(output.runs):
            report = _run_once(plan, output)
            reports.append(report)
            if report.exit == 130:
                break
    finally:
        signal.signal(signal.SIGTERM, stop)
        if not reports:
            for path in made:
                path.unlink(missing_ok=True)
    _write(reports, output)
    codes = [report.exit for report in reports]
    return 130 if 130 in codes else max(codes)


def _explain(plan: Plan) -> int:
    from loadtest.resolve import address_of, resolved
    from loadtest.scenarios import layout_of
    from loadtest.summary import explained

    done = resolved(plan)
    address_of(done)
    print("\n".join(explained(done, layout_of(done, "<run>").groups)))
    return 0


def _check_plan(plan: Plan) -> None:
    from loadtest.conductor import Conductor

    Conductor(plan).server.end(keep_folder=False)


def _check_outputs(output: Output) -> list[Path]:
    """What cannot be written is said before any load; the files that this made."""
    if output.prometheus:
        from loadtest.metrics import parse_address

        parse_address(output.prometheus)
    made: list[Path] = []
    for name in ("json", "html"):
        path = getattr(output, name)
        if path and path != "-":
            absent = not os.path.lexists(path)
            try:
                with open(path, "a", encoding="utf-8"):
                    pass
            except OSError as failure:
                for one in made:
                    one.unlink(missing_ok=True)
                raise UsageError(f"--{name} {path}: {failure.strerror}") from None
            if absent:
                made.append(Path(path))
    return made


def _run_once(plan: Plan, output: Output) -> Report:
    from loadtest.conductor import Conductor
    from loadtest.live_view import view_for
    from loadtest.summary import failures, lines

    color = sys.stderr.isatty() and not output.no_color and "NO_COLOR" not in os.environ
    conductor = Conductor(plan)
    view = None if output.quiet else view_for(conductor, color)
    metrics: Any = None
    if output.prometheus:
        from loadtest.metrics import Metrics

        metrics = Metrics(output.prometheus)

    def watch(run: Conductor) -> None:
        if view is not None:
            view.show()
        if metrics is not None:
            metrics.update(run)

    conductor.watch = watch if view is not None or metrics is not None else None
    try:
        report = conductor.run()
    finally:
        if view is not None:
            view.end()
        if metrics is not None:
            metrics.stop()
    shown = sys.stderr if output.json == "-" or output.quiet else sys.stdout
    if output.quiet:
        for line in failures(report):
            print(line, file=shown)
    else:
        print("\n".join(lines(report, color and shown.isatty())), file=shown)
    if conductor.kept_folder:
        print(f"  the server's data and output are kept in {conductor.kept_folder}{conductor.server.last_lines()}", file=shown)
    return report


def _write(reports: list[Report], output: Output) -> None:
    if output.json:
        data: Any = reports[0].data if output.runs == 1 else [report.data for report in reports]
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        if output.json == "-":
            sys.stdout.write(text)
        else:
            Path(output.json).write_text(text, encoding="utf-8")
    if output.html:
        from loadtest.html_report import page

        Path(output.html).write_text(page(reports[-1].data), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
