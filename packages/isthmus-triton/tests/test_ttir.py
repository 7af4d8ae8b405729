"""Reading TTIR: types, names, regions, branches, lines of the source."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from isthmus_triton.ttir import Type, parse_type, read

MODULE = """
#loc = loc("kernel.py":3:0)
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32) {
    %c1 = arith.constant 1 : i32 loc(#loc1)
    %sum:2 = scf.for %i = %c1 to %n step %c1 iter_args(%a = %c1, %b = %n) -> (i32, i32)  : i32 {
      %d = arith.addi %a, %b : i32 loc(#loc2)
      scf.yield %b, %d : i32, i32 loc(#loc2)
    } loc(#loc2)
    %less = arith.cmpi slt, %sum#1, %n : i32 loc(#loc2)
    cf.cond_br %less, ^bb1, ^bb2(%sum#0 : i32) loc(#loc2)
  ^bb1:  // pred: ^bb0
    tt.return loc(#loc2)
  ^bb2(%e: i32 loc("e"(#loc))):  // pred: ^bb0
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<8x16x!tt.ptr<f32>> loc(#loc2)
    %v = tt.load %p : tensor<8x16x!tt.ptr<f32>> loc(#loc2)
    %r = "tt.reduce"(%v) <{axis = 1 : i32}> ({
    ^bb0(%l: f32 loc("l"(#loc)), %m: f32 loc("m"(#loc))):
      %o = arith.addf %l, %m : f32 loc(#loc3)
      tt.reduce.return %o : f32 loc(#loc3)
    }) : (tensor<8x16xf32>) -> tensor<8xf32> loc(#loc3)
    tt.return loc(#loc2)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("kernel.py":4:8)
#loc2 = loc("kernel.py":6:8)
#loc3 = loc(callsite("standard.py":290:12 at #loc2))
"""


def test_types():
    assert parse_type("i1") == Type(None, "i1")
    assert parse_type("!tt.ptr<bf16>") == Type(None, "bf16", True)
    assert parse_type("tensor<4x1x!tt.ptr<i64>>") == Type((4, 1), "i64", True)
    assert parse_type("tensor<32xf8E4M3FN>").elements == 32


def test_a_function_with_loops_branches_and_reductions():
    (kernel,) = read(MODULE)
    assert kernel.name == "kernel" and kernel.is_public
    assert [each.type for each in kernel.body.parameters] == [Type(None, "f32", True), Type(None, "i32")]
    names = [each.name for each in kernel.body.operations]
    assert names == [
        "arith.constant", "scf.for", "arith.cmpi", "cf.cond_br", "label", "tt.return", "label", "tt.splat", "tt.load",
        "tt.reduce", "tt.return",
    ]  # fmt: skip
    constant, loop, compared, branch, *_, load, reduction, _ = kernel.body.operations
    assert [each.type.element for each in loop.results] == ["i32", "i32"]
    assert loop.regions[0].operations[-1].operands == [
        loop.regions[0].parameters[2], loop.regions[0].operations[0].result,
    ]  # fmt: skip
    assert compared.operands[0] is loop.results[1] and compared.result.type == Type(None, "i1")
    assert branch.targets == [("bb1", 0), ("bb2", 1)] and branch.operands[1] is loop.results[0]
    assert load.result.type == Type((8, 16), "f32")
    assert reduction.attribute("axis") == "1" and reduction.result.type == Type((8,), "f32")
    assert [each.type for each in reduction.regions[0].parameters] == [Type(None, "f32")] * 2
    assert (constant.line, load.line, reduction.line) == ("kernel.py:4", "kernel.py:6", "standard.py:290")


def test_text_that_is_no_ttir_is_refused():
    with pytest.raises(ValueError, match="does not end"):
        read("tt.func public @kernel() {\n  tt.return\n")
