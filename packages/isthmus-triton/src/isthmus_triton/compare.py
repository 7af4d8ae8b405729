"""Each launch of a program in three ways: compiled, interpreted by Triton, and by PyTorch.

A kernel is compiled as usual and without fusing its loops. It is interpreted in a process of its own, on copies of
its arguments. A function of the kernel's module, named after it with ``_reference``, takes arguments by name, as they
are before the launch, and returns the expected tensors by name.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from isthmus_triton import launches

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Difference:
    """Two results of one tensor.

    Attributes:
        argument: its name.
        ways: how the two were computed.
        count: elements that differ.
        elements: all elements.
        units: the largest difference of a floating-point number, in units in the last place.
        is_close: all are within PyTorch's tolerances of the dtype.
        index: of the first element that is not close, else of the first that differs; None if none does.
        values: of it.
        program: that wrote it; None if it is unknown.
    """

    argument: str
    ways: tuple[str, str]
    count: int
    elements: int
    units: int
    is_close: bool
    index: tuple[int, ...] | None
    values: tuple[Any, Any] | None
    program: tuple[int, int, int] | None = None

    def line(self) -> str:
        """One line."""
        start = f"  {self.argument}: {self.ways[0]} and {self.ways[1]}: "
        if self.index is None or self.values is None:
            return start + "equal"
        judged = "close" if self.is_close else "DIFFERENT"
        units = f", at most {self.units} ulp" if self.units else ""
        place = f"{self.argument}[{', '.join(map(str, self.index))}]"
        by = f" by program {self.program}" if self.program else ""
        return (
            f"{start}{judged}, {self.count} of {self.elements} elements{units}; "
            f"first {place}{by}: {self.values[0]!r} and {self.values[1]!r}"
        )


@dataclass
class Launch:
    """A launch that is compared.

    Attributes:
        kernel: its name.
        module: in which it is.
        place: ``file:line``.
        grid: its sizes.
        before: arguments by name, as they were.
        results: by way, the tensors among the arguments.
        notes: what could not be done.
        writer: finds the program that wrote an element, given the name of an argument and the element's index.
    """

    kernel: str
    module: str
    place: str
    grid: tuple[int, int, int]
    before: dict[str, Any]
    results: dict[str, dict[str, torch.Tensor]]
    notes: list[str] = field(default_factory=list)
    writer: Callable[[str, tuple[int, ...]], tuple[int, int, int] | None] = lambda name, index: None

    def differences(self) -> Iterator[Difference]:
        """The results of each tensor that the kernel changes, compared with the compiled one's."""
        compiled = self.results["compiled"]
        for way, tensors in self.results.items():
            for name, tensor in tensors.items() if way != "compiled" else ():
                is_written = not _is_same(compiled[name], self.before[name]) or way == "PyTorch"
                if is_written or not _is_same(tensor, self.before[name]):
                    found = difference(name, ("compiled", way), compiled[name], tensor)
                    if found.index is not None:
                        found.program = self.writer(name, found.index)
                    yield found

    def lines(self) -> list[str]:
        """The report."""
        found = [each.line() for each in self.differences()] or ["  no tensor is changed"]
        return [
            f"{self.kernel} ({self.place}), grid {self.grid}",
            *found,
            *(f"  {each}" for each in self.notes),
        ]


