"""What the test of older.table does: each operator through aclopCompileAndExecute() against its meaning."""

import ctypes
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import grid_sample, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

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
        elif value and isinstance(value[0], float):
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
    check("RealDiv", [x, x.flip(0)], x / x.flip(0))
    check("ClipByValueV2", [x, -2.5, 7.0], x.clamp(-2.5, 7.0))
    check("ReduceMean", [x, [0, 2]], x.mean((0, 2), True), keep_dims=True)
    check("ReduceMax", [x, [1]], x.amax(1), keep_dims=False)
    check("ReduceSum", [x, [0, 2]], x.sum((0, 2), True), keep_dims=True)
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


def detections() -> None:
    """Overlaps, assignment and suppression of boxes, by hand."""
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [10.0, 10.0, 20.0, 20.0]])
    truths = torch.tensor([[0.0, 0.0, 10.0, 20.0]])
    single, double = 10.5**2, 10.5 * 20.5
    overlap = torch.tensor([[100 / (single + double - 100), 0.0]])
    check("Iou", [boxes, truths], overlap, mode="iou", eps=0.5)
    check("Iou", [boxes, truths], torch.tensor([[100 / double, 0.0]]), mode="iof", eps=0.5)

    assigned, flags = torch.tensor([0.0, 0.25, 0.5, 0.75]), torch.tensor([1, 1, 1, 0], dtype=torch.uint8)
    overlaps = torch.tensor([[0.8, 0.3, 0.1, 0.9], [0.3, 0.1, 0.3, 0.2]])
    most, where_most = overlaps.max(0)
    ends = overlaps.amax(1), torch.tensor([3, 0]).int()
    given = [assigned, overlaps, flags, most, where_most.int(), *ends]
    limits = {"pos_iou_thr": 0.5, "min_pos_iou": 0.25}
    for count, every, expected in (
        (9, True, [2, 0.25, 2, 0.75]), (9, False, [2, 0.25, 0.5, 0.75]), (1, True, [1, 0.25, 0.5, 0.75]),
    ):  # fmt: skip
        inputs = [*given, torch.tensor(count, dtype=torch.int32)]
        check("GridAssignPositive", inputs, torch.tensor(expected), **limits, gt_max_assign_all=every)

    corners = [[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 5.0], [5.0, 5.0, 6.0, 6.0]]
    scores = torch.tensor([[[0.6, 0.9], [0.7, 0.1], [0.5, 0.8]]])
    rule = {
        "score_threshold": 0.3,
        "iou_threshold": 0.5,
        "change_coordinate_frame": False,
        "transpose_box": False,
    }
    nmsed = torch.tensor([[corners[0], corners[2], corners[1], corners[2], [0.0] * 4]])
    best, labels = torch.tensor([[0.9, 0.8, 0.7, 0.5, 0.0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]])
    whole = torch.tensor([corners])[:, :, None]
    for given_boxes in (whole, whole.expand(1, 3, 2, 4)):
        for each, total, count in ((3, 5, 4), (3, 2, 2)):
            found = [nmsed[:, :total], best[:, :total], labels[:, :total], torch.tensor([count]).int()]
            sizes = {"max_size_per_class": each, "max_total_size": total}
            check("BatchMultiClassNonMaxSuppression", [given_boxes, scores], *found, **rule, **sizes)
    first = [nmsed[:, [0, 2]], best[:, [0, 2]], labels[:, [0, 2]], torch.tensor([2]).int()]
    sizes = {"max_size_per_class": 1, "max_total_size": 2}
    check("BatchMultiClassNonMaxSuppression", [whole, scores], *first, **rule, **sizes)


def ranges() -> None:
    """Values along an axis between two positions."""
    x, value = torch.randn(2, 3, 7), torch.tensor([8.0, 9.0])
    start, end = torch.tensor([[0, 2], [1, 4]]).int(), torch.tensor([[3, 4], [2, 6]]).int()
    for axis in range(3):
        expected = x.clone().movedim(axis, -1)
        for i, j in itertools.product(range(2), range(2)):
            rows = expected[j] if axis == 2 else expected
            rows[..., start[i, j] : end[i, j]] = value[i]
        check("MaskedFillRange", [x, start, end, value], expected.movedim(-1, axis).contiguous(), axis=axis)
    line = torch.arange(7.0)
    expected = torch.tensor([8.0, 9.0, 8.0, 8.0, 9.0, 9.0, 6.0])
    check("MaskedFillRange", [line, start, end, value], expected, axis=0)


