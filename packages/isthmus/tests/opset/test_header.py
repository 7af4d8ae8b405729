"""isthmus_ops.h: current, compiles as C and C++, refuses wrong kernels, and unpacks calls as operators.h says."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus.conformance.calling import Any_, DeviceTensor, Frame
from isthmus.drivers import interface
from isthmus.opset import header, operators, semantics
from isthmus.opset.library import Context
from isthmus.opset.schema import parse
from tests.helpers.conformance_jobs import conform
from tests.helpers.native import compile_text
from tools.repository import ROOT

INVALID_ARGUMENT = 2
INT = 1  # kTVMFFIInt
CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(Any_))
Entry = interface.operators_header().structures["isthmus_operator"]

TABLE = """
#include "isthmus_ops.h"
static isthmus_status my_relu(isthmus_context* context, const DLTensor* self, DLTensor* out) {
  return context && self && out ? ISTHMUS_OK : ISTHMUS_INTERNAL;
}
const isthmus_operator* table(void);
const isthmus_operator* table(void) {
  static const isthmus_operator operators[] = {
      ISTHMUS_OPERATOR(OPERATOR, my_relu, ISTHMUS_DTYPE(FLOAT32), ISTHMUS_OPERATOR_STRIDED),
  };
  return operators;
}
"""

# An argument of each kind; the kernel reports through explain() what it got.
PROBE = (
    "aten::probe(Tensor self, Tensor? other, Scalar s, Scalar? t, int i, int? default, float f, bool b, bool? c, "
    "str d, int[] e, int[]? k, Tensor[] h, ScalarType? dtype=None, bool pin_memory=False) -> (Tensor, Tensor[])"
)
MASKED = "aten::masked(Tensor self, bool[2] output_mask) -> (Tensor, Tensor)"
KERNELS = r"""
#include <stdio.h>
#include "isthmus_ops.h"
static isthmus_status probe(isthmus_context* context, const DLTensor* self, const DLTensor* other, isthmus_scalar s,
                            const isthmus_scalar* t, int64_t i, const int64_t* default_, double f, bool b,
                            const bool* c, const char* d, isthmus_list e, isthmus_list k, isthmus_list h,
                            DLTensor* out0, isthmus_list out1) {
  char text[256];
  snprintf(text, sizeof(text), "%d %s %d:%g %s %d %s %g %d %s %s %d:%d %d %d:%d %d:%d,%d", self->ndim,
           other ? "other" : "-", (int)s.kind, s.as_double, t ? "t" : "-", (int)i, default_ ? "default" : "-", f,
           (int)b, c ? (*c ? "true" : "false") : "-", d, (int)e.size, (int)isthmus_list_int(e, 1), (int)k.size,
           (int)h.size, isthmus_list_tensor(h, 0)->ndim, (int)out1.size, out0->ndim,
           isthmus_list_output(out1, 0)->ndim);
  context->explain(context, "probe", text);
  return ISTHMUS_UNSUPPORTED;
}
static isthmus_status masked(isthmus_context* context, const DLTensor* self, isthmus_list mask, DLTensor* out0,
                             DLTensor* out1) {
  context->explain(context, self && mask.size == 2 && !out0 ? "out0" : "", out1 ? "only out1" : "none");
  return ISTHMUS_OK;
}
__attribute__((visibility("default"))) const isthmus_operator* table(void);
const isthmus_operator* table(void) {
  static const isthmus_operator operators[] = {
      ISTHMUS_OPERATOR(aten_probe, probe, ISTHMUS_DTYPE(FLOAT32), 0),
      ISTHMUS_OPERATOR(aten_masked, masked, ISTHMUS_DTYPE(FLOAT32), 0),
  };
  return operators;
}
"""


@pytest.mark.parametrize("standard", ["c11", "c++17", "c++20"])
def test_compiles_without_a_warning(standard: str, tmp_path: Path) -> None:
    done = compile_text(TABLE.replace("OPERATOR,", "aten_relu,", 1), tmp_path / "table.so", standard)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("standard", ["c11", "c++17"])
@pytest.mark.parametrize("operator", ["aten_add_Tensor", "aten_no_such"])
def test_kernel_of_another_prototype_does_not_compile(standard: str, operator: str, tmp_path: Path) -> None:
    done = compile_text(TABLE.replace("OPERATOR,", f"{operator},", 1), tmp_path / "table.so", standard)
    assert done.returncode != 0
    assert operator in done.stderr


def test_the_installed_header_is_that_of_the_opset() -> None:
    installed = Path(isthmus.include_path()) / "isthmus_ops.h"
    assert installed.read_text() == header.opset(), "run make setup"


def test_semantics_are_those_of_operators_of_the_opset() -> None:
    names = {*operators(), *(name.partition(".")[0] for name in operators())}
    assert set(semantics.SEMANTICS) - names == set()


def test_an_operator_states_its_semantics() -> None:
    found = header.opset().split("/* aten::index_put(")[1].partition("*/")[0].splitlines()
    assert " * of a repeated index any one value; with accumulate all are added" in found
    assert " * indices: -size of self to size of self - 1; others are errors " in found


@pytest.mark.parametrize(
    ("operator", "stated"),
    [
        ("aten::bernoulli_.float", "p: 0 to 1; others are errors"),
        ("aten::mm", "mat2 of another dtype is an error"),
        ("aten::amax", "nothing to reduce is an error"),
    ],
)
def test_an_operator_states_which_calls_are_errors(operator: str, stated: str) -> None:
    assert stated in header.opset().split(f"/* {operator}(")[1].partition("*/")[0]


def test_writing_the_header_needs_no_torch() -> None:
    program = "import sys; sys.modules['torch'] = None; from isthmus.opset import header; header.opset()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ---- Unpackers -----------------------------------------------------------------------------------------


class Caller:
    """Call an entry of the table like the framework."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.said: list[tuple[str, str]] = []
        explain = Context._fields_[5][1](lambda _, name, why: self.said.append((name.decode(), why.decode())))
        self._context = Context(ctypes.sizeof(Context), 0, None, 0, Context._fields_[4][1](), explain)

    def __call__(self, entry: int, *arguments: Any, context: int | None = None) -> int:
        address = ctypes.addressof(self._context) if context is None else context
        frame = Frame((1, 0))
        for value in (address, *arguments):
            frame.push(value)
        items, result = (Any_ * len(frame._items))(*frame._items), Any_()
        row = self._table[entry]
        assert CALL(row.call)(row.function, items, len(items), result) == 0
        assert result.type_index == INT
        return int(result.v_int64)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("header")
    (folder / "isthmus_ops.h").write_text(header.render([parse(PROBE), parse(MASKED)]))
    done = compile_text(KERNELS, folder / "kernels.so", first=folder)
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "kernels.so"))
    library.table.restype = ctypes.POINTER(Entry)
    yield library.table()


