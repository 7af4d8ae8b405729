"""What the test of older.table does: each operator through aclopCompileAndExecute() against its meaning."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import pad

from tests.ascend.older_jobs import ND, Operands, compiler
from tests.ascend.opapi import DATA_TYPES
from tests.ascend.runtime import UNSUPPORTED, acl, download, fails, upload
from tools.ascend.table import older_rows

INVALID, STREAM = 161002, 507015
HOST = 2  # aclMemType: memory of the host, of any value
acl.raw.aclopCreateAttr.restype = ctypes.c_void_p
ran: set[str] = set()


def content(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor."""
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())


class Tensors(Operands):
    """Operands of tensors; a number or a list of integers lies on the host."""

    def add(self, value: Any) -> "Tensors":
        """Add a tensor, a float, a list of integers, or None for an input that is left out."""
        if value is None:
            self.descriptions.append(acl.raw.aclCreateTensorDesc(-1, 0, None, ND))
            self.buffers.append(acl.raw.aclCreateDataBuffer(None, ctypes.c_size_t(0)))
            return self
        tensor = torch.as_tensor(value)
        sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
        self.descriptions.append(
            acl.raw.aclCreateTensorDesc(DATA_TYPES[tensor.dtype], tensor.dim(), sizes, ND)
        )
        data = content(tensor)
        address: Any = upload(data) if isinstance(value, torch.Tensor) else None
        if address is None:
            acl.aclSetTensorPlaceMent(self.descriptions[-1], HOST)
            self.hosts.append(ctypes.create_string_buffer(data, len(data)))
            address = ctypes.addressof(self.hosts[-1])
        self.addresses.append(address)
        self.buffers.append(acl.raw.aclCreateDataBuffer(ctypes.c_void_p(address), ctypes.c_size_t(len(data))))
        return self

    def __init__(self, *values: Any) -> None:
        super().__init__()
        self.addresses: list[int] = []
        for value in values:
            self.add(value)


def attributes(values: dict[str, Any]) -> int:
    """Return a handle of attributes of these values."""
    made: int = acl.raw.aclopCreateAttr()
    for name, value in values.items():
        key = name.encode()
        if isinstance(value, bool):
            acl.aclopSetAttrBool(made, key, ctypes.c_uint8(value))
        elif isinstance(value, int):
            acl.aclopSetAttrInt(made, key, ctypes.c_int64(value))
        elif isinstance(value, float):
            acl.aclopSetAttrFloat(made, key, ctypes.c_float(value))
        elif isinstance(value, str):
            acl.aclopSetAttrString(made, key, value.encode())
        elif isinstance(value[0], float):
            acl.aclopSetAttrListFloat(made, key, len(value), (ctypes.c_float * len(value))(*value))
        else:
            acl.aclopSetAttrListInt(made, key, len(value), (ctypes.c_int64 * len(value))(*value))
    return made


def run(
    name: str, inputs: Sequence[Any], outputs: Sequence[torch.Tensor], **given: Any
) -> list[torch.Tensor]:
    """Return the outputs of an operator; `outputs` gives their contents before it."""
    ran.add(name)
    results = Tensors(*outputs)
    sources = Tensors(*inputs)
    operands = (*sources.lists(), *results.lists(), attributes(given))
    compiler.aclopCompileAndExecute(name.encode(), *operands, 0, 0, None, None)
    acl.aclrtSynchronizeStream(None)
    read = []
    for address, output in zip(results.addresses, outputs, strict=True):
        data = bytearray(download(address, output.numel() * output.element_size()))
        read.append(torch.frombuffer(data, dtype=output.dtype).reshape(output.shape))
    return read


def check(name: str, inputs: Sequence[Any], *expected: torch.Tensor, **given: Any) -> None:
    """Compare the outputs of an operator."""
    outputs = run(name, inputs, [torch.zeros_like(each) for each in expected], **given)
    torch.testing.assert_close(outputs, list(expected), equal_nan=True)


