"""Arguments for every row: by rule from names and kinds, or written out where the rule gives none.

An argument of a case is a value, or OUT for a tensor that the row only writes.
"""

import ast
from collections.abc import Callable
from typing import Any

import torch

from tests.ascend.meaning import overload
from tools.ascend.table import Row

OUT = object()
INTEGER_ROWS = ("Bitwise", "Shift", "Gcd")


def real(*shape: int, low: float = -2, high: float = 2, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random numbers as a transposed view with gaps, which starts inside its storage."""
    if not shape:
        return torch.empty(3, dtype=dtype).uniform_(low, high)[1]
    whole = torch.empty(*(2 * size for size in reversed(shape)), dtype=dtype).uniform_(low, high)
    view = whole.permute(*reversed(range(len(shape))))
    return view[tuple(slice(1, None, 2) for _ in shape)]


def whole(*shape: int, low: int = 0, high: int = 8, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return random integers, laid out as real() does."""
    return real(*shape, low=low, high=high, dtype=torch.float64).floor().to(dtype)


def flags(*shape: int) -> torch.Tensor:
    return real(*shape) > 0


def positive(*shape: int) -> torch.Tensor:
    return real(*shape, low=0.1, high=0.9)


def several(make: Callable[..., torch.Tensor] = real) -> list[torch.Tensor]:
    return [make(3, 4), make(2), make(2, 3, 2)]


def logits(*shape: int) -> torch.Tensor:
    return torch.log_softmax(real(*shape), -1)


def definite(*shape: int) -> torch.Tensor:
    matrix = real(*shape)
    return matrix @ matrix.mT + 3 * torch.eye(shape[-1])


def places(pool: Callable[..., tuple[torch.Tensor, torch.Tensor]], *arguments: Any) -> torch.Tensor:
    """Return the indices of a pooling."""
    return pool(*arguments)[1]


aten = torch.ops.aten
POOL2 = ([2, 3], [2, 1], [1, 1], [1, 1], True)
POOL3 = ([2, 2, 2], [2, 1, 2], [1, 0, 1], [1, 1, 1], False)
AVERAGE2 = ([2, 3], [2, 1], [1, 1], True, False, 5)
AVERAGE3 = ([2, 2, 3], [2, 1, 1], [1, 0, 1], False, True, 0)


def upsampled(dims: int, backward: bool, align: bool) -> list[Any]:
    """Arguments of an upsampling: twice and half as large, scales left to the sizes."""
    given, wanted = [2, 3, *[4, 6, 5][:dims]], [8, 3, 10][:dims]
    first: list[Any] = [real(2, 3, *wanted), wanted, given] if backward else [real(*given), wanted]
    return [*first, *([True] if align else [])]


# In the order of the row's parameters, outputs left out.
CASES: dict[str, Callable[[], list[Any]]] = {
    "AdaptiveAvgPool2d": lambda: [real(2, 3, 5, 7), [2, 3]],
    "AdaptiveAvgPool2dBackward": lambda: [real(2, 3, 2, 3), real(2, 3, 5, 7)],
    "AdaptiveAvgPool3d": lambda: [real(2, 3, 5, 7, 4), [2, 3, 2]],
    "AdaptiveAvgPool3dBackward": lambda: [real(2, 3, 2, 3, 2), real(2, 3, 5, 7, 4)],
    "AdaptiveMaxPool2d": lambda: [real(2, 3, 5, 7), [2, 3]],
    "AdaptiveMaxPool2dBackward": lambda: [real(2, 3, 2, 3), x := real(2, 3, 5, 7), places(aten.adaptive_max_pool2d, x, [2, 3])],
    "AdaptiveMaxPool3d": lambda: [real(2, 3, 5, 7, 4), [2, 3, 2]],
    "AdaptiveMaxPool3dBackward": lambda: [
        real(2, 3, 2, 3, 2), x := real(2, 3, 5, 7, 4), places(aten.adaptive_max_pool3d, x, [2, 3, 2])
    ],
    "Addbmm": lambda: [real(3, 5), real(2, 3, 4), real(2, 4, 5), 0.5, 1.5, 0],
    "Addmm": lambda: [real(5), real(3, 4), real(4, 5), 0.5, 1.5, 0],
    "AddmmWeightNz": lambda: [real(5), real(3, 4), real(4, 5), 0.5, 1.5, 0],
    "Addmv": lambda: [real(3), real(3, 4), real(4), 1.5, 0.5, 0],
    "Addr": lambda: [real(3, 4), real(3), real(4), 0.5, 1.5],
    "AffineGrid": lambda: [real(2, 2, 3), [2, 3, 4, 5], True],
    "AmpUpdateScale": lambda: [torch.tensor([4.0]), torch.tensor([2], dtype=torch.int32), torch.tensor([0.0]), 2.0, 0.5, 3, torch.tensor([4.0]), torch.tensor([2], dtype=torch.int32)],
    "ApplyAdamWV2": lambda: [real(3, 4), real(3, 4), positive(3, 4), None, real(3, 4), torch.tensor(3.0), 0.01, 0.9, 0.99, 0.1, 1e-6, False, True],
    "Arange": lambda: [1, 9, 2],
    "AvgPool2d": lambda: [real(2, 3, 7, 8), *AVERAGE2, 0],
    "AvgPool2dBackward": lambda: [real(2, 3, 4, 8), real(2, 3, 7, 8), *AVERAGE2, 0],
    "AvgPool3d": lambda: [real(2, 3, 5, 4, 6), *AVERAGE3],
    "AvgPool3dBackward": lambda: [real(2, 3, 3, 3, 6), real(2, 3, 5, 4, 6), *AVERAGE3],
    "Baddbmm": lambda: [real(2, 3, 5), real(2, 3, 4), real(2, 4, 5), 0.5, 1.5, 0],
    "BatchMatMul": lambda: [real(2, 3, 4), real(2, 4, 5), 0],
    "BatchMatMulWeightNz": lambda: [real(2, 3, 4), real(2, 4, 5), 0],
    "BatchNorm": lambda: [real(4, 3, 5), real(3), real(3), real(3), positive(3), True, 0.2, 1e-3],
    "BatchNormBackward": lambda: [real(4, 3, 5), real(4, 3, 5), real(3), real(3), positive(3), real(3), positive(3), True, 1e-3, [True, True, True]],
    "BinaryCrossEntropy": lambda: [positive(3, 4), positive(3, 4), real(3, 4), 1],
    "BinaryCrossEntropyBackward": lambda: [real(3, 4), positive(3, 4), positive(3, 4), real(3, 4), 0],
    "BinaryCrossEntropyWithLogits": lambda: [real(3, 4), positive(3, 4), real(3, 4), real(4), 2],
    "Bincount": lambda: [whole(9), real(9), 10],
    "Bucketize": lambda: [real(3, 4), torch.tensor([-1.0, 0.0, 1.0]), True, True],
    "Cat": lambda: [[real(3, 4), real(3, 2)], 1],
    "Cdist": lambda: [real(3, 4), real(5, 4), 1.5, 2],
    "CdistBackward": lambda: [real(3, 5), x := real(3, 4), y := real(5, 4), torch.cdist(x, y, 1.5), 1.5],
    "ChannelShuffle": lambda: [real(2, 6, 3, 4), 3],
    "ConstantPadNd": lambda: [real(3, 4), [1, 2, 0, 1], 0.7],
    "ConvDepthwise2d": lambda: [real(2, 3, 6, 7), real(3, 1, 3, 2), [3, 2], real(3), [1, 2], [1, 0], [1, 1], 0],
    "ConvTbc": lambda: [real(6, 2, 3), real(2, 3, 4), real(4), 1, 0],
    "ConvTbcBackward": lambda: [real(7, 2, 4), real(6, 2, 3), real(2, 3, 4), real(4), 1, 0],
    "Convolution": lambda: [real(2, 4, 6, 7), real(6, 2, 3, 2), real(6), [1, 2], [1, 0], [1, 1], False, [0, 0], 2, 0],
    "ConvolutionBackward": lambda: [real(2, 6, 6, 3), real(2, 4, 6, 7), real(6, 2, 3, 2), [6], [1, 2], [1, 0], [1, 1], False, [0, 0], 2, [True, True, True], 0],
    "CtcLoss": lambda: [torch.log_softmax(real(7, 2, 5), -1), whole(2, 3, low=1, high=5), [7, 7], [3, 3], 0, True],
    "CtcLossBackward": lambda: (lambda x, t: [real(2), x, t, [7, 6], [3, 2], *aten._ctc_loss(x, t, [7, 6], [3, 2], 0, True), 0, True])(torch.log_softmax(real(7, 2, 5), -1), whole(2, 3, low=1, high=5)),
    "Cumprod": lambda: [real(3, 4), 1, torch.float32],
    "Dot": lambda: [real(5), real(5)],
    "Embedding": lambda: [real(8, 4), whole(2, 3)],
    "EmbeddingBag": lambda: [real(8, 4), whole(6), torch.tensor([0, 2, 2]), False, 1, False, None, False, -1],
    "EmbeddingDenseBackward": lambda: [real(2, 3, 4), whole(2, 3), 8, 2, True],
    "EmbeddingRenorm": lambda: [real(8, 4), whole(3), 0.7, 2.0],
    "Eye": lambda: [3, 5],
    "FakeQuantPerChannelAffineCachemask": lambda: [real(3, 4), positive(4), whole(4, dtype=torch.int32), 1, -3, 9],
    "FastLayerNorm": lambda: [real(2, 3, 4), [3, 4], real(3, 4), real(3, 4), 1e-3],
    "Flip": lambda: [real(3, 4), [0, 1]],
    "ForeachNonFiniteCheckAndUnscale": lambda: [several(), torch.tensor([0.0]), torch.tensor([0.5])],
    "ForeachAddcdivScalarList": lambda: [several(), several(), several(positive), torch.tensor([0.75, 1.5, -2.0])],
    "ForeachAddcmulScalarList": lambda: [several(), several(), several(), torch.tensor([0.75, 1.5, -2.0])],
    "FusedSgd": lambda: [*([x.contiguous() for x in several()] for _ in range(3)), None, 0.5, 0.25, 0.125, 0.5, False, True, False],
    "Gather": lambda: [real(3, 4), 1, whole(3, 2, high=4)],
    "Glu": lambda: [real(3, 4), 1],
    "GluBackward": lambda: [real(3, 2), real(3, 4), 1],
    "GridSampler2D": lambda: [real(2, 3, 4, 5), real(2, 6, 7, 2), 0, 1, False],
    "GridSampler2DBackward": lambda: [real(2, 3, 6, 7), real(2, 3, 4, 5), real(2, 6, 7, 2), 0, 1, False, [True, True]],
    "GridSampler3D": lambda: [real(2, 3, 4, 5, 3), real(2, 6, 7, 2, 3), 0, 1, False],
    "GridSampler3DBackward": lambda: [real(2, 3, 6, 7, 2), real(2, 3, 4, 5, 3), real(2, 6, 7, 2, 3), 0, 1, False, [True, True]],
    "GroupNorm": lambda: [real(2, 6, 5).contiguous(), real(6), real(6), 2, 6, 5, 3, 1e-3],
    "GroupNormBackward": lambda: [real(2, 6, 5).contiguous(), real(2, 6, 5).contiguous(), real(2, 3), positive(2, 3), real(6), 2, 6, 5, 3, [True, True, True]],
    "Histc": lambda: [real(20), 5, -1, 2],
    "Im2col": lambda: [real(2, 3, 6, 7), [2, 3], [1, 2], [1, 0], [2, 1]],
    "Im2colBackward": lambda: [real(2, 18, 12), [6, 7], [2, 3], [1, 2], [1, 0], [2, 1]],
    "Index": lambda: [real(3, 4, 5), [torch.empty(0), whole(2, high=4), whole(2, high=5)]],
    "IndexAdd": lambda: [real(3, 4), 1, whole(2, high=4), real(3, 2), 0.7],
    "IndexCopy": lambda: [real(3, 4), 1, torch.tensor([3, 0]), real(3, 2)],
    "IndexFill": lambda: [real(3, 4), 1, whole(2, high=4), 0.7],
    "IndexFillTensor": lambda: [real(3, 4), 1, [3, 0], 0.7],
    "IndexPutImpl": lambda: [real(3, 4), [whole(5, high=3), whole(5, high=4)], real(5), True, False],
    "IndexSelect": lambda: [real(3, 4), 1, whole(2, high=4)],
    "InplaceAddmm": lambda: [real(3, 5), real(3, 4), real(4, 5), 0.5, 1.5, 0],
    "InplaceAddr": lambda: [real(3, 4), real(3), real(4), 0.5, 1.5],
    "InplaceFillDiagonal": lambda: [real(5, 3), 0.7, True],
    "InplaceFillTensor": lambda: [real(3, 4), real()],
    "InplaceIndexCopy": lambda: [real(3, 4), 1, torch.tensor([3, 0]), real(3, 2)],
    "InplaceIndexFill": lambda: [real(3, 4), 1, whole(2, high=4), 0.7],
    "InplaceIndexFillTensor": lambda: [real(3, 4), 1, [3, 0], 0.7],
    "InplaceMaskedFillTensor": lambda: [real(3, 4), flags(3, 4), real()],
    "InplaceMaskedScatter": lambda: [real(3, 4), flags(3, 4), real(12)],
    "InplacePut": lambda: [real(3, 4), torch.tensor([0, 7, 2]), real(3), True],
    "InplaceRoundDecimals": lambda: [real(3, 4), 1],
    "InplaceScatterReduce": lambda: [real(3, 4), 1, whole(3, 2, high=4), real(3, 2), 3, True],
    "Inverse": lambda: [definite(2, 3, 3)],
    "IsInScalarTensor": lambda: [3, whole(5), False, True],
    "IsInTensorScalar": lambda: [whole(3, 4), 3, False, True],
    "Kthvalue": lambda: [real(3, 5), 2, 1, True],
    "LayerNorm": lambda: [real(2, 3, 4), [3, 4], real(3, 4), real(3, 4), 1e-3],
    "LayerNormBackward": lambda: [real(2, 4).contiguous(), real(2, 4).contiguous(), [4], real(2, 1).contiguous(), positive(2, 1).contiguous(), real(4).contiguous(), real(4), [True, True, True]],
    "LinalgCholesky": lambda: [definite(2, 3, 3), True],
    "LinalgCross": lambda: [real(2, 3), real(2, 3), 1],
    "LinalgQr": lambda: [real(2, 5, 3), 1],
    "LinalgVectorNorm": lambda: [real(3, 4), 3.0, [1], True, torch.float32],
    "Linspace": lambda: [0.5, 3.0, 7],
    "LogSigmoidBackward": lambda: [real(3, 4), real(3, 4), torch.empty(0)],
    "LogSigmoidForward": lambda: [real(3, 4), torch.empty(0)],
    "LogSoftmaxBackward": lambda: [real(3, 4), logits(3, 4), 1, real(3, 4)],
    "LogSpace": lambda: [0.5, 3.0, 7, 2.0],
    "MaskedSelect": lambda: [real(3, 4), flags(3, 4)],
    "Matmul": lambda: [real(2, 3, 4), real(4, 5), 0],
    "MatmulWeightNz": lambda: [real(3, 4), real(4, 5), 0],
    "MaxPool2dWithIndices": lambda: [real(2, 3, 6, 7), *POOL2],
    "MaxPool2dWithIndicesBackward": lambda: [real(2, 3, 4, 7), x := real(2, 3, 6, 7), places(aten.max_pool2d_with_indices, x, *POOL2).int(), *POOL2],
    "MaxPool2dWithMask": lambda: [real(2, 3, 6, 7), *POOL2, torch.empty(4, dtype=torch.int8)],
    "MaxPool2dWithMaskBackward": lambda: [real(2, 3, 4, 7), real(2, 3, 6, 7), torch.empty(4, dtype=torch.int8), *POOL2],
    "MaxPool3dWithArgmax": lambda: [real(2, 3, 5, 4, 6), *POOL3],
    "MaxPool3dWithArgmaxBackward": lambda: [real(2, 3, 3, 3, 4), real(2, 3, 5, 4, 6), *POOL3],
    "MaxUnpool2d": lambda: [*aten.max_pool2d_with_indices(real(2, 3, 6, 8), [2, 2]), [6, 8]],
    "MaxUnpool3d": lambda: [*aten.max_pool3d_with_indices(real(2, 3, 4, 6, 2), [2, 2, 2]), [4, 6, 2], [2, 2, 2], [0, 0, 0]],
    "Mm": lambda: [real(3, 4), real(4, 5), 0],
    "MultilabelMarginLoss": lambda: [real(3, 4), torch.tensor([[1, 3, -1, 0], [0, -1, 2, 2], [2, 1, 0, -1]]), 1],
    "Mv": lambda: [real(3, 4), real(4), 0],
    "NLLLoss": lambda: [logits(3, 4), whole(3, high=4), positive(4), 1, 2],
    "NLLLossBackward": lambda: [real(), logits(3, 4), torch.tensor([1, 2, 0]), positive(4), 1, 2, torch.tensor(1.25)],
    "NLLLoss2d": lambda: [logits(2, 4, 3, 5), whole(2, 3, 5, high=4), positive(4), 0, 2],
    "NLLLoss2dBackward": lambda: [real(2, 3, 5), logits(2, 4, 3, 5), whole(2, 3, 5, high=4), positive(4), 0, 2, torch.tensor(1.25)],
    "Nonzero": lambda: [flags(3, 4)],
    "NonzeroV2": lambda: [flags(3, 4)],
    "Norm": lambda: [real(3, 4), 3.0, [1], True],
    "Pdist": lambda: [real(5, 4), 1.5],
    "Prelu": lambda: [real(3, 4), real(3, 4)],
    "PreluBackward": lambda: [real(3, 4), real(3, 4), real(1, 4)],
    "Range": lambda: [1.0, 9.0, 2.0],
    "Repeat": lambda: [real(3, 4), [2, 1, 3]],
    "RepeatInterleave": lambda: [real(5), torch.tensor([0, 2, 1, 3, 1]), 7],
    "RepeatInterleaveInt": lambda: [real(3, 4), 2, 24],
    "RepeatInterleaveIntWithDim": lambda: [real(3, 4), 2, 1, 8],
    "RepeatInterleaveTensor": lambda: [torch.tensor([0, 2, 1]), 3],
    "RepeatInterleaveWithDim": lambda: [real(3, 4), torch.tensor([0, 2, 1]), 0, 3],
    "Roll": lambda: [real(3, 4), [1, 2], [0, 1]],
    "RoundDecimals": lambda: [real(3, 4), 1],
    "ScatterAdd": lambda: [real(3, 4), 1, whole(3, 2, high=4), real(3, 2)],
    "ScatterReduce": lambda: [real(3, 4), 1, whole(3, 2, high=4), real(3, 2), 5, True],
    "SearchSorted": lambda: [torch.tensor([-1.0, 0.0, 1.0]), real(3, 4), True, True, None],
    "SearchSorteds": lambda: [torch.tensor([-1.0, 0.0, 1.0]), 0.5, False, True, None],
    "Slogdet": lambda: [real(2, 3, 3)],
    "SoftMarginLossBackward": lambda: [real(3, 4), real(3, 4), real(3, 4), 0],
    "SoftmaxBackward": lambda: [real(3, 4), logits(3, 4).exp(), 1, real(3, 4)],
    "SmoothL1LossBackward": lambda: [real(3, 4), real(3, 4), real(3, 4), 0, 0.75],
    "MseLossBackward": lambda: [real(3, 4), real(3, 4), real(3, 4), 0],
    "Sort": lambda: [real(3, 5), True, 1, True],
    "SplitWithSize": lambda: [real(3, 6), [1, 3, 2], 1],
    "Stack": lambda: [[real(3, 4), real(3, 4)], 1],
    "Svd": lambda: [real(2, 4, 3), False, True],
    "Take": lambda: [real(3, 4), whole(5, high=12)],
    "Topk": lambda: [real(3, 5), 2, 1, True, True],
    "Trace": lambda: [real(4, 4)],
    "TriangularSolve": lambda: [real(3, 2), definite(3, 3), True, True, False],
    "UnfoldGrad": lambda: [real(3, 2, 3), [3, 6], 1, 3, 2],
    "Unique": lambda: [whole(3, 4), True, True],
    "Unique2": lambda: [whole(3, 4), True, True, True],
    "UniqueConsecutive": lambda: [whole(12, high=2), True, True, 1000],
    "UniqueDim": lambda: [whole(6, 2, high=2), True, True, 0],
    "UpsampleLinear1d": lambda: [*upsampled(1, False, True), 0.0],
    "UpsampleLinear1dBackward": lambda: [*upsampled(1, True, True), 0.0],
}  # fmt: skip
for _name, _dims, _align in (
    ("UpsampleBicubic2d", 2, True), ("UpsampleBicubic2dAA", 2, True), ("UpsampleBilinear2d", 2, True),
    ("UpsampleBilinear2dAA", 2, True), ("UpsampleTrilinear3d", 3, True), ("UpsampleNearest1d", 1, False),
    ("UpsampleNearest2d", 2, False), ("UpsampleNearest3d", 3, False), ("UpsampleNearestExact1d", 1, False),
    ("UpsampleNearestExact2d", 2, False), ("UpsampleNearestExact3d", 3, False),
):  # fmt: skip
    _scales = [0.0] * (0 if _name in ("UpsampleNearest1d", "UpsampleNearest2d") else _dims)
    CASES[_name] = lambda d=_dims, a=_align, s=_scales: [*upsampled(d, False, a), *s]
    CASES[f"{_name}V2"] = lambda d=_dims, a=_align: [*upsampled(d, False, a), *[2.0, -1.0][:d]]
    for _suffix in ("Backward", "BackwardV2", "Grad"):
        CASES[_name + _suffix] = lambda d=_dims, a=_align: [*upsampled(d, True, a), *[0.0] * d]
for _dims in (1, 2, 3):
    for _kind in ("Reflection", "Replication"):
        _pad = [1, 2, 0, 1, 2, 1][: 2 * _dims]
        CASES[f"{_kind}Pad{_dims}d"] = lambda d=_dims, p=_pad: [real(2, 3, *[4, 5, 3][:d]), p]
        CASES[f"{_kind}Pad{_dims}dBackward"] = lambda d=_dims, p=_pad: [
            aten.constant_pad_nd(real(2, 3, *[4, 5, 3][:d]), p), real(2, 3, *[4, 5, 3][:d]), p
        ]  # fmt: skip


def outputs(row: Row) -> set[str]:
    """Return the parameters that the row only writes."""
    tree = ast.parse(row.program.replace("; ", "\n"))
    written, read = set(), set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            written.add(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "resize":
            written.add(node.args[0].id)  # type: ignore[attr-defined]
            skipped.add(node.args[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            schema = overload(node.func)._schema
            given = list(zip((a.name for a in schema.arguments), node.args, strict=False))
            given += [(keyword.arg or "", keyword.value) for keyword in node.keywords]
            outs = {a.name for a in schema.arguments if a.is_out}
            for name, value in given:
                if name in outs and isinstance(value, ast.Name):
                    written.add(value.id)
                    skipped.add(value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in skipped:
            read.add(node.id)
    return {name for _, name in row.parameters if name in written - read}


def by_rule(row: Row, kind: str, name: str) -> Any:
    """Return an argument for a row of elementwise kind, from its kind and name."""
    integers = any(part in row.name for part in INTEGER_ROWS)
    if kind == "tensor":
        if name == "mask" or name == "cond":
            return flags(3, 4)
        if name == "target" and "Loss" not in row.name or row.name.startswith("Foreach"):
            return torch.tensor(0.75)
        return whole(3, 4, high=4) if integers or "Logical" in row.name else real(3, 4)
    if kind == "tensors":
        return several(positive if "Pow" in row.name or "Log" in row.name else real)
    return {
        "scalar": 3 if integers else 0.75, "scalars": [0.75, 1.5, -2.0], "ints": [1], "bools": [True],
        "int": {"decimals": 1, "reduction": 1, "mode": 1, "approximate_mode": 1}.get(name, 1), "int8": 0, "int32": 1,
        "bool": True, "double": 0.25, "float": 0.25, "dtype": torch.float32, "string": "tanh",
    }[kind]  # fmt: skip


def arguments(row: Row) -> list[Any]:
    """Return the arguments of a row's case."""
    written = outputs(row)
    if row.name in CASES:
        given = iter(CASES[row.name]())
        return [OUT if name in written else next(given) for _, name in row.parameters]
    return [OUT if name in written else by_rule(row, kind, name) for kind, name in row.parameters]
