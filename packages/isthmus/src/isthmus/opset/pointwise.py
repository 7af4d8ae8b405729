"""Pointwise operators as expressions, and runs of them: what a code generator compiles to one kernel.

A generator is a Python file that a chip's ``driver.toml`` names (``code_generator``), with a function

    def generate(runs: Sequence[Run]) -> list[Kernel]

that returns one kernel per run. Its kernels follow the calling convention of operators.h: the context, the inputs of
the run, then its outputs; inputs broadcast against the outputs, which all have one shape. Constants of the file:
``SHORTEST``, the number of operators from which a run is worth a kernel (default 2), and ``MOST_OPERANDS``, the
number of inputs and outputs that a kernel takes (default 60). It may import modules beside it.

An expression is Python's syntax over parameters of the operator's schema and the functions in ``FUNCTIONS``. Its
operands have one dtype, the step's ``compute``; a value of lower precision than float64 is best computed in a wider
dtype and rounded once to the step's ``dtype``, as kernels of the opset do.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

# Functions of one number; where(condition, yes, no) and the last row, of two. maximum and minimum propagate NaN and
# return the first of two equal numbers, of which zeros may differ.
FUNCTIONS = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "floor ceil trunc rint abs isnan isinf where "
    "maximum minimum atan2 pow fmod".split()
)

_SIGMOID = "(1 / (1 + exp(-{0})))"
_LERP = "where(abs(weight) < 0.5, self + weight * (end - self), end - (end - self) * (1 - weight))"
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DERIVED = {
    "relu": "where(self < 0, 0, self)",
    "sigmoid": _SIGMOID.format("self"),
    "silu": f"self * {_SIGMOID.format('self')}",
    "silu_backward": "grad_output * {0} * (1 + self * (1 - {0}))".format(_SIGMOID.format("self")),
    "sigmoid_backward": "grad_output * (1 - output) * output",
    "tanh_backward": "grad_output * (1 - output * output)",
    "threshold_backward": "where(self <= threshold, 0, grad_output)",
    "leaky_relu": "where(self > 0, self, self * negative_slope)",
    "reciprocal": "1 / self",
    "rsqrt": "1 / sqrt(self)",
    "neg": "-self",
    "abs": "abs(self)",
    "round": "rint(self)",
    "maximum": "maximum(self, other)",
    "minimum": "minimum(self, other)",
    "atan2": "atan2(self, other)",
    "addcmul": "self + value * tensor1 * tensor2",
    "addcdiv": "self + value * tensor1 / tensor2",
    "lerp.Scalar": _LERP,
    "lerp.Tensor": _LERP,
    "where.self": "where(condition, self, other)",
    "masked_fill.Scalar": "where(mask, value, self)",
    "logical_not": "self == 0",
    "logical_and": "(self != 0) & (other != 0)",
    "logical_or": "(self != 0) | (other != 0)",
    "logical_xor": "(self != 0) != (other != 0)",
    "rsub.Scalar": "other - alpha * self",
    "pow.Tensor_Tensor": "pow(self, exponent)",
    "pow.Tensor_Scalar": "pow(self, exponent)",
    "pow.Scalar": "pow(self, exponent)",
    "_to_copy": "self",
    "clone": "self",
}
_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
    "floor ceil trunc isnan isinf"
)
# Overload of ATen, without the namespace -> its expression.
EXPRESSIONS: dict[str, str] = {
    **_DERIVED,
    **{name: f"{name}(self)" for name in _UNARY.split()},
    **{f"{name}.{kind}": f"self {sign} alpha * other"
       for name, sign in (("add", "+"), ("sub", "-")) for kind in ("Tensor", "Scalar")},
    **{f"{name}.{kind}": f"self {sign} other"
       for name, sign in (("mul", "*"), ("div", "/")) for kind in ("Tensor", "Scalar")},
    **{f"{name}.{kind}": f"self {sign} other"
       for name, sign in _COMPARISONS.items() for kind in ("Tensor", "Scalar")},
    **{f"bitwise_{name}.{kind}": f"self {sign} other"
       for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")) for kind in ("Tensor", "Scalar")},
}  # fmt: skip
# These need an argument that selects the expression.
GELU = {
    "none": "self * (0.5 * erfc(-self / 1.4142135623730951))",
    "tanh": "self * (1 / (1 + exp(-1.5957691216057308 * (self + 0.044715 * self * self * self))))",
}
_GELU_SLOPE = {
    "none": "{cdf} + self * (exp(-0.5 * self * self) / 2.5066282746310002)",
    "tanh": "{cdf} + self * (2 * {cdf} * (1 - {cdf}) * 0.7978845608028654 * (1 + 0.134145 * self * self))",
}
GELU_BACKWARD = {
    kind: f"grad_output * ({slope.format(cdf=GELU[kind].removeprefix('self * '))})"
    for kind, slope in _GELU_SLOPE.items()
}


def expression_of(overload: str, arguments: dict[str, Any]) -> str | None:
    """The expression of a call, or None if the operator has none.

    Args:
        overload: of ATen, such as ``add.Tensor``.
        arguments: of the call, by name, with defaults.
    """
    if overload in ("gelu", "gelu_backward"):
        table = GELU if overload == "gelu" else GELU_BACKWARD
        return table.get(arguments["approximate"])
    if overload.startswith(("clamp", "hardtanh")):
        return _clamp(arguments)
    if overload == "pow.Tensor_Scalar" and arguments["exponent"] in (
        2,
        3,
    ):  # as PyTorch's kernels compute them
        return " * ".join(["self"] * int(arguments["exponent"]))
    return EXPRESSIONS.get(overload)


def _clamp(arguments: dict[str, Any]) -> str:
    low, high = (next((n for n in names if arguments.get(n) is not None), None) for names in _BOUNDS)
    expression = f"maximum(self, {low})" if low else "self"
    return f"minimum({expression}, {high})" if high else expression


_BOUNDS = (("min", "min_val"), ("max", "max_val"))


class Value(NamedTuple):
    """An operand that is an input of the run, or the result of an earlier step.

    Attributes:
        position: among the inputs, followed by the steps.
    """

    position: int


class Step(NamedTuple):
    """One operator of a run.

    Attributes:
        expression: over the operands' names.
        operands: by name: a :class:`Value` or a number.
        compute: dtype to which the values are converted first.
        dtype: of the result, to which it is rounded.
    """

    expression: str
    operands: dict[str, Value | bool | int | float]
    compute: str
    dtype: str


class Run(NamedTuple):
    """Pointwise operators that one kernel computes.

    Attributes:
        inputs: dtype of each input.
        steps: in the order of their calls.
        outputs: of the kernel: positions of values, as in :class:`Value`.
    """

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def name(self) -> str:
        """A name that equal runs share, valid in C and Python."""
        steps = [(s.expression, _plain(s.operands), s.compute, s.dtype) for s in self.steps]
        text = json.dumps([self.inputs, steps, self.outputs])
        return f"run_{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def dtype(self, index: int) -> str:
        """Dtype of a value."""
        count = len(self.inputs)
        return self.inputs[index] if index < count else self.steps[index - count].dtype


def _plain(operands: dict[str, Any]) -> list[Any]:
    return [(name, [x.position] if isinstance(x, Value) else repr(x)) for name, x in operands.items()]


class Kernel(NamedTuple):
    """The kernel that a generator returns for a run.

    Attributes:
        function: address of a ``TVMFFISafeCallType``, or a Python function that takes the address of the context and
            ``tvm_ffi.Tensor`` arguments (as ``raw`` operators of :mod:`isthmus.opset.library`).
        flags: ``ISTHMUS_OPERATOR_*`` of operators.h (``library.HOST``, ``library.STRIDED``).
        handle: first argument of the function at an address, such as the run's compiled program.
    """

    function: int | Callable[..., int | None]
    flags: int
    handle: int = 0
