"""Faults of kernels, and the error that reports them."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass
class Fault:
    """A fault at one access of a kernel.

    Attributes:
        kind: ``out of bounds``, ``other allocation``, ``misaligned``, ``uninitialised``, ``race``, ``deadlock`` or
            ``assertion``.
        line: of the source: ``file:line``.
        program: its id.
        argument: the name of the argument whose memory is accessed, or was meant; "" if it is unknown.
        index: of the element, from the argument's first; None if the argument is unknown.
        count: how often it was found at this access.
        other_line: of a race, the other access; of a deadlock, the last change of the lock; of an access out of
            bounds, the offset that overflowed.
        other_program: that made the other access.
        text: what happened, in one line.
    """

    kind: str
    line: str
    program: tuple[int, int, int]
    argument: str = ""
    index: int | None = None
    count: int = 1
    other_line: str = ""
    other_program: tuple[int, int, int] | None = None
    text: str = ""

    def lines(self) -> list[str]:
        """Text, places and source lines."""
        found = [self.text, f"  {_with_source(self.line)}", f"  program {self.program}"]
        if self.other_line:
            words = {"deadlock": "last changed by", "out of bounds": "offset of 32 bits overflows"}
            by = f" program {self.other_program}" if self.other_program else ""
            found.append(f"  {words.get(self.kind, 'and')}{by}: {_with_source(self.other_line)}")
        return found


class KernelFault(RuntimeError):
    """Faults of a launch.

    Attributes:
        kernel: its name.
        faults: one per kind and access, in the order in which they were found.
    """

    def __init__(self, kernel: str, faults: list[Fault], seed: int) -> None:
        first, *others = faults
        lines = [f"{kernel}: " + "\n".join(first.lines())]
        if first.count > 1:
            lines.append(f"  {first.count} times")
        lines += [f"also {each.line}: {each.kind}, {each.count} times" for each in others]
        super().__init__("\n".join([*lines, f"order of programs: ISTHMUS_TRITON_SEED={seed}"]))
        self.kernel, self.faults = kernel, faults


def _with_source(place: str) -> str:
    path, _, number = place.rpartition(":")
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return f"{place}: {text}" if text else place
