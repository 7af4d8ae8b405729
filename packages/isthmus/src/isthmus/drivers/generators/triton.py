"""Runs of pointwise operators as Triton kernels.

The Triton backend of the chip's maker compiles them where it is active. Elsewhere Triton's interpreter runs them in
the calling thread, which is slow; the CPU must address the chip's memory.

A step computes in float32 (float64 for float64 operands), int32 or int64, and is rounded once to its dtype. A single
addition, product, quotient or square root is rounded as in the C kernels. Fusion to multiply-add is off where the
backend has that option.
"""

import functools
import linecache
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

from isthmus.drivers.generators.expressions import Printer
from isthmus.drivers.libdevice import FUNCTIONS, lock
from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST, STRIDED, address_of
from isthmus.opset.pointwise import Kernel, Run, Step, Value

_BLOCK, _INTERPRETED_BLOCK = 1024, 2**16  # elements per program
_NVIDIA_AND_AMD = ("nvidia", "amd")  # the backends in Triton's own package: their devices are CUDA's


def vendor_backend() -> Any:
    """The backend of the chip's maker (entry point ``triton.backends``) whose driver is active, or None."""
    from triton.backends import backends

    others = (each for name, each in backends.items() if name not in _NVIDIA_AND_AMD)
    return next((each for each in others if each.driver.is_active()), None)


def generate(runs: Sequence[Run]) -> list[Kernel]:
    """One kernel per run; it is compiled when it is called first with tensors of some layout."""
    native = vendor_backend() is not None
    launcher = _Compiled if native else _Interpreted
    return [Kernel(launcher(run), STRIDED if native else HOST | STRIDED) for run in runs]


# ---- A call


class _Loops(NamedTuple):
    """The loops over the tensors of a call, outermost first.

    Attributes:
        sizes: of the loops.
        strides: for each tensor one per loop, in elements; 0 where the tensor broadcasts.
    """

    sizes: list[int]
    strides: list[list[int]]


def _loops(tensors: Sequence[Any], out: Any) -> _Loops:
    """Dimensions in the order of an output's strides, merged where all tensors allow it."""
    shape, order = out.shape, sorted(range(len(out.shape)), key=lambda d: -out.strides[d])
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in tensors]
    for d in (d for d in order if shape[d] != 1):
        steps = [_stride(each, d - len(shape)) for each in tensors]
        if sizes and all(row[-1] == step * shape[d] for row, step in zip(strides, steps, strict=True)):
            sizes[-1] *= shape[d]
            for row, step in zip(strides, steps, strict=True):
                row[-1] = step
        else:
            sizes.append(shape[d])
            for row, step in zip(strides, steps, strict=True):
                row.append(step)
    return _Loops(sizes or [1], strides if sizes else [[0] for _ in tensors])


def _stride(tensor: Any, d: int) -> int:
    """Stride of a dimension counted from the last one; 0 where the tensor broadcasts."""
    return 0 if -d > len(tensor.shape) or tensor.shape[d] == 1 else tensor.strides[d]


class _Launcher:
    """The function of a kernel: takes the address of the context, the inputs and the outputs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._functions: dict[int, Callable[..., None]] = {}  # keyed by number of loops

    def __call__(self, context: int, *tensors: Any) -> None:
        loops = _loops(tensors, tensors[len(self._run.inputs)])
        count = math.prod(loops.sizes)
        if not count:
            return
        depth = len(loops.sizes)
        if depth not in self._functions:
            self._functions[depth] = self._made(_function(self._run, depth, self._names()))
        furthest = (sum((n - 1) * s for n, s in zip(loops.sizes, row, strict=True)) for row in loops.strides)
        index = tl.int64 if max(count, *furthest) >= 2**31 - _INTERPRETED_BLOCK else tl.int32
        numbers = [count, *loops.sizes[1:], *(stride for row in loops.strides for stride in row)]
        self._launch(self._functions[depth], [address_of(each) for each in tensors], numbers, index)

    def _names(self) -> dict[str, Any]:
        """Return the names that a kernel's source refers to, other than ``tl``."""
        raise NotImplementedError

    def _made(self, function: Callable[..., None]) -> Any:
        return function

    def _launch(self, function: Any, addresses: list[int], numbers: list[int], index: tl.dtype) -> None:
        raise NotImplementedError


class _Pointer:
    """An argument of a compiled kernel: an address and the dtype it points to."""

    def __init__(self, address: int, dtype: str) -> None:
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


