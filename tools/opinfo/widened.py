"""The CPU's results in the dtypes in which the chip computes: the reference for isthmus.chip.compute_dtypes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.chip import compute_dtypes

from .twin import tensors_of, tree_map

# Composites, and the operator below that has a rule.
_PARTS = {"index_put": "_index_put_impl", "log_softmax": "_log_softmax", "softmax": "_softmax"}


def has_rules(dtype: torch.dtype) -> bool:
    """Return whether the chip computes some operators on tensors of the dtype in another one."""
    return any(dtype in rule.wider for rule in compute_dtypes.rules().values())


class Widened(TorchDispatchMode):
    """Converts the arguments of operators that have a rule, and their results back.

    PyTorch computes some composites by other formulas within any mode, so a plain call comes first.
    """

    def __init__(self) -> None:
        super().__init__()
        rules = compute_dtypes.rules()
        always = compute_dtypes.Rule(rules["_index_put_impl"].wider)
        self.rules = {**rules, "_unsafe_masked_index_put_accumulate": always}  # a composite that always adds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, in the wider dtype if its rule says so."""
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2].removesuffix("_")
        if name in compute_dtypes.CONVOLUTIONS and _argument(func, "transposed", args, kwargs):
            name = f"transposed {name}"
        wider, flag, like, kept = self.rules.get(_PARTS.get(name, name), compute_dtypes.Rule({}))
        narrow = _narrow(wider, args, kwargs, bool(like))
        if narrow is None or (flag and not _is_set(_argument(func, flag, args, kwargs))):
            return func(*args, **kwargs)
        unchanged = {id(_argument(func, each, args, kwargs)) for each in kept}
        if all(id(t) in unchanged for t in tensors_of((args, kwargs)) if t.dtype == narrow):
            unchanged = set()
        results = _call(func, narrow, wider[narrow], unchanged, args, kwargs)
        if not like:
            return results
        asked = [_argument(func, each, args, kwargs) for each in like]
        return tuple(
            result if result is None or each is None else result.to(each.dtype)
            for result, each in zip(results, asked, strict=True)
        )


def _is_set(flag: Any) -> bool:
    return flag if isinstance(flag, bool) else flag != 1


def _argument(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    names = [argument.name for argument in func._schema.arguments]
    index = names.index(name)
    return args[index] if index < len(args) else kwargs.get(name, func._schema.arguments[index].default_value)


def _narrow(
    wider: dict[torch.dtype, torch.dtype], args: Any, kwargs: Any, may_mix: bool
) -> torch.dtype | None:
    if kwargs.get("dtype") is not None:
        return kwargs["dtype"] if kwargs["dtype"] in wider else None
    # 0-dim CPU tensors may be numbers, which take no part in promotion.
    dtypes = [t.dtype for t in tensors_of((args, kwargs)) if t.dim() or t.dtype in wider]
    narrow = next((dtype for dtype in dtypes if dtype in wider), None)
    if narrow is None or may_mix:
        return narrow
    if any(torch.promote_types(dtype, narrow) != narrow for dtype in dtypes):
        return None
    return narrow


def _call(
    func: Any, narrow: torch.dtype, wide: torch.dtype, unchanged: set[int], args: Any, kwargs: Any
) -> Any:
    back = {wide: narrow}
    if wide.is_complex:
        back[wide.to_real()] = narrow.to_real()
    elif narrow == torch.float16:
        back[wide.to_complex()] = torch.complex32
    pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype) and value == narrow:
            return wide
        if not isinstance(value, torch.Tensor) or value.dtype != narrow or id(value) in unchanged:
            return value
        return pairs.setdefault(id(value), (value, value.to(wide)))[1]

    results = func(*tree_map(widen, args), **tree_map(widen, kwargs))
    originals = {id(wide_one): original for original, wide_one in pairs.values()}
    written = [argument.name for argument in func._schema.arguments if argument.is_write]
    if "batch_norm" in func._schema.name:  # writes them, though not every schema says so
        written += [
            argument.name for argument in func._schema.arguments if argument.name.startswith("running_")
        ]
    if written:
        for name in written:
            original = _argument(func, name, args, kwargs)
            if id(original) in pairs:
                computed = pairs[id(original)][1]
                original.resize_(computed.shape).copy_(computed)

    def narrowed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return originals.get(id(value), value.to(back.get(value.dtype, value.dtype)))

    return tree_map(narrowed, results)
