"""Arguments of operators whose elements are indices, and what they index.

Kernels check them, and the conformance suite calls them with indices out of range. The framework checks those of
kernels that compute in the calling thread (``ISTHMUS_OPERATOR_HOST``) first, so that errors are PyTorch's.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from isthmus.opset.schema import Schema

_ABSENT = 1 << 16  # IndexRule::kAbsent of csrc/dispatch/index_checks.h
SIZE_OF_ZERO, SIZE_OF_ZERO_IN_VECTOR, ALL = range(3)  # IndexRule::Empty


class Index(NamedTuple):
    """An argument of indices, from 0 to the indexed size - 1.

    Attributes:
        argument: name of the argument, a tensor of int32 or int64, or a list of them.
        of: the tensor that is indexed, an argument or result, or an integer argument that is the size.
        dim: the indexed dimension, or the argument that gives it. None for a list: item i indexes dimension i.
        dims: number of dimensions from ``dim`` on that are indexed as one.
        negative: whether indices from -size count from the end.
        ignored: argument with another allowed value, or "".
        index_error: whether PyTorch raises IndexError; otherwise RuntimeError.
        empty: indices that a call whose results have no elements checks: SIZE_OF_ZERO, those into a size of 0;
            SIZE_OF_ZERO_IN_VECTOR, the same, unless the indexed tensor has several dimensions; ALL.
    """

    argument: str
    of: str
    dim: int | str | None = 0
    dims: int = 1
    negative: bool = False
    ignored: str = ""
    index_error: bool = True
    empty: int = SIZE_OF_ZERO


_ALONG = Index("index", "self", "dim")
_SCATTERED = _ALONG._replace(index_error=False)
_ANY = Index("indices", "self", None, negative=True)
_CLASS = Index("target", "logits", -1, ignored="ignore_index")
_POSITION = Index("positions", "cos")

INDICES: dict[str, Index] = {
    "aten::embedding": Index("indices", "weight", empty=ALL),
    "aten::embedding_dense_backward": Index("indices", "num_weights", ignored="padding_idx"),
    "aten::gather": _SCATTERED,
    "aten::index_select": _ALONG._replace(empty=ALL),
    "aten::scatter.src": _SCATTERED,
    "aten::scatter.value": _SCATTERED,
    "aten::scatter_add": _SCATTERED,
    "aten::scatter_reduce.two": _SCATTERED,
    "aten::index.Tensor": _ANY,
    "aten::index_put": _ANY,
    "aten::index_add": _ALONG._replace(empty=SIZE_OF_ZERO_IN_VECTOR),
    "aten::nll_loss_forward": _CLASS._replace(of="self"),
    "aten::nll_loss_backward": _CLASS._replace(of="self"),
    "aten::max_pool2d_with_indices_backward": Index("indices", "out", -2, dims=2),
    "isthmus::cross_entropy": _CLASS,
    "isthmus::cross_entropy_backward": _CLASS,
    "isthmus::cross_entropy_backward_": _CLASS,
    "isthmus::linear_cross_entropy": _CLASS._replace(of="weight", dim=0),
    "isthmus::gather_rows": Index("rows", "input"),
    "isthmus::scatter_rows": Index("rows", "size"),
    "isthmus::row_products": Index("rows", "other"),
    "isthmus::rotary": _POSITION,
    "isthmus::rotary_": _POSITION,
}


def indexed_size(rule: Index, item: int, given: Mapping[str, Any]) -> int:
    """Return the number of elements that the indices of a call select from.

    Args:
        rule: the rule.
        item: position in a list of tensors of indices.
        given: arguments and results of the call by name: tensors have a ``shape``.
    """
    of = given[rule.of]
    if isinstance(of, int):
        return of
    shape = getattr(of, "shape", ())
    if not shape:
        return 1
    dim = item if rule.dim is None else given[rule.dim] if isinstance(rule.dim, str) else rule.dim
    dim %= len(shape)
    return math.prod(shape[dim : dim + rule.dims])


def rule_of(schema: Schema) -> tuple[str, int, int, bool, int, int, int, bool, int, bool, int] | None:
    """Return the rule of an operator in the form of ``IndexRule`` of the core; None without indices.

    Raises:
        ValueError: the schema lacks an argument of the rule, or it stands between lists.
    """
    rule = INDICES.get(schema.name)
    if rule is None:
        return None
    named = isinstance(rule.dim, str)
    return (
        rule.argument,
        position(schema, rule.argument),
        position(schema, rule.of),
        rule.dim is None,
        position(schema, rule.dim) if isinstance(rule.dim, str) else _ABSENT,
        0 if named or rule.dim is None else int(rule.dim),
        rule.dims,
        rule.negative,
        position(schema, rule.ignored) if rule.ignored else _ABSENT,
        rule.index_error,
        rule.empty,
    )


def position(schema: Schema, name: str) -> int:
    """Return the position of an argument among those of a kernel; from the end, and negative, after a list.

    Raises:
        ValueError: there is no such argument, or it stands between lists.
    """
    arguments = (*schema.inputs, *schema.outputs)
    found = next((i for i, each in enumerate(arguments) if each.name == name), None)
    if found is None:
        raise ValueError(f"{schema.name}: no argument {name}")
    if not any(each.is_list for each in arguments[:found]):
        return found
    if any(each.is_list for each in arguments[found:]):
        raise ValueError(f"{schema.name}: {name} stands between lists of arguments")
    return found - len(arguments)
