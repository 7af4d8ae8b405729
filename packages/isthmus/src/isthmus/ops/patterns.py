"""Fusion of patterns in Dynamo's graph, before gradients are taken: fused operators bring their own.

A pattern is a tuple of a function's name and its arguments: patterns, numbers, or names of what is found there.
Conversions of dtype are looked through; the fused operator computes in float32 or wider. A pattern is replaced where
a library of the chip has the kernels of its operator.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional as F

from isthmus import _C, ops

Found: TypeAlias = dict[str, Any]

_NAMES: dict[Any, str] = {
    operator.mul: "mul", operator.add: "add", operator.neg: "neg", operator.pow: "pow", operator.truediv: "div",
    operator.matmul: "matmul", operator.getitem: "getitem",
}  # fmt: skip
_COMMUTATIVE = ("add", "mul")
_CASTS = ("to", "float", "type_as")


def fuse_patterns(graph: GraphModule) -> None:
    """Replace patterns in place. A graph that writes to tensors is left as it is."""
    if any(_writes(node) for node in graph.graph.nodes):
        return
    for rule in RULES:
        if all(map(_C.serve_extension, rule.operators)):
            for node in list(graph.graph.nodes):
                _apply(rule, node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


_IN_PLACE = frozenset("iadd iand ifloordiv imatmul imod imul ior ipow isub itruediv ixor setitem".split())


def _writes(node: Node) -> bool:
    if node.kwargs.get("inplace") is True or "out" in node.kwargs:
        return True
    name = str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
    if getattr(node.target, "__module__", "") == "_operator":
        return name in _IN_PLACE
    return node.op in ("call_method", "call_function") and name.endswith("_") and not name.endswith("__")


class Rule(NamedTuple):
    """A pattern and its replacement.

    Attributes:
        operators: overloads that need a kernel.
        pattern: of the node that is replaced.
        replacement: the function and its arguments, of what was found and the node; None where it does not apply.
    """

    operators: tuple[str, ...]
    pattern: Any
    replacement: Callable[[Found, Node], tuple[Callable[..., Any], tuple[Any, ...]] | None]


def _apply(rule: Rule, node: Node) -> None:
    found: Found = {}
    if not _matches(rule.pattern, node, found):
        return
    made = rule.replacement(found, node)
    if made is None:
        return
    with node.graph.inserting_before(node):
        call = node.graph.call_function(*made)
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)


# ---- Matching


def _matches(pattern: Any, value: Any, found: Found) -> bool:
    """Whether a value has the form of the pattern; adds what the pattern's names stand for."""
    if isinstance(pattern, str):
        value = _uncast(value)
        return found.setdefault(pattern, value) is value
    if not isinstance(pattern, tuple):
        return bool(pattern == value) and not isinstance(value, Node)
    called = _called(_uncast(value))
    if called is None or called[0] != pattern[0] or len(called[1]) != len(pattern) - 1:
        return False
    orders = itertools.permutations(called[1]) if pattern[0] in _COMMUTATIVE else iter([called[1]])
    for order in orders:
        trial = dict(found)
        if all(map(_matches, pattern[1:], order, itertools.repeat(trial))):
            found.update(trial)
            return True
    return False


def _called(value: Any) -> tuple[str, tuple[Any, ...]] | None:
    """Function and arguments of a node in the form that patterns have."""
    if not isinstance(value, Node) or value.op not in ("call_function", "call_method"):
        return None
    name = value.target if value.op == "call_method" else _NAMES.get(value.target)
    name = str(name or getattr(value.target, "__name__", ""))
    arguments = (*value.args, *value.kwargs.values())
    if name == "square":
        return "pow", (value.args[0], 2)
    if name == "mul" and value.args[0] is value.args[1]:
        return "pow", (value.args[0], 2)
    if name in ("mean", "softmax"):
        return name, (value.args[0], _along_last(value))
    if name == "cat" and _is_half_rotation(value):
        return "rotate_half", (_sliced(value.args[0][1])[0],)  # type: ignore[index]
    if name == "transpose" and set(value.args[1:]) in ({-1, -2}, {2, 3}):
        return "transposed", (value.args[0],)
    return name, arguments