def deformed() -> None:
    """Samples of a deformable convolution and their gradients, by grid_sample() in float64."""
    batch, height, width, channels, groups, rows, columns = 2, 6, 7, 4, 2, 3, 2
    kernel, strides, pads, dilations = [3, 2], [1, 2, 3, 1], [1, 0, 2, 0], [1, 1, 2, 1]
    x = torch.randn(batch, height, width, channels).double().requires_grad_()
    shape = (batch, rows, columns, 3, groups, *kernel)
    offsets = torch.randn(shape).double().requires_grad_()
    right, down, scale = offsets.unbind(3)
    across = (
        torch.arange(columns)[:, None, None, None] * strides[2] + torch.arange(2) * dilations[2] - pads[2]
    )
    below = torch.arange(rows)[:, None, None, None, None] * strides[1] - pads[0]
    below = below + torch.arange(3)[:, None] * dilations[1]
    sides = (right + across) * 2 / (width - 1) - 1, (down + below) * 2 / (height - 1) - 1
    points, scale = (
        torch.stack([*sides, scale], -1).permute(0, 3, 1, 4, 2, 5, 6).flatten(0, 1).split([2, 1], -1)
    )
    image = x.unflatten(3, (groups, -1)).permute(0, 3, 4, 1, 2).flatten(0, 1)
    samples = grid_sample(image, points.flatten(1, 2).flatten(2, 3), align_corners=True)
    y = samples * scale.reshape(len(samples), 1, *samples.shape[2:])
    y = y.unflatten(0, (batch, groups)).permute(0, 3, 4, 1, 2).flatten(3)
    grad = torch.randn_like(y)
    dx, doffsets = torch.autograd.grad(y, [x, offsets], grad)
    given = {"ksize": kernel, "strides": strides, "pads": pads, "dilations": dilations,
             "deformable_groups": groups, "data_format": "NHWC", "modulated": True}  # fmt: skip
    inputs = [x.detach().float(), offsets.detach().float().flatten(3)]
    check("DeformableOffsets", inputs, y.detach().float(), **given)
    check("DeformableOffsetsGrad", [grad.float(), *inputs], dx.float(), doffsets.float().flatten(3), **given)


def convolutions() -> None:
    """Convolutions of images, and their gradients."""
    x, weight, bias = torch.randn(2, 4, 7, 6), torch.randn(6, 2, 3, 2), torch.randn(6)
    x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, bias, (2, 1), (1, 0), (1, 2), 2)
    grad = torch.randn_like(y)
    dx, dweight = torch.autograd.grad(y, [x, weight], grad)
    given = {"strides": [1, 1, 2, 1], "pads": [1, 1, 0, 0], "dilations": [1, 1, 1, 2], "groups": 2,
             "data_format": "NCHW"}  # fmt: skip
    image, kernel = x.detach(), weight.detach()
    check("Conv2D", [image, kernel, bias], y.detach(), **given)
    check("Conv2D", [image, kernel], y.detach() - bias[:, None, None], **given)
    check("Conv2DBackpropInput", [list(x.shape), kernel, grad], dx, **given)
    check("Conv2DBackpropFilter", [image, list(weight.shape), grad], dweight, **given)


def norms() -> None:
    """Norms, in two steps: a sum of powers, and its root."""
    x = torch.randn(3, 4, 5)
    x[0, 0] = 0
    for p, given in (
        (3.0, 3.0), (2.0, 2.0), (0.0, 0.0), (math.inf, float(2**31 - 1)), (-math.inf, float(-(2**31))),
    ):  # fmt: skip
        for axes in ([0, 2], []):
            shape = torch.linalg.vector_norm(x, p, axes or None)
            rule = {"p": given, "axes": axes, "keepdim": False, "epsilon": 0.0}
            (powers,) = run("LpNormReduceV2", [x], [torch.zeros_like(shape)], **rule)
            check("LpNormUpdateV2", [powers], shape, p=given, epsilon=0.0)


LSTM = {
    "cell_type": "LSTM", "cell_depth": 1, "use_peephole": False, "keep_prob": 1.0, "cell_clip": -1.0,
    "num_proj": 0, "time_major": True, "gate_order": "ifjo"
}  # fmt: skip


