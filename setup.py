"""Builds each `x.py` that has a sibling `x.pxd` as a compiled module beside its source; everything else is in pyproject.toml.

The modules share C types, so it is all of them or none: where one cannot be built, what was built is removed again, one line
on stderr says so, and the product runs uncompiled from the same files.

    LMQ_BUILD=0            build nothing
    LMQ_ONLY=a.*,b.c       build only the modules whose names match (while working on them)
"""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatch
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGES = ("lmq_store", "mqtt_proxy", "notify", "loadtest")
ROOT = Path(__file__).parent
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "show_performance_hints": False,  # a newcomer's first `make run` prints what he needs, no more
    "warn.unreachable": False,  # the other branch of `if cython.compiled:`
}


def hot_modules() -> list[Extension]:
    """One extension for each module with a .pxd, by its dotted name."""
    if os.environ.get("LMQ_BUILD") == "0":
        return []
    only = os.environ.get("LMQ_ONLY", "*").split(",")
    found = []
    for package in PACKAGES:
        for types in sorted((ROOT / package).rglob("*.pxd")):
            source = types.with_suffix(".py")
            name = ".".join(source.relative_to(ROOT).with_suffix("").parts)
            if source.name != "__init__.py" and source.exists() and any(fnmatch(name, pattern) for pattern in only):
                found.append(Extension(name, [str(source.relative_to(ROOT))], extra_compile_args=["-O3", "-g0", "-w"]))
    return found


class BuildHotModules(build_ext):
    """Translates and compiles side by side; falls back to no compiled module at all."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count() or 1

    def run(self) -> None:
        wanted = list(self.extensions)
        try:
            self._translate()
            super().run()
        except (Exception, SystemExit) as failure:
            reason = (str(failure).strip() or type(failure).__name__).splitlines()[0][:160]
            self._remove(wanted)
            self.extensions[:] = []
            print(f"lmq: runs uncompiled (slower): its modules could not be built: {reason}", file=sys.stderr)

    def _translate(self) -> None:
        """Python to C, in build/c; only what changed since."""
        if not self.extensions:
            return
        from Cython.Build import cythonize  # a build requirement; absent is one more reason to run uncompiled

        translated = cythonize(
            [Extension(wanted.name, wanted.sources) for wanted in self.extensions],
            build_dir="build/c", compiler_directives=DIRECTIVES, include_path=["."], quiet=True,
        )  # fmt: skip
        for extension, done in zip(self.extensions, translated, strict=True):
            extension.sources, extension.depends = done.sources, done.depends

    def _remove(self, wanted: list[Extension]) -> None:
        for extension in wanted:
            for folder in (ROOT, Path(self.build_lib)):
                (folder / self.get_ext_filename(extension.name)).unlink(missing_ok=True)


setup(ext_modules=hot_modules(), cmdclass={"build_ext": BuildHotModules})