def layouts() -> None:
    """Casts, layouts and comparisons."""
    x = torch.arange(24.0).reshape(2, 3, 4) - 11.5
    check("Cast", [x], x.int(), dst_type=3)
    check("BroadcastTo", [x[:, :1], [2, 5, 4]], x[:, :1].expand(2, 5, 4))
    check("Fill", [[3, 2], torch.tensor([1.5])], torch.full((3, 2), 1.5))
    check("Pad", [x, [1, 0, 0, 2, 3, 1]], pad(x, (3, 1, 0, 2, 1, 0)))
    turned = x.permute(2, 0, 1).reshape(4, 6)
    check("ConfusionTransposeD", [x], turned, perm=[2, 0, 1], shape=[4, 6], transpose_first=True)
    other = x.reshape(4, 6).permute(1, 0)
    check("ConfusionTransposeD", [x], other, perm=[1, 0], shape=[4, 6], transpose_first=False)
    for name, compare in (
        ("Equal", torch.eq), ("NotEqual", torch.ne), ("Less", torch.lt), ("LessEqual", torch.le),
        ("Greater", torch.gt), ("GreaterEqual", torch.ge),
    ):  # fmt: skip
        check(name, [x, x.flip(0)], compare(x, x.flip(0)))
        check(name, [x, 0.5], compare(x, 0.5))
    check("Select", [x > 0, x, x.flip(0)], torch.where(x > 0, x, x.flip(0)))
    check("ZerosLike", [x], x * 0)
    check("ReduceMin", [x, [0, 2]], x.amin((0, 2), True), keep_dims=True)
    check("LogSoftmaxV2", [x], x.log_softmax(1), axes=[1])
    for name, extreme in (("ArgMaxWithValue", torch.max), ("ArgMinWithValue", torch.min)):
        values, indices = extreme(x, 1, keepdim=True)
        check(name, [x], indices.int(), values, dimension=1, keep_dims=True)
    inputs = x.clone().requires_grad_()
    smooth = torch.nn.functional.mish(inputs)
    check("Mish", [x], smooth.detach())
    check("MishGrad", [x, x], *torch.autograd.grad(smooth, inputs, x))


def products() -> None:
    """Products of matrices, with and without bias, and of 16-bit floats."""
    a, b, bias = torch.randn(5, 3), torch.randn(5, 4), torch.randn(4)
    check("MatMul", [a, b, bias], a.T @ b + bias, transpose_x1=True, transpose_x2=False)
    halves = a.T.half(), b.half()
    check("MatMul", halves, (halves[0].float() @ halves[1].float()).half())
    batches = a.expand(2, 5, 3), b.T.expand(2, 4, 5)
    check("BatchMatMul", batches, (a.T @ b).expand(2, 3, 4), adj_x1=True, adj_x2=True)


def optimizers() -> None:
    """A step of Adam and of AdamW, in place."""
    var, m, v, grad = (torch.rand(6) for _ in range(4))
    rate, beta1, beta2, epsilon = 0.1, 0.9, 0.99, 1e-6
    first, second = m.lerp(grad, 1 - beta1), v.lerp(grad.square(), 1 - beta2)
    step = rate * math.sqrt(1 - beta2**3) / (1 - beta1**3)
    moved = var - step * first / (second.sqrt() + epsilon)
    scalars = [beta1**3, beta2**3, rate, beta1, beta2, epsilon]
    check(
        "ApplyAdamD", [var, m, v, *scalars, grad], moved, first, second, use_locking=False, use_nesterov=False
    )
    scalars = [beta1**2, beta2**2, rate, 0.01, beta1, beta2, epsilon]
    size = (second / (1 - beta2**3)).sqrt() + epsilon
    moved = var * (1 - rate * 0.01) - rate * first / (1 - beta1**3) / size
    check(
        "ApplyAdamW", [var, m, v, *scalars, grad, None], moved, first, second, amsgrad=False, maximize=False
    )


def gradients() -> None:
    """Distances, and dropout by a mask of bytes."""
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf):
        x1, x2 = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)
        distance = torch.cdist(x1, x2, p)
        grad = torch.randn(4, 5)
        (expected,) = torch.autograd.grad(distance, x1, grad)
        whole = [grad[..., None], x1.detach()[:, None], x2[None], distance.detach()[..., None]]
        inputs = [each.expand(4, 5, 3) for each in whole]
        check("CdistGrad", inputs, expected, p=-1.0 if p == math.inf else p)
    (mask,) = run("DropOutGenMaskV3", [[1000], 0.8], [torch.zeros(1000, dtype=torch.uint8)], seed=5, seed2=0)
    assert set(mask.tolist()) == {0, 1} and 700 < mask.sum() < 900
    x = torch.randn(1000)
    check("DropOutDoMaskV3", [x, mask, 0.8], x * mask / 0.8)
    check("DropOutDoMaskV3", [x, mask * 0, 0.0], x * 0)
    logs, targets = torch.randn(7, 2, 5).log_softmax(2), torch.tensor([[1, 2, 2], [3, 1, 4]])
    loss, alpha = torch._ctc_loss(logs, targets, [7, 6], [3, 2], 0, False)
    unused = torch.zeros_like(alpha)  # gradients compute it again
    for blank in (0, 3 * 5):
        check("CTCLossV2", [logs, targets, [7, 6], [3, 2]], loss, unused, blank=blank, zero_infinity=False)


