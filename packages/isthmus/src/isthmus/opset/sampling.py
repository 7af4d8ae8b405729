"""Test cases: tensors of every layout, with values that expose errors. NumPy only.

The generator of a case is seeded with the id of the case, so adding cases does not change the others.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Argument, Schema

PERIOD = 4093  # period of the values of large tensors; a prime, so that no power of two or size hides it
Values = np.ndarray[Any, np.dtype[Any]]
KINDS = ("contiguous", "strided", "zero-size", "0-dim", "broadcast", "large", "special")


@dataclass(frozen=True)
class Array:
    """A tensor of a case: a view of a storage.

    Attributes:
        storage: one-dimensional array of the dtype.
        shape: shape of the tensor.
        strides: strides in elements.
        offset: offset of the first element, in elements.
    """

    storage: np.ndarray[Any, Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> str:
        """PyTorch's name of the dtype."""
        return dt.name_of(self.storage.dtype)

    @property
    def view(self) -> np.ndarray[Any, Any]:
        """The tensor as a NumPy array over the storage."""
        strides = [stride * self.storage.itemsize for stride in self.strides]
        return np.ndarray(
            self.shape, self.storage.dtype, self.storage, self.offset * self.storage.itemsize, strides
        )

    def __repr__(self) -> str:
        return f"Array({self.dtype}, {self.shape}, strides {self.strides})"


@dataclass(frozen=True)
class Case:
    """One call of an operator.

    Attributes:
        operator: name of the operator.
        dtype: dtype under test.
        index: index among the cases of this operator and dtype.
        kind: one of :data:`KINDS`.
        arguments: all arguments of the schema by name: Array, list, number, str or None; dtypes by name.
        model: model whose scaled-down training shapes these are; or "".
        label: what a derived case varies, such as ``rank5-rotated-unaligned``; or "".
        output: layout of the outputs, of :mod:`isthmus.opset.derivation.layouts`, or several, which they have in
            turn, separated by spaces. Kernels that take no strides get contiguous outputs.
    """

    operator: str
    dtype: str
    index: int
    kind: str
    arguments: dict[str, Any] = field(repr=False)
    model: str = ""
    label: str = ""
    output: str = "contiguous"

    @property
    def id(self) -> str:
        """Unique id, such as ``aten::mm/bfloat16/3-strided``."""
        return f"{self.operator}/{self.dtype}/{self.index}-{self.kind}"