def recurrent() -> None:
    """A direction of an LSTM and its gradients, over sequences of equal and of several lengths."""
    steps, batch, size, hidden = 4, 3, 5, 2
    for cell, lengths in itertools.product((0, 1), (None, [4, 3, 1])):
        module = torch.nn.LSTM(size, hidden, bidirectional=True).double()
        x = torch.randn(steps, batch, size).double().requires_grad_()
        states = [torch.randn(2, batch, hidden).double().requires_grad_() for _ in range(2)]
        mask = None
        if lengths is None:
            y, ends = module(x, states)
        else:
            packed, ends = module(pack_padded_sequence(x, lengths), states)
            y, _ = pad_packed_sequence(packed)
            mask = torch.arange(steps)[:, None] < torch.tensor(lengths)
            mask = mask[..., None].expand(steps, batch, hidden).half()
        y, ends = y.chunk(2, -1)[cell], [end[cell] for end in ends]
        parameters = list(module.parameters())[4 * cell : 4 * cell + 4]
        first, second, bias, _ = parameters
        grads = [torch.randn_like(each) for each in (y, *ends)]
        expected = torch.autograd.grad([y, *ends], [first, second, bias, x, *states], grads)

        direction = {"direction": ("UNIDIRECTIONAL", "REDIRECTIONAL")[cell]}
        weight, bias = torch.cat([first, second], 1).t(), parameters[2] + parameters[3]
        start = [state[cell].detach().float() for state in states]
        given = [each.detach().float().contiguous() for each in (x, weight, bias)]
        outputs = run("DynamicRNN", [*given, mask, *start], [torch.zeros(steps, batch, hidden)] * 8,
                      **LSTM, **direction, activation="tanh", forget_bias=0.0, is_training=True)  # fmt: skip
        last = 0 if cell else steps - 1
        torch.testing.assert_close(
            [outputs[0], outputs[1][last], outputs[2][last]], [each.detach().float() for each in (y, *ends)]
        )
        unused = torch.zeros(())
        inputs = [*given, outputs[0], *start, *outputs[1:3], *(each.float() for each in grads), *outputs[3:],
                  unused if mask is None else mask, unused.byte(), *[unused] * 3]  # fmt: skip
        of_weights = torch.cat(expected[:2], 1).t().contiguous()
        wanted = [of_weights, *expected[2:4], *(each[cell] for each in expected[4:])]
        check(
            "DynamicRNNGrad", inputs, *(each.float() for each in wanted), **LSTM, **direction, forget_bias=0.0
        )


def cell() -> None:
    """A cell of an LSTM and its gradients; the weights are apart."""
    module = torch.nn.LSTMCell(5, 2).double()
    x, *states = (torch.randn(3, width).double().requires_grad_() for width in (5, 2, 2))
    ends = module(x, states)
    grads = [torch.randn_like(each) for each in ends]
    first, second, bias, other = module.parameters()
    expected = torch.autograd.grad(ends, [first, second, bias, x, *states], grads)
    given = [each.detach().float() for each in (first.t(), second.t())]
    start = [each.detach().float() for each in states]
    inputs = [x.detach().float()[None], *given, (bias + other).detach().float(), None, *start]
    common = LSTM | {"direction": "UNIDIRECTIONAL", "activation": "tanh"}
    outputs = run("DynamicRNNV2", inputs, [torch.zeros(1, 3, 2)] * 8, **common | {"gate_order": "ifco"},
                  forget_bias=0.0)  # fmt: skip
    torch.testing.assert_close([outputs[1][0], outputs[2][0]], [each.detach().float() for each in ends])
    unused = torch.zeros(())
    inputs = [inputs[0], *given, outputs[0], *start, *outputs[1:3], unused.expand(1, 3, 2),
              *(each.float() for each in grads), *outputs[3:], *[unused] * 4, unused.byte()]  # fmt: skip
    of_weights = [each.t().contiguous() for each in expected[:2]]
    wanted = [each.float() for each in (*of_weights, *expected[2:])]
    check("DynamicRNNV2Grad", inputs, *wanted, **common, recurrent_activation="sigmoid", stateful=False,
          merge_mode="concat")  # fmt: skip


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
    with fails(INVALID, "mode is diou, expected iou or iof"):
        check("Iou", [torch.ones(1, 4)] * 2, torch.ones(1, 1), mode="diou")
    with fails(INVALID, "start has 2 rows, expected 3"):
        check("MaskedFillRange", [torch.ones(3, 4), *[torch.ones(1, 2).int()] * 2, torch.ones(1)], x, axis=1)
    with fails(INVALID, "gate_order is ijfo, expected ifjo or ifco"):
        check("DynamicRNN", [x] * 6, x, gate_order="ijfo")
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


PARTS = (
    layouts, products, optimizers, gradients, boxes, detections, ranges, deformed, convolutions, norms, recurrent,
    cell,
)  # of valid calls  # fmt: skip


def every() -> None:
    """Run all of the above; no operator of the table is left out."""
    acl.aclrtSetDevice(0)
    torch.manual_seed(0)
    for part in (*PARTS, refusals):
        part()
    assert {row.name for row in older_rows()} <= ran, "operators without a test"