@pytest.fixture
def call(table: Any) -> Caller:
    return Caller(table)


ONE, TWO = (DeviceTensor(0, "float32", (1,) * rank, (1,) * rank) for rank in (1, 2))
# Lists are their length, then their items.
FULL = [ONE, TWO, 2.5, 3, 7, 9, 0.5, True, False, "tanh", 2, 10, 11, 1, 4, 1, TWO, ONE, 1, TWO]
BARE = [ONE, None, 3, None, 7, None, 2, False, None, "none", 2, 10, 11, None, 1, TWO, ONE, 1, TWO]


def test_names_and_sets_of_dtypes(table: Any) -> None:
    assert table[0].name == b"aten::probe"
    assert table[0].dtypes == 1 << 7


def test_every_kind_of_argument(call: Caller) -> None:
    assert call(0, *FULL) == 5  # the kernel's return value
    assert call.said == [("probe", "1 other 1:2.5 t 7 default 0.5 1 false tanh 2:11 1 1:2 1:1,2")]


def test_absent_arguments(call: Caller) -> None:
    call(0, *BARE)
    assert call.said == [("probe", "1 - 0:3 - 7 - 2 0 - none 2:11 -1 1:2 1:1,2")]


def test_an_output_that_is_masked_out_is_null(call: Caller) -> None:
    assert call(1, ONE, 2, False, True, None, TWO) == 0
    assert call.said == [("out0", "only out1")]


@pytest.mark.parametrize(
    "place, value, argument, why",
    [
        (0, None, "self", "is absent; a tensor is needed"),
        (0, 5, "self", "is not a tensor"),
        (2, "x", "s", "is not a number"),
        (4, 1.5, "i", "is not an integer"),
        (6, ONE, "f", "is not a number"),
        (9, 1, "d", "is not a string"),
        (10, 99, "e", "is a list longer than the call"),
        (10, -3, "e", "is a list longer than the call"),
    ],
)
def test_wrong_arguments_are_named(call: Caller, place: int, value: Any, argument: str, why: str) -> None:
    arguments = [*FULL]
    arguments[place] = value
    assert call(0, *arguments) == INVALID_ARGUMENT
    assert call.said == [(argument, why)]


def test_wrong_number_of_arguments(call: Caller) -> None:
    assert call(1, ONE, 2, False, True, None) == INVALID_ARGUMENT
    assert call(1, ONE, 2, False, True, None, TWO, TWO) == INVALID_ARGUMENT
    assert call.said == [("out1", "is missing"), ("", "more arguments than the schema has")]


def test_a_call_without_a_context_is_refused(call: Caller) -> None:
    assert call(1, ONE, 2, False, True, None, TWO, context=0) == INVALID_ARGUMENT
    assert call.said == []


def test_names_that_c_reserves() -> None:
    text = header.render([parse("aten::f(Tensor self, int default, int out) -> Tensor")])
    assert "int64_t default_, int64_t out, DLTensor* out_out" in " ".join(text.replace("\\\n", "").split())


def test_a_null_function_is_refused(table: Any) -> None:
    caller = Caller([Entry(name=table[1].name, dtypes=1, call=table[1].call)])
    assert caller(0, ONE, 2, False, True, None, TWO) == INVALID_ARGUMENT
    assert caller.said == [("", "the library has a null function for it")]


def test_the_library_of_the_documentation_passes_the_suite(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "chip-makers" / "write-an-operator-library.md").read_text()
    source = page.partition("```c\n")[2].partition("```")[0]
    done = compile_text(source, tmp_path / "libmine.so")
    assert done.returncode == 0, done.stderr
    chosen = ("--operators", "aten::relu")
    made = conform("generate", "--output", tmp_path / "golden", *chosen)
    assert made.returncode == 0, made.stderr
    judged = conform(
        "run", "--driver", "host", "--library", tmp_path / "libmine.so", *chosen,
        "--golden", tmp_path / "golden", "--output", tmp_path / "report",
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "passed: driver host, 1 operator," in judged.stdout
