"""Check permissions: umask, user, and the folders of compiled code, caches and reports."""

import os
from collections.abc import Iterator
from pathlib import Path

import isthmus
from isthmus import options
from isthmus_common import hardening
from isthmus_common.finding import Finding, fail, run_checks
from isthmus_common.folders import folders

_SUBJECT = "permissions"


def examine() -> Iterator[Finding]:
    """Check umask, user, folders, and files named by options."""
    yield from run_checks(_SUBJECT, hardening.umask, hardening.user, folders, _files)


def _files() -> Iterator[Finding]:
    """Check the files of the package and files named by options."""
    yield from _shipped_files()
    yield from _asked_files(dict(os.environ))


def _shipped_files() -> Iterator[Finding]:
    package = Path(isthmus.__file__).parent
    shipped = [*package.glob("*.so"), *package.glob("drivers/*/*.toml"), *package.glob("drivers/*/*.so")]
    for file in shipped:
        if not os.access(file, os.R_OK):
            yield fail(_SUBJECT, f"{file} is not readable", f"`chmod a+r {file}`")


def _asked_files(environment: dict[str, str]) -> Iterator[Finding]:
    for name, file in _named_files(environment):
        if not file.exists():
            yield fail(
                "options", f"{name}: {file}: no such file", f"set {name} to an existing file, or unset it"
            )
        elif not os.access(file, os.R_OK):
            yield fail("options", f"{name}: {file} is not readable", f"`chmod u+r {file}`, or unset {name}")


def _named_files(environment: dict[str, str]) -> Iterator[tuple[str, Path]]:
    for file in filter(None, options.text("libraries", environment).split(os.pathsep)):
        yield "ISTHMUS_LIBRARIES", Path(file)
    route = options.text("route", environment)
    if route.startswith("@"):
        yield "ISTHMUS_ROUTE", Path(route[1:])