def difference(name: str, ways: tuple[str, str], one: torch.Tensor, other: torch.Tensor) -> Difference:
    """Compare two tensors of a shape."""
    other = other.to(one.dtype)
    differs = ~torch.isclose(one, other, rtol=0, atol=0, equal_nan=True)
    is_close = ~differs
    if one.is_floating_point():
        relative, absolute = torch.testing._comparison.default_tolerances(one.dtype)
        is_close = torch.isclose(one, other, relative, absolute, equal_nan=True)
    chosen = differs if bool(is_close.all()) else ~is_close
    index = tuple(chosen.nonzero()[0].tolist()) if bool(chosen.any()) else None
    units = 0
    if one.is_floating_point() and index is not None:
        units = int((_ordered(one)[differs] - _ordered(other)[differs]).abs().max())
    return Difference(
        name, ways, int(differs.sum()), one.numel(), units, bool(is_close.all()), index,
        None if index is None else (one[index].item(), other[index].item()),
    )  # fmt: skip


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the order of floating-point numbers, neighbours one apart."""
    bits = tensor.contiguous().view(_SIGNED[tensor.element_size()]).long()
    lowest = -(1 << (8 * tensor.element_size() - 1))
    return torch.where(bits < 0, lowest - bits, bits)


class Recorder:
    """Observes launches, as :data:`isthmus_triton.launches.observer`.

    Args:
        every: all launches, not only the first of each specialisation of a kernel.

    Attributes:
        launches: so far.
    """

    def __init__(self, every: bool = False) -> None:
        self._every, self._seen = every, set[int]()
        self.launches: list[Launch] = []

    def __call__(
        self,
        launcher: launches.Launcher,
        grid: tuple[int, int, int],
        program: launches.Program,
        arguments: Any,
    ) -> None:
        """Run a launch on copies."""
        if id(launcher) in self._seen and not self._every:
            return
        self._seen.add(id(launcher))
        before = copies(arguments)
        results = {}
        for way in ("compiled", "unfused"):
            run = copies(before)
            launcher.rerun(program, grid, run, is_fused=way == "compiled")
            results[way] = _tensors(launcher.names, run)

        def writer(name: str, index: tuple[int, ...]) -> tuple[int, int, int] | None:
            run = copies(before)
            return launcher.find_writer(grid, run, _tensors(launcher.names, run)[name][index].data_ptr())

        function: Any = launcher.function
        self.launches.append(
            Launch(
                function.__name__, function.__module__,
                f"{inspect.getsourcefile(function.fn)}:{function.starting_line_number}", grid,
                dict(zip(launcher.names, before, strict=True)), results, writer=writer,
            )
        )  # fmt: skip


def copies(arguments: Any) -> tuple[Any, ...]:
    """Arguments with tensors of the CPU that share memory where the arguments do."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(copy, value))
        if not isinstance(value, torch.Tensor):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in storages:
            storages[storage.data_ptr()] = storage.cpu().clone()
        made = torch.empty(0, dtype=value.dtype)
        return made.set_(storages[storage.data_ptr()], value.storage_offset(), value.size(), value.stride())

    return tuple(copy(each) for each in arguments)


def _tensors(names: list[str], arguments: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    pairs = zip(names, arguments, strict=True)
    return {name: value for name, value in pairs if isinstance(value, torch.Tensor) and value.numel()}


def compare(run: Callable[[], object], every: bool = False) -> list[Launch]:
    """Run a program, and its launches in the other ways too.

    Args:
        run: the program.
        every: all launches, not only the first of each specialisation of a kernel.
    """
    recorder = Recorder(every)
    launches.observer = recorder
    try:
        run()
    finally:
        launches.observer = None
    _interpret(recorder.launches)
    for each in recorder.launches:
        reference = getattr(sys.modules.get(each.module), f"{each.kernel}_reference", None)
        if reference is not None:
            asked = inspect.signature(reference).parameters
            given = dict(zip(each.before, copies(each.before.values()), strict=True))
            expected: Mapping[str, torch.Tensor] = reference(**{name: given[name] for name in asked})
            each.results["PyTorch"] = dict(expected)
    return recorder.launches


def _interpret(recorded: list[Launch]) -> None:
    """Run launches in Triton's interpreter, which replaces the language of a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "asked.pt"), Path(folder, "answered.pt")
        requests = [(each.module, each.kernel, each.grid, each.before) for each in recorded]
        torch.save((sys.path, requests), asked)
        environment = {**os.environ, "TRITON_INTERPRET": "1", "ISTHMUS_TRITON_DEBUG": "0"}
        command = [sys.executable, "-m", "isthmus_triton.interpret", str(asked), str(answered)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            for each in recorded:
                each.notes.append(f"not interpreted: {last}")
            return
        for each, answer in zip(recorded, torch.load(answered, weights_only=False), strict=True):
            if isinstance(answer, str):
                each.notes.append(f"not interpreted: {answer}")
            else:
                each.results["interpreted"] = answer
