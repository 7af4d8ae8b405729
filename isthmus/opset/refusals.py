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
_FIRST = {"self": SAME}
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


class Refusals(NamedTuple):
    """What an operator refuses, in the form of ``Refusals`` of the core.

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
    """Return what an operator refuses."""
    row, overlaps = refused_dtypes().get(schema.name, {}), OVERLAPS.get(schema.name, {})
    dtypes = row.get("arguments", {})
    arguments = {
        each.name: (dt.mask(tuple(dtypes.get(each.name, ()))), overlaps.get(each.name, 0))
        for each in schema.inputs
        if each.name in dtypes or each.name in overlaps
    }
    return Refusals(arguments, tuple(row.get("values", ())), dt.mask(tuple(row.get("together", ()))))