def boxes() -> None:
    """Boxes of detectors, by hand."""
    flags = torch.zeros(6, 2, dtype=torch.uint8)
    flags[4] = 1  # row 1, column 1 of 2 rows and 3 columns
    given = {"featmap_size": [2, 3], "strides": [8, 8], "num_base_anchors": 2}
    inside, outside = [8.0, 6.0, 14.0, 16.0], [90.0, 90.0, 99.0, 99.0]
    check("AnchorResponseFlags", [torch.tensor([inside, outside])], flags.view(-1), **given)
    anchor, truth = torch.tensor([[1.0, 2.0, 4.0, 7.0]]), torch.tensor([[2.0, 1.0, 9.0, 6.0]])
    deltas = torch.tensor([[3 / 4, -1 / 6, math.log(2), 0.0]])
    scale = {"means": [0.5, 0.0, 0.0, 0.0], "stds": [0.1, 0.1, 0.2, 0.2]}
    encoded = (deltas - torch.tensor(scale["means"])) / torch.tensor(scale["stds"])
    check("BoundingBoxEncode", [anchor, truth], encoded, **scale)
    clip = {"max_shape": [20, 30], "wh_ratio_clip": 0.01}
    check("BoundingBoxDecode", [anchor, encoded], truth, **scale, **clip)
    first, second = torch.tensor([[0.0], [0.0], [4.0], [2.0]]), torch.tensor([[2.0], [1.0], [4.0], [5.0]])
    iou, hull, distance = 2 / 14, 20, (1**2 + 2**2) / (4**2 + 5**2)
    rule = {"trans": False, "is_cross": False, "mode": "iou"}
    check("GIoU", [first, second], torch.tensor([[iou - (hull - 14) / hull]]), **rule)
    check("DIoU", [first, second], torch.tensor([[iou - distance]]), **rule)
    turn = math.atan(2 / 4) - math.atan(4 / 2)
    v = 4 / math.pi**2 * turn**2
    ciou = torch.tensor([[iou - distance - v * v / (1 - iou + v)]])
    check("CIoU", [first, second], ciou, torch.tensor([[turn]]), **rule, atan_sub_flag=True)
    own, truths = [[2.0], [1.0], [4.0], [2.0]], [[3.0, 2.0], [3.0, 1.0], [2.0, 4.0], [4.0, 2.0]]
    centred = torch.tensor(own), torch.tensor(truths)
    crossed = torch.tensor([[iou - distance], [1.0]])
    check("DIoU", centred, crossed, trans=True, is_cross=True, mode="iou")


def refusals() -> None:
    """Attributes and operands that do not fit are refused by name."""
    x = torch.ones(2, 3)
    with fails(INVALID, "attribute axes is not supported"):
        check("Cast", [x], x, axes=[1])
    with fails(INVALID, "attribute axes has another type"):
        check("LogSoftmaxV2", [x], x, axes=1.5)
    with fails(INVALID, "shape must lie on the host"):
        check("BroadcastTo", [x, torch.tensor([2, 3])], x)
    with fails(INVALID, "mode is iof, expected iou"):
        check("GIoU", [torch.ones(4, 1)] * 2, torch.ones(1, 1), mode="iof")
    with fails(INVALID, "1 inputs and 9 outputs, expected 3 with the attributes"):
        check("Cast", [x], *[x] * 9)
    with fails(INVALID, "boxes has shape [2, 3], expected (n, 4)"):
        check("AnchorResponseFlags", [x], x.byte(), featmap_size=[1, 1], strides=[1, 1], num_base_anchors=1)
    with fails(STREAM, "targets has a class outside of [0, 5)"):
        check("CTCLossV2", [torch.ones(3, 1, 5), torch.tensor([[1, 5]]), [3], [2]], x[0, :1], x[:1])
    with fails(INVALID, "needs more bytes than there are addresses"):
        wide = Tensors(x)
        sizes = (ctypes.c_int64 * 2)(1 << 32, 1 << 32)
        wide.descriptions[0] = acl.raw.aclCreateTensorDesc(0, 2, sizes, ND)
        compiler.aclopCompileAndExecute(b"ZerosLike", *wide.lists(), *wide.lists(), None, 0, 0, None, None)
    with fails(INVALID, "is not memory of this process"):
        nowhere = Tensors(x, [2, 3])
        nowhere.buffers[1] = acl.raw.aclCreateDataBuffer(ctypes.c_void_p(64), ctypes.c_size_t(16))
        results = Tensors(x).lists()
        compiler.aclopCompileAndExecute(b"BroadcastTo", *nowhere.lists(), *results, None, 0, 0, None, None)
    with fails(UNSUPPORTED, "operator Nothing of the older interface is not implemented"):
        check("Nothing", [x], x)


PARTS = (layouts, products, optimizers, gradients, boxes)  # of valid calls


def every() -> None:
    """Run all of the above; no operator of the table is left out."""
    acl.aclrtSetDevice(0)
    torch.manual_seed(0)
    for part in (*PARTS, refusals):
        part()
    assert {row.name for row in older_rows()} <= ran, "operators without a test"
