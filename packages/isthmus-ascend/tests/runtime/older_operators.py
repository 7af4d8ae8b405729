"""Job for the test of older.table: each operator through aclopCompileAndExecute() against its meaning."""

import ctypes
import itertools
import math

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from isthmus_ascend.generate.table import older_rows
from tests.runtime.older_calls import Tensors, check, ran, run
from tests.runtime.older_jobs import ND, compiler
from tests.runtime.runtime import UNSUPPORTED, acl, fails

INVALID, STREAM = 161002, 507015


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
    for name, compute in (("Add", torch.add), ("Sub", torch.sub), ("Mul", torch.mul), ("RealDiv", torch.div)):
        check(name, [x, x.flip(0)], compute(x, x.flip(0)))
        check(name, [x, 0.5], compute(x, 0.5))
    check("TensorEqual", [x, x], torch.tensor([True]))
    check("TensorEqual", [x, x.flip(0)], torch.tensor([False]))
    check("AxpyV2", [x, x.flip(0), 0.5], x + 0.5 * x.flip(0))
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
    check("Abs", [x], x.abs())
    check("ConcatD", [x, x.flip(0), x[:1]], torch.cat([x, x.flip(0), x[:1]]), N=3, concat_dim=0)
    masks = {"begin_mask": 1, "end_mask": 2, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
    check("StridedSlice", [x, [1, 1, 0], [1, 0, 4], [1, 1, 2]], x[:1, 1:, ::2].contiguous(), **masks)
    for descending in (False, True):
        check("SortV2", [x], x.sort(1, descending).values, axis=1, descending=descending)


def activations() -> None:
    """Swish, and layers of norms."""
    x = torch.randn(2, 3, 4).requires_grad_()
    for scale in (1.0, 2.5):
        check("Swish", [x.detach()], (x * (x * scale).sigmoid()).detach(), scale=scale)
    y, grad = torch.nn.functional.silu(x), torch.randn(2, 3, 4)
    check("SwishGrad", [grad, x.detach(), y.detach()], *torch.autograd.grad(y, x, grad))
    weight, bias = torch.randn(3, 4), torch.randn(3, 4)
    outputs = torch.native_layer_norm(x.detach(), [3, 4], weight, bias, 0.1)
    given = {"begin_norm_axis": 1, "begin_params_axis": 1, "epsilon": 0.1}
    check("LayerNormV3", [x.detach(), weight, bias], *outputs, **given)


def draws() -> None:
    """Random numbers: the same for the same seed and offset."""
    drawn = []
    for seed, offset in ((5, 0), (5, 0), (5, 8)):
        inputs = [[1000], [seed], [0, offset], torch.tensor(1).int()]
        drawn += run("StatelessRandomNormalV2", inputs, [torch.zeros(1000)], dtype=0)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert drawn[0].mean().abs() < 0.2 and (drawn[0].std() - 1).abs() < 0.2


def overflow() -> None:
    """The status of floats: it never tells of an overflow, which gives infinity here."""
    status = torch.zeros(8)
    for name, inputs in (
        ("NPUAllocFloatStatus", []), ("NPUGetFloatStatusV2", []), ("NPUGetFloatDebugStatus", []),
        ("NPUGetFloatStatus", [status]), ("NPUClearFloatStatus", [status]),
    ):  # fmt: skip
        check(name, inputs, status)
        assert torch.equal(run(name, inputs, [torch.ones(8)])[0], status)
    for name in ("NPUClearFloatStatusV2", "NPUClearFloatDebugStatus"):
        check(name, [])


def products() -> None:
    """Products of matrices, with and without bias, and of 16-bit floats."""
    a, b, bias = torch.randn(5, 3), torch.randn(5, 4), torch.randn(4)
    check("MatMul", [a, b, bias], a.T @ b + bias, transpose_x1=True, transpose_x2=False)
    halves = a.T.half(), b.half()
    check("MatMul", halves, (halves[0].float() @ halves[1].float()).half())
    check("MatMulV2", [a, b, bias], a.T @ b + bias, transpose_x1=True, transpose_x2=False, offset_x=0)
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
    for mode, most, norm in (("adam", -1.0, 8.0), ("mbart_adam", 2.0, 8.0), ("mbart_adam", 9.0, 8.0)):
        clipped = grad / max(1, norm / most) if most > 0 else grad
        first, second = m.lerp(clipped, 1 - beta1), v.lerp(clipped.square(), 1 - beta2)
        step, decay = 0.25, 0.5
        size = rate if mode == "adam" else step
        moved = var * (1 - rate * decay) - size * first / (second.sqrt() + epsilon)
        inputs = [var, m, v, rate, beta1, beta2, epsilon, grad, most, norm, decay]
        check("ApplyAdamV2", inputs + [step] * (mode != "adam"), moved, first, second, adam_mode=mode)


def losses() -> None:
    """Cross entropy with its gradient, and softmax with dropout."""
    x, labels = torch.randn(4, 5).requires_grad_(), torch.rand(4, 5).softmax(1)
    loss = torch.nn.functional.cross_entropy(x, labels, reduction="none")
    grad = torch.autograd.grad(loss.sum(), x)
    check("SoftmaxCrossEntropyWithLogits", [x.detach(), labels], loss.detach(), *grad)
    other, mask = torch.randn(4, 5), torch.randint(2, (128,)).byte()
    softmax = (other + 0.5 * x).softmax(-1)
    dropped = softmax * mask[:20].view(4, 5) / 0.8
    given = {"alpha": 0.5, "input_keep_prob": 0.8}
    outputs = softmax.detach(), dropped.detach()
    check("AxpyWithSoftmaxAndDropOutDoMask", [other, x.detach(), mask], *outputs, axis=[-1], **given)
    inputs = [other, mask, softmax.detach()]
    (expected,) = torch.autograd.grad(dropped, x, other)
    check("DropoutWithMulsAndSoftmaxGrad", inputs, expected, axes=[-1], **given)


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
    check("Conv2DTranspose", [list(x.shape), grad, kernel], dx, **given, output_padding=[0] * 4)

    x, weight, bias = torch.randn(2, 4, 5, 7, 6), torch.randn(6, 2, 2, 3, 2), torch.randn(6)
    x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.conv3d(x, weight, bias, (1, 2, 1), (0, 1, 0), (2, 1, 2), 2)
    grad = torch.randn_like(y)
    dx, dweight = torch.autograd.grad(y, [x, weight], grad)
    given = {"strides": [1, 1, 1, 2, 1], "pads": [0, 0, 1, 1, 0, 0], "dilations": [1, 1, 2, 1, 2], "groups": 2,
             "data_format": "NCDHW"}  # fmt: skip
    volume, kernel = x.detach(), weight.detach()
    check("Conv3D", [volume, kernel, bias], y.detach(), **given)
    check("Conv3DBackpropInput", [list(x.shape), kernel, grad], dx, **given)
    check("Conv3DBackpropFilter", [volume, list(weight.shape), grad], dweight, **given)
    given["output_padding"] = [0] * 5
    check("Conv3DTranspose", [list(x.shape), grad, kernel], dx, **given)
    shifted = dx + bias[:4, None, None, None]
    check("Conv3DTranspose", [list(x.shape), grad, kernel, bias[:4].contiguous()], shifted, **given)


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


GRU = {
    "direction": "UNIDIRECTIONAL", "cell_depth": 1, "keep_prob": 1.0, "cell_clip": -1.0, "num_proj": 0,
    "time_major": True, "gate_order": "rzh", "reset_after": True,
}  # fmt: skip


def gru() -> None:
    """A layer of a GRU and its gradients."""
    steps, batch, size, hidden = 4, 3, 5, 2
    module = torch.nn.GRU(size, hidden).double()
    x = torch.randn(steps, batch, size).double().requires_grad_()
    state = torch.randn(1, batch, hidden).double().requires_grad_()
    y, end = module(x, state)
    grads = [torch.randn_like(each) for each in (y, end)]
    first, second, bias, other = module.parameters()
    expected = torch.autograd.grad([y, end], [first, second, bias, other, x, state], grads)
    given = [each.detach().float().contiguous() for each in (x, first.t(), second.t())]
    start, biases = state.detach().float(), [each.detach().float() for each in (bias, other)]
    outputs = run("DynamicGRUV2", [*given, *biases, None, start], [torch.zeros(steps, batch, hidden)] * 6, **GRU,
                  activation="tanh", is_training=True)  # fmt: skip
    torch.testing.assert_close(outputs[:2], [y.detach().float()] * 2)
    check("DynamicGRUV2", [*given, *biases, None, start], *outputs, **GRU)
    unused = torch.zeros(())
    inputs = [*given, outputs[0], start, outputs[1], *(each.float() for each in grads), *outputs[2:], unused,
              unused.byte()]  # fmt: skip
    wanted = [each.t().contiguous() for each in expected[:2]] + list(expected[2:])
    check("DynamicGRUV2Grad", inputs, *(each.float() for each in wanted), **GRU, bias_type="no_bias")


def refusals() -> None:
    """Attributes and operands that do not fit are refused by name."""
    x = torch.ones(2, 3)
    with fails(INVALID, "attribute axes is not supported"):
        check("Cast", [x], x, axes=[1])
    with fails(INVALID, "attribute axes has another type"):
        check("LogSoftmaxV2", [x], x, axes=1.5)
    with fails(INVALID, "shape must lie on the host"):
        check("BroadcastTo", [x, torch.tensor([2, 3])], x)
    with fails(INVALID, "adam_mode is sgd, expected adam or mbart_adam"):
        check("ApplyAdamV2", [x] * 3 + [1.0] * 4 + [x] + [1.0] * 4, x, x, x, adam_mode="sgd")
    with fails(INVALID, "data_format is NDHWC, expected NCHW or NCDHW"):
        check("Conv3D", [x, x], x, data_format="NDHWC")
    with fails(INVALID, "start has 2 rows, expected 3"):
        check("MaskedFillRange", [torch.ones(3, 4), *[torch.ones(1, 2).int()] * 2, torch.ones(1)], x, axis=1)
    with fails(INVALID, "gate_order is ijfo, expected ifjo or ifco"):
        check("DynamicRNN", [x] * 6, x, gate_order="ijfo")
    with fails(INVALID, "gate_order zrh, reset_after 0 and cell_clip 0, expected UNIDIRECTIONAL, rzh, true"):
        check("DynamicGRUV2", [x] * 7, x, gate_order="zrh")
    with fails(INVALID, "1 inputs and 9 outputs, expected 3 with the attributes"):
        check("Cast", [x], *[x] * 9)
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
    layouts, activations, draws, overflow, products, optimizers, losses, gradients, ranges, convolutions, norms,
    recurrent, cell, gru,
)  # valid calls  # fmt: skip


def every() -> None:
    """Run all of the above; no operator of the table is left out."""
    acl.aclrtSetDevice(0)
    torch.manual_seed(0)
    for part in (*PARTS, refusals):
        part()
    assert {row.name for row in older_rows()} <= ran, "operators without a test"
