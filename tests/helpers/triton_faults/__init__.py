"""Triton kernels with planted faults, each beside its correct form.

A case is a function that launches kernels, with the fault or without. The lines that a debugger may name carry the
comment ``FAULT``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    """A planted fault.

    Attributes:
        kinds: of the report; any of them is right. None: no access shows the fault, only a wrong result.
        launch: with the fault, or without.
        lines: ``file:line`` that may be named.
    """

    kinds: tuple[str, ...]
    launch: Callable[[bool], object]
    lines: frozenset[str]


def fault(kernel: object, *kinds: str) -> Callable[[Callable[[bool], object]], Callable[[bool], object]]:
    """Register a case of a kernel, whose name is that of the function."""

    def register(launch: Callable[[bool], object]) -> Callable[[bool], object]:
        function = kernel.fn  # type: ignore[attr-defined]
        text, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function)
        lines = frozenset(f"{file}:{first + at}" for at, line in enumerate(text) if "# FAULT" in line)
        assert lines and launch.__name__ not in CASES
        CASES[launch.__name__] = Case(kinds, launch, lines)
        return launch

    return register
