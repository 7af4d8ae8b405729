"""Arithmetic that Triton's interpreter gets wrong.

It keeps bfloat16 as uint16 and computes with those integers. Here each operation converts to float32 and rounds its
result to the nearest bfloat16, ties to even, as GPUs do.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from isthmus_common.patches import Scope

_ARITHMETIC = (
    "fadd fsub fmul fdiv frem precise_divf minimumf minnumf maximumf maxnumf clampf fma dot cos exp exp2 floor ceil "
    "log log2 precise_sqrt sqrt sin erf rsqrt "
    "fcmpOLT fcmpOGT fcmpOLE fcmpOGE fcmpOEQ fcmpONE fcmpULT fcmpUGT fcmpULE fcmpUGE fcmpUEQ fcmpUNE"
).split()
_REASON = "computes with the integers that represent bfloat16, and truncates to it"
_BUILDER = "triton.runtime.interpreter.InterpreterBuilder"


def install(scope: Scope) -> None:
    """Correct the arithmetic and the conversions."""
    for name, function in (("minnumf", numpy.fmin), ("maxnumf", numpy.fmax)):
        scope.replace(
            f"{_BUILDER}.create_{name}", _binary(function), "propagates NaN, which Triton ignores here"
        )
    for name in _ARITHMETIC:
        scope.replace(f"{_BUILDER}.create_{name}", _in_float32, _REASON)
    scope.replace(f"{_BUILDER}.cast_impl", lambda _: _cast, _REASON, expects=("self", "src", "dst_type"))
    scope.replace(f"{_BUILDER}.create_fp_to_fp", _rounding, _REASON, expects=("self", "src", "dst_type"))
    scope.replace(f"{_BUILDER}.create_atomic_rmw", _adding, _REASON, expects=("self", "rmwOp", "ptr", "val"))


def _binary(function: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: lambda self, lhs, rhs: self.binary_op(lhs, rhs, function)


def widen(data: Any) -> Any:
    """The float32 array of an array of bfloat16 bits (uint16)."""
    return (data.astype(numpy.uint32) << 16).view(numpy.float32)


def narrow(data: Any) -> Any:
    """The bfloat16 bits (uint16) nearest to each float32, ties to even."""
    bits = data.astype(numpy.float32, copy=False).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return numpy.where(numpy.isnan(data), 0x7FC0, rounded).astype(numpy.uint16)


def _is_bfloat16(value: Any) -> bool:
    """Whether it is a handle of bfloat16; comparisons keep the dtype of their operands over bool data."""
    return (
        isinstance(value, TensorHandle)
        and value.data.dtype == numpy.uint16
        and value.dtype.scalar is tl.bfloat16
    )


def _widen(value: Any) -> Any:
    return TensorHandle(widen(value.data), tl.float32) if _is_bfloat16(value) else value


def _in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """The result has the dtype of the last operand, which is the accumulator of dot."""

    @functools.wraps(method)
    def compute(self: Any, *args: Any) -> Any:
        flags = [_is_bfloat16(each) for each in args if isinstance(each, TensorHandle)]
        result = method(self, *map(_widen, args))
        if result.data.dtype == bool:
            return TensorHandle(result.data, tl.int1)
        return TensorHandle(narrow(result.data), tl.bfloat16) if flags[-1] else result

    return compute


def _cast(self: Any, src: TensorHandle, dst_type: Any) -> TensorHandle:
    """Convert between dtypes."""
    data = _widen(src).data
    if dst_type.scalar is tl.bfloat16:
        return TensorHandle(narrow(data.astype(numpy.float32)), tl.bfloat16)
    return TensorHandle(data.astype(interpreter._get_np_dtype(dst_type)), dst_type.scalar)


def _rounding(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def convert(self: Any, src: TensorHandle, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        eight_bits = 8 in (src.dtype.scalar.primitive_bitwidth, dst_type.scalar.primitive_bitwidth)
        if eight_bits or rounding_mode == ir.ROUNDING_MODE.RTZ:
            return method(self, src, dst_type, rounding_mode)
        return _cast(self, src, dst_type)

    return convert


def _call_without_policies(access: Callable[..., Any], *given: Any) -> Any:
    """Call a load or a store with None for the policies of caches, of which Triton 3.9 has one and 3.7 two."""
    pointers, *rest = given
    policies = [None] * (len(inspect.signature(access).parameters) - len(given))
    return (
        access(pointers, *policies, *rest) if access.__name__ == "create_load" else access(*given, *policies)
    )


def _adding(method: Callable[..., Any]) -> Callable[..., Any]:
    """Add values one after another, as atomics do: pointers may repeat."""

    @functools.wraps(method)
    def atomic(self: Any, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if not (rmwOp == ir.ATOMIC_OP.FADD and _is_bfloat16(val)):
            return method(self, rmwOp, ptr, val, mask, sem, scope)
        before = numpy.zeros_like(val.data)
        for at in zip(*numpy.nonzero(numpy.broadcast_to(mask.data, val.data.shape)), strict=True):
            one = TensorHandle(numpy.array([ptr.data[at]]), ptr.dtype)
            found = _call_without_policies(self.create_load, one, False)
            total = self.create_fadd(found, TensorHandle(numpy.array([val.data[at]]), tl.bfloat16))
            _call_without_policies(self.create_store, one, total)
            before[at] = found.data[0]
        return TensorHandle(before, val.dtype.scalar)

    return atomic