def _uncast(value: Any) -> Any:
    """The value before conversions of dtype, and before dropout that drops nothing."""
    while isinstance(value, Node) and _is_float(value) and (_is_cast(value) or _is_idle_dropout(value)):
        source: Any = value.args[0]
        if not _is_float(source) or _example(source).device != _example(value).device:
            break
        value = source
    return value


def _is_cast(node: Node) -> bool:
    return node.op == "call_method" and node.target in _CASTS


def _is_idle_dropout(node: Node) -> bool:
    if node.target is not F.dropout:
        return False
    given = {**dict(zip(("input", "p", "training"), node.args, strict=False)), **node.kwargs}
    return bool(given.get("p", 0.5) == 0 or given.get("training", True) is False)


def _example(node: Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["example_value"]
    return value


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("example_value"), torch.Tensor)


def _is_float(value: Any) -> bool:
    return _is_tensor(value) and bool(_example(value).is_floating_point())


def _along_last(node: Node) -> bool:
    """Whether a mean keeps its dimension and is over the last one, or a softmax is over the last one."""
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    keep = node.kwargs.get("keepdim", node.args[2] if len(node.args) > 2 else False)
    last = dim in (-1, [-1], (-1,)) or dim == _example(node).dim() - 1
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return bool(last and (name == "softmax" or keep))


