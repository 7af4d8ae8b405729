"""Arguments that PyTorch's CPU kernels refuse: dtypes, and memory shared with a tensor that the operator writes.

The framework refuses them before it calls a kernel, so that a kernel meets only arguments that have a meaning.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema

# Overlap of csrc/dispatch/operator_library.h: an argument may share no memory with a tensor that is written, or all
# of it, element by element. Pointwise operators have SAME for every argument.
SAME, NONE = 1, 2

_INDEXED = {"self": NONE, "index": NONE}
_FILLED = {"self": SAME, "index": NONE}
_SCATTERED = {**_FILLED, "src": NONE}
_FIRST: dict[str, int] = {"self": SAME}
OVERLAPS: dict[str, dict[str, int]] = {
    "aten::addmm": _FIRST,
    "aten::baddbmm": _FIRST,
    "aten::bernoulli": _FIRST,
    "aten::cat": {"tensors": NONE},
    "aten::copy_": {"src": SAME},
    "aten::cumsum": _FIRST,
    "aten::gather": {"self": NONE, "index": SAME},
    "aten::index.Tensor": {"self": NONE, "indices": NONE},
    "aten::index_add": {"self": SAME, "index": NONE, "source": NONE},
    "aten::index_put": {"self": SAME, "indices": NONE, "values": NONE},
    "aten::index_select": _INDEXED,
    "aten::max.dim": _FIRST,
    "aten::min.dim": _FIRST,
    "aten::mse_loss": {"self": SAME, "target": SAME},
    "aten::mse_loss_backward": {"grad_output": SAME, "self": SAME, "target": SAME},
    "aten::scatter.src": _SCATTERED,
    "aten::scatter.value": _FILLED,
    "aten::scatter_add": _SCATTERED,
    "aten::scatter_reduce.two": _SCATTERED,
    "aten::sort": _FIRST,
    "aten::sort.stable": _FIRST,
    "aten::topk": _FIRST,
}


# Operators beside the opset, which decompositions serve: the dtypes that they accept, by argument.
_FLOATING: dict[str, tuple[str, ...]] = {"self": dt.FLOATS}
_LONG: dict[str, tuple[str, ...]] = {"index": ("int64",)}
DECOMPOSED: dict[str, dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        "hardswish hardsigmoid hardshrink log_sigmoid_forward glu _prelu_kernel huber_loss smooth_l1_loss "
        "binary_cross_entropy adaptive_max_pool2d adaptive_max_pool3d upsample_linear1d upsample_trilinear3d".split(),
        _FLOATING,
    ),
    **dict.fromkeys(
        ("upsample_nearest1d", "upsample_bicubic2d"), _FLOATING | {"self": (*dt.FLOATS, "uint8")}
    ),
    **dict.fromkeys(
        ("multi_margin_loss", "multilabel_margin_loss_forward"), _FLOATING | {"target": ("int64",)}
    ),
    **dict.fromkeys(("take", "index_copy"), _LONG),
}


class Refusals(NamedTuple):
    """The refusals of an operator, in the form of ``Refusals`` of the core.

    Attributes:
        arguments: (mask of dtypes, overlap) by argument.
        values: names of the arguments that may not all have dtypes of ``together``.
        together: mask of dtypes.
    """

    arguments: dict[str, tuple[int, int]]
    values: tuple[str, ...]
    together: int


@cache
def refused_dtypes() -> dict[str, dict[str, Any]]:
    """Return the contents of ``refused_dtypes.json``, by operator."""
    found: dict[str, dict[str, Any]] = json.loads(
        (Path(__file__).parent / "refused_dtypes.json").read_text(encoding="utf-8")
    )
    return found


def refusals_of(schema: Schema) -> Refusals:
    """Return the refusals of an operator."""
    row, overlaps = refused_dtypes().get(schema.name, {}), OVERLAPS.get(schema.name, {})
    dtypes = row.get("arguments", {})
    arguments = {
        each.name: (dt.mask(tuple(dtypes.get(each.name, ()))), overlaps.get(each.name, 0))
        for each in schema.inputs
        if each.name in dtypes or each.name in overlaps
    }
    return Refusals(arguments, tuple(row.get("values", ())), dt.mask(tuple(row.get("together", ()))))
