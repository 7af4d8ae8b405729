"""Calls that a kernel refuses because no result is right, and that the framework does not refuse before it.

Indices out of range are in :mod:`isthmus.opset.indices`. Shapes that do not fit, and dtypes that a library does not
claim, never reach a kernel.
"""

# Reductions without a result for no elements: the argument of their dimensions, or "" if they reduce all.
NOT_EMPTY: dict[str, str] = {
    "aten::max": "",
    "aten::min": "",
    "aten::max.dim": "dim",
    "aten::min.dim": "dim",
    "aten::argmax": "dim",
    "aten::argmin": "dim",
    "aten::amax": "dim",
    "aten::amin": "dim",
}
# Products, whose tensors have one dtype: an argument that is given another.
ONE_DTYPE: dict[str, str] = {
    "aten::mm": "mat2",
    "aten::bmm": "mat2",
    "aten::mv": "vec",
    "aten::dot": "tensor",
    "aten::addmm": "mat2",
    "aten::baddbmm": "batch2",
}
# Probabilities, from 0 to 1.
PROBABILITIES: dict[str, str] = {"aten::bernoulli_.float": "p"}