class Maker:
    """Creates the tensors and cases of one operator and dtype.

    Args:
        operator: name of the operator.
        dtype: dtype under test; the default dtype of tensors.
        seed: seed of the whole set.
    """

    def __init__(self, operator: str, dtype: str, seed: int = 0) -> None:
        from isthmus.opset import schema_of

        self.operator = operator
        self.dtype = dtype
        self.schema: Schema = schema_of(operator)
        self.kind_of_dtype = dt.DTYPES[dtype].kind
        self._seed = seed
        self._index = 0
        self.rng = self._generator()

    def _generator(self) -> np.random.Generator:
        name = f"{self._seed}/{self.operator}/{self.dtype}/{self._index}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))

    @property
    def is_float(self) -> bool:
        """Whether the dtype under test is floating point."""
        return self.kind_of_dtype == "float"

    @property
    def compute_dtype(self) -> str:
        """float64 if the dtype under test is float64, else float32."""
        return "float64" if self.dtype == "float64" else "float32"

    def tensor(
        self,
        *shape: int,
        low: float = -2.7,
        high: float = 3.1,
        layout: str = "contiguous",
        dtype: str | None = None,
    ) -> Array:
        """Tensor of random values in [low, high), in a layout of :func:`place`.

        Values of large tensors repeat with :data:`PERIOD`, so that golden data stay small.
        """
        name = dtype or self.dtype
        kind = dt.DTYPES[name].kind
        count = math.prod(shape)
        uniform = np.resize(self.rng.random(PERIOD if count > 2 * PERIOD else count), shape)
        if kind == "bool":
            return place((uniform < 0.6), layout)
        values = low + (high - low) * uniform
        if kind == "float":
            return place(quantize(values, name), layout)
        # Integers have a wider range than floats, to expose overflow and sign errors.
        floor = 0 if kind == "uint" else math.floor(4 * low)
        integers = np.floor(floor + (math.ceil(4 * high) - floor) * uniform)
        return place(integers.astype(dt.DTYPES[name].numpy), layout)

    def values(self, values: Any, dtype: str | None = None, layout: str = "contiguous") -> Array:
        """Tensor of the given values, rounded to the dtype."""
        return place(quantize(np.asarray(values), dtype or self.dtype), layout)

    def integers(
        self, *shape: int, low: int = 0, high: int, dtype: str = "int64", layout: str = "contiguous"
    ) -> Array:
        """Tensor of integers in [low, high): indices, labels, tokens."""
        drawn = np.floor(low + (high - low) * self.rng.random(shape))
        return place(drawn.astype(dt.DTYPES[dtype].numpy), layout)

    def mask(self, *shape: int, layout: str = "contiguous", share: float = 0.6) -> Array:
        """Bool tensor, True for the given share of its elements."""
        return place(self.rng.random(shape) < share, layout)

    def permutation(self, n: int) -> np.ndarray[Any, Any]:
        """The integers below n in random order."""
        return np.argsort(self.rng.random(n), kind="stable")

    def distinct(self, *shape: int, layout: str = "contiguous") -> Array:
        """Tensor of distinct elements, for operators that select: sort, topk, max."""
        count = math.prod(shape)
        order = self.permutation(count).reshape(shape)
        if self.dtype == "bool":
            return place(order % 2 == 1, layout)
        if not self.is_float:
            return place((order - count // 3).astype(dt.DTYPES[self.dtype].numpy), layout)
        # 16-bit floats: consecutive bit patterns from 0.25 on are distinct and ordered.
        if self.dtype in dt.HALVES:
            base = int(quantize(np.asarray(0.25), self.dtype).view(np.uint16))
            bits = (base + order // 2).astype(np.uint16) | ((order % 2) << 15).astype(np.uint16)
            return place(bits.view(dt.DTYPES[self.dtype].numpy), layout)
        return place(quantize((order - count / 3.0) * 0.37, self.dtype), layout)

    def case(self, kind: str, *args: Any, model: str = "", **kwargs: Any) -> Case:
        """Create a case from positional and keyword arguments; others have the schema's defaults.

        Raises:
            TypeError: a missing argument, or too many.
        """
        assert kind in KINDS, kind
        names = [argument.name for argument in self.schema.arguments]
        if len(args) > len(names) or set(kwargs) - set(names):
            raise TypeError(
                f"{self.operator}: expected arguments {names}, got {len(args)} positional and {list(kwargs)}"
            )
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        full = {
            a.name: given[a.name] if a.name in given else _default(a, self.operator)
            for a in self.schema.arguments
        }
        case = Case(self.operator, self.dtype, self._index, kind, full, model)
        self._index += 1
        self.rng = self._generator()
        return case


def quantize(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Round values from float64 to the dtype (to nearest even); overflow becomes infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dt.DTYPES[dtype].numpy)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def place(values: np.ndarray[Any, Any], layout: str = "contiguous") -> Array:
    """Place values in memory in a layout.

    ``contiguous``; ``transposed``: the last two dimensions swapped in memory; ``sliced``: every second element of a
    larger storage, at an offset; ``heads``: the two dimensions before the last swapped in memory, as in attention
    inputs; ``expanded``: the first dimension has stride 0 (its first row is repeated); ``channels_last``: the second
    dimension is innermost.
    """
    if layout == "contiguous" or values.ndim == 0:
        return Array(values.reshape(-1).copy(), values.shape, contiguous_strides(values.shape))
    if layout == "transposed":
        order = (*range(values.ndim - 2), values.ndim - 1, values.ndim - 2) if values.ndim > 1 else (0,)
        return _permuted(values, order)
    if layout == "heads":
        return _permuted(values, (*range(values.ndim - 3), values.ndim - 2, values.ndim - 3, values.ndim - 1))
    if layout == "channels_last":
        return _permuted(values, (0, *range(2, values.ndim), 1))
    if layout == "expanded":
        row = values[:1]
        strides = (0, *contiguous_strides(row.shape)[1:])
        return Array(row.reshape(-1).copy(), values.shape, strides)
    if layout == "sliced":
        return _sliced(values)
    raise ValueError(f"unknown layout {layout!r}")


def _permuted(values: np.ndarray[Any, Any], order: tuple[int, ...]) -> Array:
    memory = values.transpose(order)
    packed = contiguous_strides(memory.shape)
    strides = tuple(packed[order.index(i)] for i in range(values.ndim))
    return Array(memory.reshape(-1).copy(), values.shape, strides)


def _sliced(values: np.ndarray[Any, Any]) -> Array:
    wide = (*values.shape[:-1], 2 * values.shape[-1] + 1)
    offset = 3
    storage = np.full(offset + math.prod(wide), 1, dtype=values.dtype)
    strides = contiguous_strides(wide)
    window = storage[offset:].reshape(wide)
    window[...] = 1 if values.dtype == np.bool_ else 77
    window[..., : 2 * values.shape[-1] : 2] = values
    return Array(storage, values.shape, (*strides[:-1], 2), offset)


_WORDS: dict[str, Any] = {"None": None, "True": True, "False": False, "Mean": 1, "Sum": 2, "[]": []}


def _default(argument: Argument, operator: str) -> Any:
    text = argument.default
    if text is None:
        raise TypeError(f"{operator}: a case lacks the argument {argument.name}")
    if text in _WORDS:
        return _WORDS[text]
    if text.startswith("["):
        return [int(item) for item in text.strip("[]").split(",")]
    if argument.base in ("MemoryFormat", "str"):
        return text.strip("'\"")
    if argument.is_list:
        return [int(text)]
    return float(text) if any(c in text for c in ".e") else int(text)
