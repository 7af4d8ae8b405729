"""Empty and degenerate arguments for the aclnn functions: changes of one argument of the calls that tests make."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from isthmus_ascend.generate.table import Row
from tests.runtime import opapi
from tools.ascend.fuzz_runtime import Given
from tools.repository import ASCEND, ROOT

NUMBERS = (0, 1, -1, 3, 7, 127, -128, -(1 << 31), -(1 << 63))
BITS = {"int": 64, "int32": 32, "int8": 8}


@cache
def recorded_calls() -> dict[str, list[list[Any]]]:
    """Return valid calls of each function: those of the tests test_opapi_*.py, run in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.pt"
        tests = sorted(map(str, (ASCEND / "tests/runtime").glob("test_opapi_*.py")))
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tools.ascend.recorder"]
        environment = {**os.environ, "RECORD": str(path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", *options, *tests]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        calls: dict[str, list[list[Any]]] = torch.load(path, weights_only=False)
        return calls


def _of_tensor(value: torch.Tensor) -> Iterator[Any]:
    yield None
    shapes = [[*value.shape[:i], 0, *value.shape[i + 1 :]] for i in range(value.dim())]
    for shape in ([], [0], [1, *value.shape], list(value.shape[1:]), *shapes):
        yield torch.zeros(shape, dtype=value.dtype)
    if not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
        limits = torch.iinfo(value.dtype)
        for number in (-1, 1, 1 << 30):
            yield value.clone().fill_(max(min(number, limits.max), limits.min))


def _of_tensors(value: list[Any]) -> Iterator[Any]:
    yield from (None, [], value[:1], [*value, value[0]], [None] * len(value))
    given = [tensor for tensor in value if tensor is not None]
    for change in (lambda s: [0], lambda s: [], lambda s: [0, *s[1:]], lambda s: [*s[:-1], 0]):
        yield [torch.zeros(change(list(t.shape)), dtype=t.dtype) for t in given]


def _of_argument(kind: str, value: Any) -> Iterator[Any]:
    """Yield degenerate values of one argument."""
    if kind == "tensor" and value is not None:
        yield from _of_tensor(value)
    elif kind == "tensors" and value:
        yield from _of_tensors(value)
    elif kind in BITS:
        yield from (number for number in NUMBERS if number >= -(1 << (BITS[kind] - 1)))
    elif kind == "ints":
        given = list(value or [])
        wrong = ([number] * max(len(given), 1) for number in (0, -1, 1 << 31))
        yield from (None, [], given[:1], [*given, 0], *wrong)
    elif kind in ("floats", "bools", "scalars"):
        yield from (None, [], list(value or [])[:1])
    elif kind == "scalar":
        yield from (None, 0, -1, 0.0, True)
    elif kind in ("double", "float"):
        yield from (0.0, -1.0, float("nan"))


def _tensors_of(arguments: list[Any]) -> Iterator[torch.Tensor]:
    for value in arguments:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, torch.Tensor):
                yield one


def _resize(arguments: list[Any], resize: Callable[[int, int, int], int]) -> list[Any]:
    """Return the arguments with tensors of other sizes. resize: of (size, dimension, number of dimensions)."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(element) for element in value]
        if not isinstance(value, torch.Tensor):
            return value
        sizes = [resize(size, i, value.dim()) for i, size in enumerate(value.shape)]
        return torch.zeros(sizes, dtype=value.dtype)

    return [change(value) for value in arguments]


def variants(row: Row, given: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield a description and arguments: one argument is degenerate, or one size in all tensors."""
    for i, ((kind, name), value) in enumerate(zip(row.parameters, given, strict=True)):
        for wrong in _of_argument(kind, value):
            shape = list(wrong.shape) if isinstance(wrong, torch.Tensor) else wrong
            yield f"{name} = {shape}", [*given[:i], wrong, *given[i + 1 :]]
    for size in sorted({size for tensor in _tensors_of(given) for size in tensor.shape}):
        for new in {0, 1} - {size}:
            resized = _resize(given, lambda s, i, n, old=size, new=new: new if s == old else s)
            yield f"sizes {size} = {new}", resized
    for dim in range(-4, 4):
        resized = _resize(given, lambda s, i, n, dim=dim: 0 if dim in (i, i - n) else s)
        yield f"dimension {dim} empty", resized


def caller(row: Row) -> Callable[[random.Random, int, Callable[[str], None]], None]:
    """Return a function that makes ``count`` degenerate calls."""
    calls = recorded_calls().get(row.name, [])

    def run(random: random.Random, count: int, note: Callable[[str], None]) -> None:
        torch.set_num_threads(1)
        runtime = Given().libraries["libascendcl.so"]
        opapi.start()
        every = [variant for given in calls for variant in variants(row, given)]
        for text, arguments in random.sample(every, min(count, len(every))):
            note(f"{row.name} with {text}")
            with opapi.objects() as made:
                try:
                    status, executor = opapi.prepare(made, row, arguments)
                except (ValueError, KeyError):  # objects that cannot be made
                    continue
                if status == 0:
                    getattr(made.library, f"aclnn{row.name}")(None, 0, executor, None)
                    runtime.aclrtSynchronizeDevice()

    return run
