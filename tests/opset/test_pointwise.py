"""Generated pointwise kernels against the kernels of the NumPy library, and the generators' inputs and failures."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus import opset
from isthmus.conformance.calling import Frame, Placed, make_context
from isthmus.drivers.generators import c, load
from isthmus.drivers.libraries import LibraryError, LoadedOperator
from isthmus.drivers.numpy.operators import library
from isthmus.opset import dtypes as dt
from isthmus.opset import pointwise
from isthmus.opset.pointwise import Kernel, Run, Step, Value

BOOLEAN = "eq ne lt le gt ge logical isnan isinf"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def placed(array: np.ndarray[Any, Any]) -> Placed:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Placed(array.ctypes.data, dt.name_of(array.dtype), array.shape, strides)


def call(kernel: Kernel, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    frame = Frame((1, 0))
    for array in arrays:
        frame.push(placed(array))
    assert isinstance(kernel.function, int)
    context, _callbacks = make_context(0, 0, 0, lambda _: 0, [])
    frame.call(LoadedOperator("run", 0, kernel.flags, kernel.function, 0), context, [])


def arguments_of(overload: str) -> dict[str, Any]:
    """Arrays for the tensors of an operator, and numbers for the rest."""
    random = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for argument in opset.schema_of(f"aten::{overload}").inputs:
        if argument.name in ("condition", "mask"):
            made[argument.name] = random.random((5, 7)) > 0.5
        elif argument.is_tensor:
            made[argument.name] = random.normal(0.4, 1, (5, 7)).astype(np.float32)
        else:
            made[argument.name] = {"alpha": 1, "approximate": "none"}.get(argument.name, 0.7)
    return made


def run_of(overload: str, given: dict[str, Any]) -> Run:
    expression = pointwise.expression_of(overload, given)
    assert expression is not None
    tensors = [name for name, value in given.items() if isinstance(value, np.ndarray)]
    names = [name for name in given if name in expression]
    operands = {name: Value(tensors.index(name)) if name in tensors else given[name] for name in names}
    is_bool = overload.partition(".")[0].startswith(tuple(BOOLEAN.split()))
    step = Step(expression, operands, "float32", "bool" if is_bool else "float32")
    return Run(tuple(dt.name_of(given[name].dtype) for name in tensors), (step,), (len(tensors),))


def overloads() -> list[str]:
    named = [*pointwise.EXPRESSIONS, "gelu", "gelu_backward", "clamp", "clamp_min", "hardtanh"]
    integers = [name for name in named if name.startswith("bitwise")]
    return [name for name in named if f"aten::{name}" in library.entries and name not in integers]


def compare(names: Sequence[str]) -> None:
    cases = [(name, arguments_of(name)) for name in names]
    kernels = c.generate([run_of(name, given) for name, given in cases])
    for (name, given), kernel in zip(cases, kernels, strict=True):
        dtype = np.dtype(run_of(name, given).steps[0].dtype)
        expected, out = np.empty((5, 7), dtype), np.empty((7, 5), dtype).T
        library.entries[f"aten::{name}"].function(*given.values(), expected, context=None)
        call(kernel, [*(value for value in given.values() if isinstance(value, np.ndarray)), out])
        assert np.allclose(out, expected, rtol=1e-7, atol=0, equal_nan=True), name  # an ulp is 6e-8 to 1.2e-7


def test_kernels_equal_those_of_numpy() -> None:
    compare(["add.Tensor", "exp", "where.self", "gt.Scalar", "gelu", "maximum"])


@pytest.mark.full
def test_kernels_of_all_expressions() -> None:
    assert len(overloads()) > 80
    compare(overloads())


def test_broadcasting_strides_dtypes_and_several_outputs() -> None:
    """(a + b) in float32, rounded to bfloat16; and the integer sum i + 1, by other strides."""
    steps = (
        Step("self + other", {"self": Value(0), "other": Value(1)}, "float32", "float32"),
        Step("self", {"self": Value(3)}, "float32", "bfloat16"),
        Step("self + other", {"self": Value(2), "other": 1}, "int8", "int8"),
    )
    (kernel,) = c.generate([Run(("float32", "float32", "int8"), steps, (4, 5))])
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4) / 3, np.float32([[1], [2], [3]])
    i = np.array([127, 1, 2, 3], np.int8)
    rounded, sums = np.empty((3, 4), dt.DTYPES["bfloat16"].numpy), np.empty((4, 3), np.int8).T
    call(kernel, [a, b, i, rounded, sums])
    assert (rounded == (a + b).astype(rounded.dtype)).all()
    assert (sums == np.array([-128, 2, 3, 4], np.int8)).all()
    empty = np.empty((0, 4), np.float32)
    call(kernel, [empty, np.float32([[1]]), i, rounded[:0], sums[:0]])


def test_libraries_are_kept_where_only_the_user_writes(tmp_path: Path) -> None:
    run = run_of("add.Tensor", arguments_of("add.Tensor"))
    c.generate([run])
    folder = tmp_path / "isthmus" / "kernels"
    (made,) = folder.glob("*.so")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    written = made.stat().st_mtime_ns
    c.generate([run])
    assert made.stat().st_mtime_ns == written
    folder.chmod(0o777)
    made.unlink()
    c.generate([run])
    assert not made.exists()


def test_a_missing_or_failing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("add.Tensor", arguments_of("add.Tensor"))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(
        c.CompilerError, match="no C compiler 'no-such-compiler' to fuse operators with; install"
    ):
        c.generate([run])
    monkeypatch.setenv("CC", "false")
    with pytest.raises(c.CompilerError, match="false failed to compile fused operators"):
        c.generate([run])


def test_a_makers_generator_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("SHORTEST = 3\ndef generate(runs):\n    return []\n")
    generator = load(str(file))
    assert (generator.shortest, generator.generate([])) == (3, [])
    file.write_text("x = 1\n")
    with pytest.raises(LibraryError, match="has no function `generate`"):
        load(str(file))
    with pytest.raises(LibraryError, match="unknown code generator 'cuda'; expected c or a Python file"):
        load("cuda")