class _Compiled(_Launcher):
    def _names(self) -> dict[str, Any]:
        from triton.language.extra import libdevice

        return {"libdevice": libdevice, "widen": triton.jit(widen), "narrow": triton.jit(narrow)}

    def _made(self, function: Callable[..., None]) -> Any:
        return triton.jit(function)

    def _launch(self, function: Any, addresses: list[int], numbers: list[int], index: tl.dtype) -> None:
        values = (*range(len(self._run.inputs)), *self._run.outputs)
        pointers = [
            _Pointer(address, _IN_MEMORY.get(self._run.dtype(i), self._run.dtype(i)))
            for address, i in zip(addresses, values, strict=True)
        ]
        grid = (triton.cdiv(numbers[0], _BLOCK),)
        function[grid](*pointers, *numbers, index, _BLOCK, **_options())


@functools.cache
def _options() -> dict[str, bool]:
    """Options of launches: no multiply-add in place of a product and a sum."""
    target = triton.runtime.driver.active.get_current_target()
    known = triton.compiler.make_backend(target).parse_options({})
    return {"enable_fp_fusion": False} if hasattr(known, "enable_fp_fusion") else {}


class _Interpreted(_Launcher):
    def _names(self) -> dict[str, Any]:
        return {"libdevice": _NumPy(), "widen": widen, "narrow": narrow}

    def _launch(self, function: Any, addresses: list[int], numbers: list[int], index: tl.dtype) -> None:
        block = min(_INTERPRETED_BLOCK, triton.next_power_of_2(numbers[0]))
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        with lock, np.errstate(all="ignore"):
            launch = interpreter.GridExecutor(function, names, (triton.cdiv(numbers[0], block),))
            launch(*map(_address, addresses), *numbers, index, block)


def _address(value: int) -> tl.tensor:
    """An argument of the interpreter, which makes a small int a 32-bit number."""
    return tl.tensor(interpreter.TensorHandle(np.array([value], np.uint64), tl.uint64), tl.uint64)


class _NumPy:
    """``libdevice`` in the interpreter."""

    def __getattr__(self, name: str) -> Callable[..., tl.tensor]:
        def call(*arguments: tl.tensor) -> tl.tensor:
            data = FUNCTIONS[name](*(each.handle.data for each in arguments))
            first = arguments[0]
            handle = interpreter.TensorHandle(data.astype(first.handle.data.dtype), first.dtype)
            return tl.tensor(handle, first.type)

        return call


# ---- The source of a kernel

_IN_MEMORY = {"bool": "uint8", "bfloat16": "uint16"}


def widen(bits):  # type: ignore[no-untyped-def]
    """The float32 of bfloat16 bits."""
    return (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)


