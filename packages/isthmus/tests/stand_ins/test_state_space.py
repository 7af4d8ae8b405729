"""mamba_ssm, causal_conv1d and grouped_gemm under ``--provide``: against loops in float64, and in transformers."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from isthmus.stand_ins import provide
from tests.helpers.children import output

NAMES = ("grouped_gemm", "causal_conv1d", "mamba_ssm")


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    """Put the stand-ins on the module search path."""
    before = list(sys.path)
    sys.path[:0] = provide.folders(",".join(NAMES))
    yield
    sys.path[:] = before
    for name in [each for each in sys.modules if each.partition(".")[0] in NAMES]:
        del sys.modules[name]


def load(name):
    return importlib.import_module(name)


class Inputs:
    """Random tensors on the chip, and their copies in float64 on the CPU."""

    def __init__(self, dtype=torch.float32):
        self._generator, self._dtype = torch.Generator().manual_seed(0), dtype
        self.chip, self.wide = [], []

    def __call__(self, *shape, factor=1.0, offset=0.0, dtype=None):
        value = (torch.randn(shape, generator=self._generator) * factor + offset).to(dtype or self._dtype)
        self.chip.append(value.to("chip").requires_grad_())
        self.wide.append(value.double().requires_grad_())
        return self.chip[-1], self.wide[-1]

    def check(self, found, expected, tolerance=1e-4):
        """Compare results, and the gradients of all tensors."""
        torch.testing.assert_close(found.double().cpu(), expected, rtol=tolerance, atol=tolerance)
        grad = torch.randn(expected.shape, generator=self._generator).to(found.dtype)
        got = torch.autograd.grad(found, self.chip, grad.to("chip"), allow_unused=True)
        want = torch.autograd.grad(expected, self.wide, grad.double(), allow_unused=True)
        for a, b in zip(got, want, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                scale = b.abs().max().item() + 1e-3
                torch.testing.assert_close(a.double().cpu(), b, rtol=0, atol=tolerance * scale)


# ---- grouped_gemm -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("where", ["cpu", "chip"])
def test_products_of_groups(trans_b, where):
    module, inputs = load("grouped_gemm"), Inputs()
    a, wide_a = inputs(11, 5)
    b, wide_b = inputs(3, 7, 5) if trans_b else inputs(3, 5, 7)
    sizes = torch.tensor([4, 0, 7])
    used = wide_b.transpose(1, 2) if trans_b else wide_b
    expected = torch.cat([x @ y for x, y in zip(wide_a.split(sizes.tolist()), used, strict=True)])
    inputs.check(module.ops.gmm(a, b, sizes.to(where), trans_b), expected)
    c = torch.empty(11, 7, device="chip")
    assert module.backend.gmm(a, b, sizes, trans_b=trans_b, c=c) is c
    torch.testing.assert_close(c.double().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
    pairs = zip(wide_a.split([4, 0, 7]), expected.split([4, 0, 7]), strict=True)
    outer = torch.stack([x.t() @ y for x, y in pairs]).detach()
    found = module.backend.gmm(a, c, sizes, trans_a=True)
    torch.testing.assert_close(found.double().cpu(), outer, rtol=1e-4, atol=1e-4)


def test_what_products_of_groups_refuse():
    module, a, b = load("grouped_gemm"), torch.ones(4, 2), torch.ones(2, 2, 3)
    with pytest.raises(ValueError, match="exclude each other"):
        module.backend.gmm(a, b, torch.tensor([2, 2]), trans_a=True, trans_b=True)
    with pytest.raises(ValueError, match="do not match 4 rows of a"):
        module.backend.gmm(a, a, torch.tensor([2, 1]), trans_a=True)
    with pytest.raises(ValueError, match="the sizes of the groups"):
        module.ops.gmm(a, b, torch.tensor([2, 1]))


# ---- causal_conv1d ----------------------------------------------------------------------------------------------
def convolved(x, weight, bias, activation=None, index=None):
    """The convolution as a loop over positions; ``index`` separates sequences."""
    out = []
    for t in range(x.shape[-1]):
        total = torch.zeros_like(x[..., 0]) if bias is None else bias.expand_as(x[..., 0])
        for i in range(weight.shape[1]):
            s = t - weight.shape[1] + 1 + i
            if s >= 0:
                seen = 1.0 if index is None else (index[:, s] == index[:, t]).double()[:, None]
                total = total + weight[:, i] * x[..., s] * seen
        out.append(total)
    out = torch.stack(out, -1)
    return out if activation is None else F.silu(out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("activation", "has_bias", "packed"), [(None, False, False), ("silu", True, False), ("swish", True, True)]
)
def test_convolution(dtype, activation, has_bias, packed):
    inputs = Inputs(dtype)
    x, wide = inputs(2, 5, 9)
    weight, wide_weight = inputs(5, 4)
    bias, wide_bias = inputs(5) if has_bias else (None, None)
    index = torch.tensor([[0] * 3 + [1] * 6, [0] * 2 + [1] * 3 + [2] * 4]) if packed else None
    found = load("causal_conv1d").causal_conv1d_fn(
        x, weight, bias, None if index is None else index.int().to("chip"), activation=activation
    )
    expected = convolved(wide, wide_weight, wide_bias, activation, index)
    inputs.check(found, expected, 1e-4 if dtype == torch.float32 else 3e-2)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_convolution_in_parts_is_that_of_the_whole(length):
    conv, generator = load("causal_conv1d"), torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*each, generator=generator).to("chip") for each in ((3, 5, 11), (5, 4), (5,))
    )
    whole, states = conv.causal_conv1d_fn(x, weight, bias, return_final_states=True, activation="silu")
    assert torch.equal(states, x[..., -3:])
    first, states = conv.causal_conv1d_fn(x[..., :length], weight, bias, None, None, True, activation="silu")
    assert torch.equal(states, F.pad(x[..., :length], (max(3 - length, 0), 0))[..., -3:])
    out = torch.empty_like(states)
    second, last = conv.causal_conv1d_fn(x[..., length:], weight, bias, None, states, True, out, "silu")
    assert last is out and torch.equal(last, x[..., -3:])
    torch.testing.assert_close(torch.cat((first, second), -1), whole)
    state, ring = torch.zeros(4, 5, 6, device="chip"), torch.zeros(3, 5, 6, device="chip")
    rows, found, around = torch.tensor([2, 0, 3], device="chip"), [], []
    for start in range(0, 11, length):
        part = x[..., start : start + length]
        part = part[..., 0] if length == 1 else part
        found.append(conv.causal_conv1d_update(part, state, weight, bias, "silu", conv_state_indices=rows))
        lengths = torch.full((3,), start, dtype=torch.int32, device="chip")
        if length < 4:
            around.append(conv.causal_conv1d_update(part, ring, weight, bias, "silu", lengths))
    for each in (found, around):
        if each:
            joined = torch.stack(each, -1) if length == 1 else torch.cat(each, -1)
            torch.testing.assert_close(joined, whole)
    assert torch.equal(state[rows], x[..., -6:]) and not state[1].any()


def test_states_of_packed_sequences():
    states = load("causal_conv1d.causal_conv1d_varlen").causal_conv1d_varlen_states
    x = torch.arange(1.0, 15.0).view(7, 2)
    found = states(x, torch.tensor([0, 1, 5, 7], dtype=torch.int32), 3)
    assert found.shape == (3, 2, 3)
    assert found[:, 0].tolist() == [[0.0, 0.0, 1.0], [5.0, 7.0, 9.0], [0.0, 11.0, 13.0]]


def test_what_convolutions_refuse():
    conv, x, weight = load("causal_conv1d").causal_conv1d_fn, torch.ones(1, 2, 3), torch.ones(2, 2)
    index = torch.zeros(1, 3, dtype=torch.int32)
    for arguments, said in (
        ({"activation": "gelu"}, "activation 'gelu' is not supported"),
        ({"seq_idx": index, "initial_states": x[..., :1]}, "seq_idx with initial_states"),
        ({"seq_idx": index, "return_final_states": True}, "seq_idx with return_final_states"),
    ):
        with pytest.raises(NotImplementedError, match=said):
            conv(x, weight, **arguments)


# ---- mamba_ssm: Mamba -------------------------------------------------------------------------------------------
def scanned(u, delta, A, B, C, D=None, z=None, bias=None, softplus=False):
    """The scan as a loop over positions."""
    delta = delta if bias is None else delta + bias[:, None]
    delta = F.softplus(delta) if softplus else delta
    state, out = torch.zeros(*u.shape[:2], A.shape[1], dtype=u.dtype), []

    def at(matrix, t):
        if matrix.dim() == 2:
            return matrix
        if matrix.dim() == 3:
            return matrix[..., t][:, None]
        return matrix[..., t].repeat_interleave(u.shape[1] // matrix.shape[1], 1)

    for t in range(u.shape[-1]):
        step = delta[..., t, None]
        state = (step * A).exp() * state + step * at(B, t) * u[..., t, None]
        out.append((state * at(C, t)).sum(-1))
    y = torch.stack(out, -1)
    y = y if D is None else y + u * D[:, None]
    return (y if z is None else y * F.silu(z)), state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["constant", "plain", "groups"])
def test_scan(dtype, form):
    inputs, full = Inputs(dtype), form != "constant"
    shape = {"constant": (6, 3), "plain": (2, 3, 7), "groups": (2, 2, 3, 7)}[form]
    pairs = [
        inputs(2, 6, 7),
        inputs(2, 6, 7, factor=0.3),
        inputs(6, 3, factor=0.3, offset=-1.0, dtype=torch.float32),
    ]
    pairs += [inputs(*shape), inputs(*shape)]
    pairs += [inputs(6, dtype=torch.float32), inputs(2, 6, 7), inputs(6, dtype=torch.float32)] if full else []
    function = load("mamba_ssm").selective_scan_fn
    arguments, wide = zip(*pairs, strict=True)
    found, last = function(*arguments, delta_softplus=full, return_last_state=True)
    expected, state = scanned(*wide, softplus=full)
    assert found.dtype == dtype and last.dtype == torch.float32 and not last.requires_grad
    torch.testing.assert_close(last.double().cpu(), state.detach(), rtol=1e-3, atol=1e-3)
    inputs.check(found, expected, 1e-4 if dtype == torch.float32 else 3e-2)


def test_scan_refuses_complex_matrices():
    u = torch.ones(1, 2, 3)
    with pytest.raises(NotImplementedError, match="a complex A is not supported"):
        load("mamba_ssm").selective_scan_fn(u, u, torch.ones(2, 2) * 1j, torch.ones(2, 2), torch.ones(2, 2))


@pytest.mark.parametrize("norms", [False, True])
def test_scan_with_its_projections(norms):
    inputs = Inputs()
    xz, wide_xz = inputs(2, 12, 7)
    conv, bias, into, delta, out, A, D, offset = (
        inputs(*shape, factor=0.5) for shape in ((6, 1, 4), (6,), (8, 6), (6, 2), (5, 6), (6, 3), (6,), (6,))
    )
    extra = [inputs(*shape, offset=1.0) for shape in ((3,), (3,), (6,))] if norms else []
    found = load("mamba_ssm").mamba_inner_fn(
        xz, conv[0], bias[0], into[0], delta[0], out[0], None, A[0], None, None, D[0], offset[0],
        **dict(zip(("b_rms_weight", "c_rms_weight", "dt_rms_weight"), (each[0] for each in extra), strict=False)),
    )  # fmt: skip
    x, z = wide_xz.chunk(2, 1)
    x = convolved(x, conv[1][:, 0], bias[1], "silu")
    steps, b, c = (x.transpose(1, 2) @ into[1].t()).split([2, 3, 3], -1)
    steps = steps @ delta[1].t()
    if norms:
        b, c, steps = (
            F.rms_norm(each, each.shape[-1:], weight[1], 1e-6)
            for each, weight in zip((b, c, steps), extra, strict=True)
        )
    steps, b, c = (each.transpose(1, 2) for each in (steps, b, c))
    y, _ = scanned(x, steps, A[1], b, c, D[1], z, offset[1], True)
    inputs.check(found, y.transpose(1, 2) @ out[1].t())


@pytest.mark.parametrize("heads", [0, 4])
def test_one_position_at_a_time(heads):
    """Updates of a state, in rows of a larger one, give the scan's positions."""
    generator = torch.Generator().manual_seed(0)

    def made(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    update = load("mamba_ssm.ops.triton.selective_state_update").selective_state_update
    inner = (heads, 3) if heads else (3,)
    x, dt, z = (made(5, 2, *inner) for _ in range(3))
    A, D, bias = -made(*inner, 6).abs(), made(*inner), made(*inner)
    b, c = (made(5, 2, 2, 6) if heads else made(5, 2, 6) for _ in range(2))
    big = torch.zeros(3, *inner, 6, dtype=torch.float64, device="chip")
    rows, found = torch.tensor([2, 0], device="chip"), []
    for t in range(5):
        arguments = (each.to("chip") for each in (x[t], dt[t], A, b[t], c[t], D, z[t], bias))
        found.append(update(big, *arguments, dt_softplus=True, state_batch_indices=rows).cpu())
    u, delta, gate = (each.flatten(2).permute(1, 2, 0) for each in (x, dt, z))
    b, c = ((each if heads else each.unsqueeze(2)).permute(1, 2, 3, 0) for each in (b, c))
    flat = (A.flatten(0, -2), b, c, D.flatten(), gate, bias.flatten())
    expected, state = scanned(u, delta, *flat, True)
    torch.testing.assert_close(torch.stack(found, -1).flatten(1, -2), expected)
    torch.testing.assert_close(big[rows].cpu().flatten(1, -2), state)
    assert not big[1].any()


@pytest.mark.parametrize(
    "options", [{}, {"bias": True, "dt_init": "constant"}, {"conv_bias": False, "dt_rank": 3}]
)
def test_layer(options):
    torch.manual_seed(0)
    kind = load("mamba_ssm").Mamba
    layer, x = kind(10, d_state=3, layer_idx=0, **options).to("chip"), torch.randn(2, 7, 10)
    steps = F.softplus(layer.dt_proj.bias.detach())
    assert (steps > 0.9e-3).all() and (steps < 0.11).all()
    wide = kind(10, d_state=3, **options).double()
    wide.load_state_dict({name: each.cpu() for name, each in layer.state_dict().items()})
    inner, z = wide.in_proj(x.double()).transpose(1, 2).chunk(2, 1)
    inner = F.silu(wide.conv1d(inner)[..., :7])
    dt, b, c = wide.x_proj(inner.transpose(1, 2)).split([wide.dt_rank, 3, 3], -1)
    dt, b, c = ((dt @ wide.dt_proj.weight.t()).transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2))
    y, _ = scanned(inner, dt, -wide.A_log.exp(), b, c, wide.D, z, wide.dt_proj.bias, True)
    expected = wide.out_proj(y.transpose(1, 2))
    found = layer(x.to("chip"))
    torch.testing.assert_close(found.double().cpu(), expected, rtol=1e-4, atol=1e-5)
    grad = torch.randn(2, 7, 10)
    found.backward(grad.to("chip"))
    expected.backward(grad.double())
    for a, b in zip(layer.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(a.grad.double().cpu(), b.grad, rtol=1e-3, atol=1e-4)
    state = SimpleNamespace(seqlen_offset=0, key_value_memory_dict={})
    with torch.no_grad():
        parts = [layer(x[:, :4].to("chip"), state)]
        for state.seqlen_offset in (4, 5, 6):
            parts.append(layer(x[:, state.seqlen_offset : state.seqlen_offset + 1].to("chip"), state))
    torch.testing.assert_close(torch.cat(parts, 1), found.detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="dt_init 'zero' is not supported"):
        kind(10, dt_init="zero")


# ---- mamba_ssm: Mamba-2 -----------------------------------------------------------------------------------------
def chunk_scanned(
    x, dt, A, B, C, D=None, z=None, bias=None, start=None, index=None, softplus=False, limit=(0.0, None)
):
    """The scan of Mamba-2 as a loop over positions."""
    dt = dt if bias is None else dt + bias
    dt = F.softplus(dt) if softplus else dt
    dt = dt.clamp(*limit)
    B, C = (each.repeat_interleave(x.shape[2] // each.shape[2], 2) for each in (B, C))
    state = torch.zeros(x.shape[0], *x.shape[2:], B.shape[-1], dtype=x.dtype) if start is None else start
    out = []
    for t in range(x.shape[1]):
        if index is not None:
            before = index[:, t - 1] if t else torch.zeros_like(index[:, 0])
            state = state * (index[:, t] == before).double()[:, None, None, None]
        decay = (dt[:, t] * A).exp()[..., None, None]
        state = decay * state + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        out.append((state * C[:, t, :, None]).sum(-1))
    y = torch.stack(out, 1)
    y = y if D is None else y + x * (D if D.dim() == 2 else D[:, None])
    return (y if z is None else y * F.silu(z)), state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["plain", "full", "packed"])
@pytest.mark.parametrize("chunk", [3, 4, 256])
def test_chunk_scan(dtype, form, chunk):
    inputs, full = Inputs(dtype), form == "full"
    pairs = [
        inputs(2, 11, 4, 3),
        inputs(2, 11, 4, factor=0.5),
        inputs(4, factor=0.3, offset=-1.0, dtype=torch.float32),
    ]
    pairs += [inputs(2, 11, 2, 5), inputs(2, 11, 2, 5)]
    more, wide_more = {}, {}
    if full:
        for name, short, shape in (
            ("D", "D", (4, 3)), ("z", "z", (2, 11, 4, 3)), ("dt_bias", "bias", (4,)),
            ("initial_states", "start", (2, 4, 3, 5)),
        ):  # fmt: skip
            more[name], wide_more[short] = inputs(*shape)
        more |= {"dt_softplus": True, "dt_limit": (0.1, 1.5)}
        wide_more |= {"softplus": True, "limit": (0.1, 1.5)}
    if form == "packed":
        index = torch.tensor([[0] * 4 + [1] * 7, [0] * 3 + [1] + [2] * 7])
        more["seq_idx"], wide_more["index"] = index.int().to("chip"), index
        more["D"], wide_more["D"] = inputs(4)
    arguments, wide = zip(*pairs, strict=True)
    combined = load("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined
    found, last = combined(*arguments, chunk, return_final_states=True, **more)
    expected, state = chunk_scanned(*wide, **wide_more)
    tolerance = 1e-4 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(last.detach().double().cpu(), state.detach(), rtol=1e-3, atol=1e-3)
    inputs.check(found, expected, tolerance)


@pytest.mark.parametrize("form", ["gate", "norm", "extra"])
def test_chunk_scan_with_its_projections(form):
    inputs, groups, extra = Inputs(), 2, 6 if form == "extra" else 0
    packed, wide = inputs(2, 7, extra + 12 + 12 + 2 * groups * 5 + 4)
    conv, bias, offset, A, D, out, out_bias, norm = (
        inputs(*shape, factor=0.5, offset=shift)
        for shape, shift in (((32, 4), 0), ((32,), 0), ((4,), 0), ((4,), -1), ((4,), 0), ((9, 12 + extra // 2), 0),
                             ((9,), 0), ((12,), 1))
    )  # fmt: skip
    combined = load("mamba_ssm.ops.triton.ssd_combined").mamba_split_conv1d_scan_combined
    before_gate = form == "extra"
    found = combined(
        packed, conv[0], bias[0], offset[0], A[0], D[0], 3, headdim=3, ngroups=groups, outproj_weight=out[0],
        outproj_bias=out_bias[0], rmsnorm_weight=None if form == "gate" else norm[0], norm_before_gate=before_gate,
    )  # fmt: skip
    front, z, xbc, dt = wide.split([extra, 12, 32, 4], -1)
    x, b, c = convolved(xbc.transpose(1, 2), conv[1], bias[1], "silu").transpose(1, 2).split([12, 10, 10], -1)
    y, _ = chunk_scanned(
        x.unflatten(-1, (4, 3)), dt, A[1], b.unflatten(-1, (2, 5)), c.unflatten(-1, (2, 5)), D[1], None, offset[1],
        softplus=True,
    )  # fmt: skip
    y = y.flatten(-2)
    if form == "gate":
        y = y * F.silu(z)
    else:
        y = y if before_gate else y * F.silu(z)
        y = F.rms_norm(y.unflatten(-1, (2, 6)), (6,), None, 1e-6).flatten(-2) * norm[1]
        y = y * F.silu(z) if before_gate else y
    if extra:
        y = torch.cat((F.silu(front[..., :3]) * front[..., 3:], y), -1)
    inputs.check(found, y @ out[1].t() + out_bias[1])


def test_what_chunk_scans_refuse():
    module, x = load("mamba_ssm.ops.triton.ssd_combined"), torch.ones(1, 2, 1, 1)
    with pytest.raises(NotImplementedError, match="return_varlen_states=True is not supported"):
        module.mamba_chunk_scan_combined(x, x[..., 0], x[0, 0, 0], x, x, 2, return_varlen_states=True)
    with pytest.raises(ValueError, match="needs headdim"):
        module.mamba_split_conv1d_scan_combined(x, x, None, x, x, torch.ones(1), 2)


@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize(("group", "before"), [(None, True), (3, False), (2, True)])
def test_norms_with_a_gate(name, group, before):
    inputs = Inputs()
    x, wide = inputs(4, 6)
    z, gate = inputs(4, 6)
    layer = getattr(load("mamba_ssm.ops.triton.layernorm_gated"), name)(6, 1e-4, group, before, device="chip")
    with torch.no_grad():
        for param in layer.parameters():
            param.uniform_(0.5, 1.5)
    expected = wide if before else wide * F.silu(gate)
    groups = expected.unflatten(-1, (-1, group or 6))
    if name == "LayerNorm":
        groups = groups - groups.mean(-1, keepdim=True)
    expected = (
        F.rms_norm(groups, groups.shape[-1:], None, 1e-4).flatten(-2) * layer.weight.detach().double().cpu()
    )
    expected = expected if layer.bias is None else expected + layer.bias.detach().double().cpu()
    inputs.check(layer(x, z), expected * F.silu(gate) if before else expected)


# ---- transformers -----------------------------------------------------------------------------------------------
MODELS = """
import sys
FOLDERS = {folders}
from isthmus import shim
shim.enter()
import importlib, torch, transformers
from transformers import MambaConfig, Mamba2Config
import transformers.models.mamba.modeling_mamba as mamba, transformers.models.mamba2.modeling_mamba2 as mamba2
sizes = dict(vocab_size=40, hidden_size=24, num_hidden_layers=2)
kinds = ((mamba, 'MambaForCausalLM', MambaConfig(state_size=5, **sizes)),
         (mamba2, 'Mamba2ForCausalLM', Mamba2Config(state_size=6, n_groups=2, chunk_size=4, num_heads=6, head_dim=8,
                                                    **sizes)))
tokens = (torch.arange(22, device='cuda') * 7 % 40).view(2, 11)
def run():
    found = []
    for module, name, config in kinds:
        torch.manual_seed(0)
        model = getattr(module, name)(config).to('cuda')
        for mode in (True, False):
            model.train(mode)
            model.zero_grad()
            loss = model(tokens, labels=tokens, use_cache=not mode).loss
            loss.backward()
            found += [loss.detach(), *(param.grad for param in model.parameters())]
        mask = torch.ones_like(tokens[:, :5])
        found.append(model.generate(tokens[:, :5], attention_mask=mask, max_new_tokens=4, do_sample=False).float())
    return found
slow = run()
sys.path[:0] = FOLDERS
for module in (mamba, mamba2):
    importlib.reload(module)
import mamba_ssm
called = []
scan = mamba_ssm.ops.triton.ssd_combined.chunk_scan
mamba_ssm.ops.triton.ssd_combined.chunk_scan = lambda *args: called.append(1) or scan(*args)
fast = run()
worst = max(((a - b).abs().max() / (a.abs().max() + 1e-9)).item() for a, b in zip(slow, fast, strict=True))
print(worst < 1e-4, len(called) > 3)
"""


@pytest.mark.full
def test_transformers_models_take_the_fast_path():
    pytest.importorskip("transformers.models.mamba2")
    folders = provide.folders("causal_conv1d,mamba_ssm")
    assert output(MODELS.format(folders=folders)).splitlines()[-1] == "True True"
