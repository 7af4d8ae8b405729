"""Check that each installed library can be imported, in a child process."""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from isthmus.doctor import versions
from isthmus.doctor.libraries import LIBRARIES, Library, find
from isthmus_common import children
from isthmus_common.finding import Finding, describe, fail, ok

_SUBJECT = "imports"


class _Attempt(NamedTuple):
    sound: list[Library]
    problems: dict[str, str]  # problems of a module
    seconds: float


def with_torch() -> Iterator[Finding]:
    """Import every installed library."""
    return _examine(_installed_libraries())


def without_torch() -> Iterator[Finding]:
    """Import the installed libraries that do not need PyTorch."""
    return _examine([library for library in _installed_libraries() if not library.needs_torch])


def _installed_libraries() -> list[Library]:
    return [library for library in LIBRARIES if find(library.module)]


def _examine(installed: list[Library]) -> Iterator[Finding]:
    libraries = [library for library in installed if not library.heavy]
    attempt = _attempt(libraries, {})
    if attempt.problems.get("torch"):  # PyTorch's own fault, or that of a plugin, which has its own line?
        attempt = _attempt(libraries, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    if attempt.sound:
        yield ok(_SUBJECT, f"{_names(attempt.sound)} ({attempt.seconds:.1f} s)")
    if heavy := [library for library in installed if library.heavy]:
        yield ok(_SUBJECT, f"{_names(heavy)}: installed; not imported, which takes seconds")
    for library in libraries:
        if problem := attempt.problems.get(library.module):
            remedy = f"install what it names, or `pip install --force-reinstall {library.name}`"
            yield fail(_SUBJECT, f"`import {library.module}` fails: {problem}", remedy)


def _names(libraries: list[Library]) -> str:
    return ", ".join(f"{one.name} {versions.installed_version(one.name)}".strip() for one in libraries)


def _attempt(libraries: list[Library], environment: dict[str, str]) -> _Attempt:
    """Import all libraries in one child; skip one that kills the child in the next.

    Libraries that need PyTorch are skipped if it cannot be imported.
    """
    sound: list[Library] = []
    problems: dict[str, str] = {}
    seconds = 0.0
    left = libraries
    while left:
        outcome = children.run(f"{__name__}:records", *(one.module for one in left), environment=environment)
        for library, record in zip(left, outcome.records, strict=False):
            seconds += record["seconds"]
            if record["problem"]:
                problems[library.module] = record["problem"]
            else:
                sound.append(library)
        left = left[len(outcome.records) :]
        if left and (outcome.problem or not outcome.records):
            problems[left[0].module] = outcome.problem or "its import exits the process"
            left = left[1:]
        if "torch" in problems:
            left = [library for library in left if not library.needs_torch]
    return _Attempt(sound, problems, seconds)


def records(*modules: str) -> Iterator[dict[str, Any]]:
    """Yield in the child the result of each import."""
    for module in modules:
        start = time.perf_counter()
        try:
            import_module(module)
            problem = ""
        except BaseException as error:  # includes SystemExit
            problem = describe(error)
        yield {"problem": problem, "seconds": time.perf_counter() - start}
        if problem and module == "torch":
            return