def _is_half_rotation(node: Node) -> bool:
    """``torch.cat((-x[..., half:], x[..., :half]), dim=-1)``."""
    parts = node.args[0]
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
    if dim != -1 or not isinstance(parts, list | tuple) or len(parts) != 2:
        return False
    negated = _called(parts[0])
    if negated is None or negated[0] != "neg":
        return False
    first, second = _sliced(parts[1]), _sliced(negated[1][0])
    if first is None or second is None or first[0] is not second[0]:
        return False
    size = _example(first[0]).shape[-1]
    return (first[1], second[1]) == (slice(None, size // 2, None), slice(size // 2, None, None))


def _sliced(value: Any) -> Any:
    """Tensor and slice of ``x[..., slice]``, or None."""
    called = _called(value)
    if called is None or called[0] != "getitem":
        return None
    index = called[1][1]
    if not isinstance(index, tuple) or len(index) != 2 or index[0] is not Ellipsis:
        return None
    return called[1][0], index[1]


# ---- Replacements


def _alike(*nodes: Any) -> bool:
    """Whether all are tensors of one shape and dtype."""
    if not all(map(_is_float, nodes)):
        return False
    kinds = {(tuple(map(str, _example(node).shape)), _example(node).dtype) for node in nodes}
    return len(kinds) == 1


def _rms_norm(found: Found, node: Node) -> Any:
    x, weight, eps = found["x"], found["weight"], found["eps"]
    if not _alike(x, node) or not _is_float(weight) or not isinstance(eps, float):
        return None
    if tuple(_example(weight).shape) != (_example(x).shape[-1],):
        return None
    return ops.rms_norm, (x, weight, eps)


def _swiglu(found: Found, node: Node) -> Any:
    return (ops.swiglu, (found["gate"], found["up"])) if _alike(found["gate"], found["up"], node) else None


def _rotary(found: Found, node: Node) -> Any:
    x, tables = found["x"], [_table(found[name]) for name in ("cos", "sin")]
    if None in tables or not _alike(x, node) or _example(x).dim() != 4 or tables[0][1] != tables[1][1]:
        return None
    (cos, dim), (sin, _) = tables
    if _example(cos).shape[-1] != _example(x).shape[-1] or not _alike(cos, sin):
        return None
    return _rotated, (x, cos, sin, {1: "bhsd", 2: "bshd"}[dim])


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, layout: str) -> torch.Tensor:
    return ops.rotary(x, cos, sin, layout=layout)


def _table(value: Any) -> Any:
    """Table [batch, seq, size] and the dimension of heads that was added to it, or None."""
    called = _called(value)
    if (
        called is None
        or called[0] != "unsqueeze"
        or called[1][1] not in (1, 2)
        or not _is_float(called[1][0])
    ):
        return None
    table = called[1][0]
    return (table, called[1][1]) if _example(table).dim() == 3 and not _example(table).requires_grad else None


def _attention(found: Found, node: Node) -> Any:
    query, key, value, mask = found["query"], found["key"], found["value"], found.get("mask")
    scale = found.get(
        "scale", 1 / found["divisor"] if isinstance(found.get("divisor"), int | float) else None
    )
    if not all(map(_is_float, (query, key, value))) or not isinstance(scale, int | float):
        return None
    if (
        _example(query).dim() != 4
        or _example(query).dtype != _example(node).dtype
        or (mask and not _is_float(mask))
    ):
        return None
    return _attended, (query, key, value, mask, float(scale))


def _attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def _add_norm(found: Found, node: Node) -> Any:
    """The sum and its norm in one call; the sum's other users get it from there."""
    total, weight, bias = node.args[0], found["weight"], found.get("bias")
    if not isinstance(total, Node) or not _alike(found["x"], found["residual"], total):
        return None
    # The call is where the sum is: its other arguments have to be known there.
    if not isinstance(found["eps"], float) or any(each and not _is_given(each) for each in (weight, bias)):
        return None
    if node.target is ops.rms_norm:
        made: tuple[Any, ...] = (ops.add_rms_norm, (found["x"], found["residual"], weight, found["eps"]))
    else:
        made = (_add_layer_norm, (found["x"], found["residual"], weight, bias, found["eps"]))
    with node.graph.inserting_before(total):
        pair = node.graph.call_function(*made)
        added = node.graph.call_function(operator.getitem, (pair, 1))
    added.meta = dict(total.meta)
    total.replace_all_uses_with(added)
    return operator.getitem, (pair, 0)


def _is_given(weight: Any) -> bool:
    return _is_float(weight) and weight.op in ("placeholder", "get_attr") and _example(weight).dim() == 1


def _add_layer_norm(x: torch.Tensor, residual: torch.Tensor, weight: Any, bias: Any, eps: float) -> Any:
    return ops.dropout_add_layer_norm(x, residual, weight, bias, 0.0, eps, prenorm=True)


def _patterns_of_attention() -> Iterator[Any]:
    scores = ("matmul", "query", ("transposed", "key"))
    for scaled in (("mul", scores, "scale"), ("div", scores, "divisor")):
        for masked in (scaled, ("add", scaled, "mask")):
            yield ("matmul", ("softmax", masked, True), "value")


_MEAN_SQUARE = ("mean", ("pow", "x", 2), True)
_NORMALIZED = ("mul", "x", ("rsqrt", ("add", _MEAN_SQUARE, "eps")))
_NORM = ("isthmus::rms_norm", "isthmus::rms_norm_backward")
_SUM = ("add", "x", "residual")
RULES = (
    Rule(_NORM, ("mul", "weight", _NORMALIZED), _rms_norm),
    Rule(_NORM, ("rms_norm", "x", "shape", "weight", "eps"), _rms_norm),
    Rule(("isthmus::add_rms_norm", *_NORM), ("rms_norm", _SUM, "weight", "eps"), _add_norm),
    Rule(
        ("isthmus::dropout_add_norm", "isthmus::dropout_add_norm_backward"),
        ("layer_norm", _SUM, "shape", "weight", "bias", "eps"),
        _add_norm,
    ),
    Rule(("isthmus::swiglu", "isthmus::swiglu_backward"), ("mul", ("silu", "gate"), "up"), _swiglu),
    Rule(("isthmus::rotary",), ("add", ("mul", "x", "cos"), ("mul", ("rotate_half", "x"), "sin")), _rotary),
    *(
        Rule(("isthmus::attention", "isthmus::attention_backward"), pattern, _attention)
        for pattern in _patterns_of_attention()
    ),
)