def narrow(x):  # type: ignore[no-untyped-def]
    """The bfloat16 bits nearest to a float32, ties to even; Triton's interpreter would truncate."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return tl.where(x == x, rounded, (bits >> 16) | 0x40).to(tl.uint16)  # noqa: PLR0124 - NaN stays NaN


def _function(run: Run, depth: int, names: dict[str, Any]) -> Callable[..., None]:
    """The kernel as a Python function, whose source Triton can read."""
    source = source_of(run, depth)
    file = f"<{run.name}_{depth}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"tl": tl, "__name__": __name__, **names}
    exec(compile(source, file, "exec"), namespace)
    function: Callable[..., None] = namespace[run.name]
    return function


def source_of(run: Run, depth: int) -> str:
    """The kernel of a run for tensors of ``depth`` loops.

    Its arguments: the address of each tensor, the number of elements, the sizes of the loops but the outermost, and
    for each tensor its strides.
    """
    count = len(run.inputs)
    values = (*range(count), *run.outputs)
    strides = [[f"s{k}_{d}" for d in range(depth)] for k in range(len(values))]
    parameters = [
        *(f"p{k}" for k in range(len(values))), "count", *(f"n{d}" for d in range(1, depth)),
        *(name for row in strides for name in row), "INDEX: tl.constexpr", "BLOCK: tl.constexpr",
    ]  # fmt: skip
    lines = ["i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)", "inside = i < count"]
    for d in range(depth - 1, 0, -1):
        lines += [f"i{d} = i % n{d}", f"i = i // n{d}"]
    places = [
        f"p{k}.to(tl.pointer_type(tl.{_IN_MEMORY.get(run.dtype(value), run.dtype(value))})) + "
        + " + ".join(f"i{d or ''} * {strides[k][d]}" for d in range(depth))
        for k, value in enumerate(values)
    ]
    for k, dtype in enumerate(run.inputs):
        lines.append(f"v{k} = {_load_text(f'tl.load({places[k]}, inside)', dtype)}")
    for k, step in enumerate(run.steps, count):
        lines.append(f"v{k} = {_round(_expression(run, step), step.dtype)}")
    for k, value in enumerate(run.outputs, count):
        lines.append(f"tl.store({places[k]}, {_store_text(f'v{value}', run.dtype(value))}, inside)")
    return "\n    ".join([f"def {run.name}({', '.join(parameters)}):", *lines]) + "\n"


def _wide_dtype(dtype: str) -> str:
    """The dtype in which values of a dtype are computed."""
    if dt.DTYPES[dtype].kind == "float":
        return "tl.float64" if dtype == "float64" else "tl.float32"
    return "tl.int64" if dtype == "int64" else "tl.int32"


def _load_text(text: str, dtype: str) -> str:
    if dtype == "bfloat16":
        return f"widen({text})"
    return f"({text} != 0).to(tl.int32)" if dtype == "bool" else f"{text}.to({_wide_dtype(dtype)})"


def _store_text(text: str, dtype: str) -> str:
    return f"narrow({text})" if dtype == "bfloat16" else f"{text}.to(tl.{_IN_MEMORY.get(dtype, dtype)})"


def _round(text: str, dtype: str) -> str:
    """A wide value as one that the dtype can hold."""
    if dtype == "bool":
        return f"({text} != 0).to(tl.int32)"
    if dtype == "bfloat16":
        return f"widen(narrow({text}.to(tl.float32)))"
    return f"{text}.to(tl.{dtype}).to({_wide_dtype(dtype)})"


def _expression(run: Run, step: Step) -> str:
    names = {name: _operand(run, step, operand) for name, operand in step.operands.items()}
    return _Printer(names, _wide_dtype(step.compute)).text(step.expression)


def _operand(run: Run, step: Step, operand: Value | bool | int | float) -> str:
    if not isinstance(operand, Value):
        return _number(operand, _wide_dtype(step.compute))
    name, dtype = f"v{operand.position}", run.dtype(operand.position)
    return name if dtype == step.compute else _round(f"{name}.to({_wide_dtype(step.compute)})", step.compute)


def _number(number: float, wide: str) -> str:
    value = repr(float(number)) if "float" in wide else repr(int(number))
    if value == "-0.0":  # Triton fills with 0 for it
        return f"({_number(0, wide)} * {_number(-1, wide)})"
    return f"tl.full((BLOCK,), {value if value[-1].isdigit() else f'float({value!r})'}, {wide})"


_OF_TRITON = "exp exp2 log log2 sin cos erf floor ceil abs".split()


class _Printer(Printer):
    """Prints expressions whose operands have one wide dtype."""

    def __init__(self, names: dict[str, str], wide: str) -> None:
        super().__init__(names, functools.partial(_number, wide=wide), self._called)
        self._wide = wide

    def binary(self, sign: str, left: str, right: str) -> str:
        if sign == "/" and self._wide == "tl.float32":
            return f"tl.div_rn({left}, {right})"  # `/` may be approximate
        return super().binary(sign, left, right)

    def negative(self, operand: str) -> str:
        return f"({operand} * {self._number(-1)})"  # Triton's negation is 0 - x

    def _called(self, name: str, arguments: list[str]) -> str:
        first, listed = arguments[0], ", ".join(arguments)
        if name == "where":
            return f"tl.where({first} != 0, {', '.join(arguments[1:])})"
        if name in ("maximum", "minimum"):
            other = arguments[1]
            beyond = f"({other} {'>' if name == 'maximum' else '<'} {first}) | ({other} != {other})"
            return f"tl.where({beyond}, {other}, {first})"
        if name == "sqrt" and self._wide == "tl.float32":
            return f"tl.sqrt_rn({first})"
        if name == "isnan":
            return f"({first} != {first})"
        if name == "isinf":
            return f"(tl.abs({first}) == {_number(math.inf, self._wide)})"
        return f"{'tl' if name in (*_OF_TRITON, 'sqrt') else 'libdevice'}.{name}({listed})"
