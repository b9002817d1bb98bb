"""The command `lmq`: finds its commands by entry points and hands over the arguments. Nothing else is imported before that.

A command is an entry point of the group `lmq.commands`: a function `main(argv: list[str]) -> int`. The first line of its
docstring is its line in `lmq --help`; it is read from the source, so that asking for help imports no command.
"""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points

DISTRIBUTION = "lmq-proxy"
GROUP = "lmq.commands"
WRONG_USE = 2


def main(argv: list[str] | None = None) -> int:
    """Runs `lmq ARGV` and returns its exit code: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else WRONG_USE
    if arguments[0] in ("-V", "--version"):
        print(version_line())
        return 0
    command = find(arguments[0])
    if command is None:
        known = ", ".join(sorted(commands()))
        print(f"lmq: unknown command {arguments[0]!r}; there are: {known}", file=sys.stderr)
        return WRONG_USE
    try:
        return int(command.load()(arguments[1:]) or 0)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone: there is nobody left to tell
        return 1


def find(name: str) -> EntryPoint | None:
    """The command's entry point: our own distribution is asked first, since looking through all that is installed is slow."""
    try:
        for entry in distribution(DISTRIBUTION).entry_points:
            if entry.group == GROUP and entry.name == name:
                return entry
    except PackageNotFoundError:
        pass
    return next(iter(entry_points(group=GROUP, name=name)), None)


def commands() -> dict[str, EntryPoint]:
    """Every command that is installed, also those that other distributions bring."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def overview() -> str:
    """The text of `lmq --help`."""
    lines = ["usage: lmq COMMAND [options]     (lmq COMMAND --help tells more)", ""]
    lines += [f"  {name:<10} {help_line(entry)}" for name, entry in sorted(commands().items())]
    lines += ["", "  lmq --version    version, and whether it runs compiled"]
    return "\n".join(lines)


def help_line(entry: EntryPoint) -> str:
    """The first line of the command's docstring (its function's, else its module's), read without importing it."""
    import ast
    from importlib.util import find_spec
    from pathlib import Path

    package, *rest = entry.module.split(".")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return "(not installed)"
    source = Path(spec.origin).parent.joinpath(*rest)
    source = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError):
        return "(not installed)"
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry.attr)
    text = next((ast.get_docstring(node) for node in functions), None) or ast.get_docstring(tree) or ""
    return text.partition("\n")[0]


def version_line() -> str:
    """For example `lmq 0.1.0 (compiled) on Python 3.11.7`."""
    from importlib.metadata import version

    from lmq_store.source_first import compiled

    try:
        number = version(DISTRIBUTION)
    except PackageNotFoundError:
        number = "(not installed)"
    return f"lmq {number} ({'compiled' if compiled() else 'uncompiled'}) on Python {sys.version.split()[0]}"


if __name__ == "__main__":
    sys.exit(main())
