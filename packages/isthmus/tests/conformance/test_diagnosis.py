"""The probable mistake behind a failure: each planted one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isthmus.drivers
from isthmus.conformance.cases import Case, Expected, Tensor, Tolerance
from isthmus.conformance.libraries_target import LibrariesTarget
from isthmus.opset import schema_of
from tests.helpers.conformance_data import HALF_ULP, values
from tests.helpers.conformance_libraries import write_library

MANY = 131_072


def case(name: str, arguments: list[Any], result: Any, dtype: str = "float32", **more: Any) -> Case:
    reference = np.asarray(result)
    reference = reference if reference.dtype.kind in "biu" else reference.astype(np.float64)
    expected = Expected(dtype, reference.shape, reference, more.get("magnitude"))
    tolerance = more.get("tolerance", HALF_ULP)
    return Case("planted", f"aten::{name}", dtype, "contiguous", arguments, [expected], tolerance)


def numbers(*shape: int, dtype: str = "float32", seed: int = 1) -> Any:
    return values(shape, dtype, seed)


def added(x: Any, alpha: float = 1, dtype: str = "float32", tensor: Tensor | None = None) -> Case:
    y = values(x.shape, dtype, 2)
    total = x.astype(np.float64) + alpha * y.astype(np.float64) if x.dtype.kind != "i" else x + alpha * y
    given = [tensor or Tensor.contiguous(x), Tensor.contiguous(y), alpha]
    return case("add.Tensor", given, total, dtype)


def view(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[Any, Tensor]:
    tensor = Tensor(numbers(400), shape, strides, offset)
    return np.array(tensor.array), tensor


def summed(dtype: str) -> Case:
    x = np.abs(numbers(6, 700, dtype=dtype))
    total = x.astype(np.float64).sum(1)
    loose = Tolerance(0.51, 64, "a sum")
    return case(
        "sum.dim_IntList", [Tensor.contiguous(x), [1], False], total, dtype, magnitude=total, tolerance=loose
    )


def repeated() -> Case:
    x, index, source = numbers(6, 3), np.array([4, 1, 4]), numbers(3, 3, seed=3)
    total = x.astype(np.float64)
    np.add.at(total, index, source.astype(np.float64))
    given = [Tensor.contiguous(x), 0, Tensor.contiguous(index), Tensor.contiguous(source), 1]
    return case("index_add", given, total)


def products() -> Case:
    x, y = numbers(5, 5), numbers(5, 5, seed=2)
    wide = [each.astype(np.float64) for each in (x, y)]
    magnitude = np.abs(wide[0]) @ np.abs(wide[1])
    given = [Tensor.contiguous(x), Tensor.contiguous(y)]
    return case(
        "mm", given, wide[0] @ wide[1], magnitude=magnitude, tolerance=Tolerance(0.51, 8, "a product")
    )


def unary(name: str, x: Any, result: Any, dtype: str = "float32") -> Case:
    return case(name, [Tensor.contiguous(np.asarray(x))], result, dtype)


SPECIAL = np.array([1.0, np.nan, -3.0, 2.0], np.float32)
MATRIX, PITCHED = view((7, 11), (20, 1), 0)
LATE, OFFSET = view((30,), (1,), 1)
ADD = "def add(self, other, alpha, out, context):\n    total = wide(self) + alpha * wide(other)\n    "
NEG = "def neg(self, out):\n    "
# Each mistake has its kernel, operator, case, and words of the guess.
PLANTED: dict[str, tuple[str, Case, tuple[str, ...]]] = {
    "tail left": (
        ADD + "n = out.size // 16 * 16; out.reshape(-1)[:n] = total.reshape(-1)[:n]",
        added(numbers(1000)),
        ("last 8 elements, beyond the last multiple of 16: a tail", "not written"),
    ),
    "tail of rows": (
        ADD + "store(out, total); out[:, 64:] = 0",
        added(numbers(5, 70)),
        ("last 6 of dimension 1, beyond the last multiple of 8", "all zeros"),
    ),
    "a block left out": (
        ADD + "store(out, total); out[128:192] = 0",
        added(numbers(1000)),
        ("only block 2 of 64 elements",),
    ),
    "a limited grid": (
        ADD + "store(out, total); out[65536:] = 1",
        added(numbers(MANY)),
        ("from element 65,536 on", "all 1.0"),
    ),
    "shifted": (
        ADD + "store(out, np.roll(total, 1))",
        added(numbers(50)),
        ("value of 1 element before", "off by 1"),
    ),
    "row shifted": (
        ADD + "store(out, np.roll(total, -1, 0))",
        added(numbers(20, 7)),
        ("value of 1 row after",),
    ),
    "reversed": (ADD + "store(out, total[::-1])", added(numbers(50)), ("order of dimension 0 is reversed",)),
    "zeros": (ADD + "out[...] = 0", added(numbers(50)), ("all zeros",)),
    "a copy": (ADD + "out[...] = self", added(numbers(50)), ("a copy of self",)),
    "strides ignored": (
        ADD + "flat = np.ndarray(self.shape, self.dtype, memory_at(self.ctypes.data, self.nbytes)); "
        "store(out, wide(flat) + wide(other))",
        added(MATRIX, tensor=PITCHED),
        ("the strides of self are ignored",),
    ),
    "offset ignored": (
        ADD + "at = self.ctypes.data // 16 * 16; "
        "store(out, wide(np.ndarray(self.shape, self.dtype, memory_at(at, self.nbytes))) + wide(other))",
        added(LATE, tensor=OFFSET),
        ("the offset of self is ignored",),
    ),
    "alpha ignored": (
        ADD + "store(out, wide(self) + wide(other))",
        added(numbers(50), 2),
        ("alpha is ignored",),
    ),
    "stale": (
        "CACHE = {}\n@register\n" + ADD + "store(out, CACHE.setdefault(self.ctypes.data, total))",
        added(numbers(50)),
        ("a stale cache",),
    ),
    "through bfloat16": (
        ADD + "import ml_dtypes; out[...] = total.astype(ml_dtypes.bfloat16)",
        added(numbers(50)),
        ("rounded to bfloat16",),
    ),
    "truncated": (
        ADD + "out[...] = (total.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)",
        added(numbers(50, dtype="bfloat16"), dtype="bfloat16"),
        ("truncated",),
    ),
    "32 bits": (
        ADD + "out[...] = total.astype(np.int32)",
        added(np.arange(50) * 123_456_789_123, dtype="int64"),
        ("computed in 32 bits",),
    ),
    "exchanged": (
        "def sub(self, other, alpha, out):\n    store(out, wide(other) - wide(self))",
        case(
            "sub.Tensor",
            [*(Tensor.contiguous(numbers(50, seed=i)) for i in (1, 2)), 1],
            numbers(50).astype(np.float64) - numbers(50, seed=2),
        ),
        ("the sign is wrong",),
    ),
    "divided the wrong way": (
        "def div(self, other, out):\n    store(out, wide(other) / wide(self))",
        case(
            "div.Tensor",
            [Tensor.contiguous(numbers(50, seed=i)) for i in (1, 2)],
            numbers(50).astype(np.float64) / numbers(50, seed=2),
        ),
        ("self and other are exchanged",),
    ),
    "transposed": (
        "def mm(self, other, out):\n    store(out, (wide(self) @ wide(other)).T)",
        products(),
        ("dimensions 0 and 1 are exchanged",),
    ),
    "accumulated in 16 bits": (
        "def total(self, dim, keepdim, out):\n    total = np.zeros_like(out)\n    for i in range(self.shape[1]):\n"
        "        total = total + self[:, i]\n    out[...] = total",
        summed("bfloat16"),
        ("accumulation in 16 bits",),
    ),
    "a wrong count": (
        "def total(self, dim, keepdim, out):\n    store(out, wide(self).sum(1) * 700 / 699)",
        summed("float32"),
        ("1.0014 times the expected",),
    ),
    "repeated indices": (
        "def add(self, dim, index, source, alpha, out):\n    total = wide(self).copy()\n    total[index] += source\n"
        "    store(out, total)",
        repeated(),
        ("only where index repeats an index",),
    ),
    "NaN lost": (NEG + "out[...] = -np.nan_to_num(self)", unary("neg", SPECIAL, -SPECIAL), ("NaN is lost",)),
    "NaN made": (
        NEG + "out[...] = -self * np.inf / np.inf",
        unary("neg", [2.0, 3.0], [-2.0, -3.0]),
        ("NaN where none is",),
    ),
    "zero's sign": (
        NEG + "out[...] = 0 - self",
        unary("neg", np.float32([1, 0, 2]), [-1.0, -0.0, -2.0]),
        ("the sign of zero",),
    ),
    "denormals": (
        NEG + "out[...] = np.where(np.abs(self) < 1e-37, 0, -self)",
        unary("neg", np.float32([1e-40, 1]), [-np.float32(1e-40).astype(float), -1.0]),
        ("denormal results are flushed",),
    ),
    "sign lost": (ADD + "store(out, np.abs(total))", added(numbers(50)), ("the sign is lost",)),
    "overflow": (
        NEG + "out[...] = -(self * np.float32(1e5)) / np.float32(1e5)",
        unary("neg", np.float32([1e35, 1]), [-np.float32(1e35).astype(float), -1.0]),
        ("an intermediate result overflows",),
    ),
    "edges": (
        NEG + "out[...] = -self; out[:, 0] = 7",
        unary("neg", numbers(6, 5), -numbers(6, 5)),
        ("at the start of dimension 1",),
    ),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrariesTarget]:
    """The host chip with a library for each planted mistake."""
    folder = tmp_path_factory.mktemp("planted")
    paths = [str(write_library(folder, name.replace(" ", "_"), kernel(name))) for name in PLANTED]
    target = LibrariesTarget(isthmus.drivers.find("host").candidates[0], paths)
    yield target
    target.device.close()


def kernel(name: str) -> str:
    body, planted, _ = PLANTED[name]
    body = body.replace(", context", "")
    head = "from isthmus.opset.library import memory_at\n"
    head += f'register = library.operator("{planted.operator}", dtypes=NUMBERS, strided=True)\n'
    return head + (body if "@register" in body else f"@register\n{body}")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named(name: str, target: LibrariesTarget) -> None:
    _, planted, words = PLANTED[name]
    calls = dict(target.calls(schema_of(planted.operator), planted))
    with np.errstate(all="ignore"):
        outcome = calls[name.replace(" ", "_")]()
    assert outcome.status == "failed", outcome
    assert all(word in outcome.guess for word in words), outcome.guess or outcome.message


def test_a_right_kernel_has_no_diagnosis(tmp_path: Path) -> None:
    body = '@library.operator("aten::add.Tensor", dtypes=NUMBERS)\n' + ADD.replace(", context", "")
    path = write_library(tmp_path, "fine", body + "store(out, total)")
    target = LibrariesTarget(isthmus.drivers.find("host").candidates[0], [str(path)])
    ((_, call),) = target.calls(schema_of("aten::add.Tensor"), added(numbers(50)))
    outcome = call()
    assert (outcome.status, outcome.guess, outcome.seen) == ("passed", "", [])
    target.device.close()


def test_a_kernel_without_inputs_has_no_stale_cache(tmp_path: Path) -> None:
    late = "def arange(start, end, step, out):\n    out[...] = np.trunc(start + step * np.arange(len(out)))"
    path = write_library(
        tmp_path, "late", f"@library.operator('aten::arange.start_step', dtypes=NUMBERS)\n{late}"
    )
    target = LibrariesTarget(isthmus.drivers.find("host").candidates[0], [str(path)])
    planted = case("arange.start_step", [-2.9, 3.7, 1.6], np.arange(-2, 3), "int64")
    ((_, call),) = target.calls(schema_of("aten::arange.start_step"), planted)
    outcome = call()
    assert outcome.status == "failed" and "stale" not in outcome.guess, outcome
    target.device.close()
