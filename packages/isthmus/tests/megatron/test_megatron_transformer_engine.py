"""The stand-ins for Transformer Engine's layers compute the same as Megatron's local layers and PyTorch."""

import pytest

from tests.helpers.children import output, run
from tools.repository import ROOT

START = """
import warnings; warnings.simplefilter("ignore")
import isthmus.megatron, torch
import torch.nn.functional as F
from transformer_engine import pytorch as te
device = "cuda"
torch.manual_seed(1)
"""
MODELS = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
    """
import warnings; warnings.simplefilter("ignore")
import pretrain_gpt_core as example, torch
from gpt_core.flags import parse_args
from megatron.core.models.gpt import gpt_layer_specs as specs
from megatron.core.models.gpt.gpt_model import GPTModel

def model_of(args, spec):
    config = example.transformer_config(args)
    return GPTModel(config, spec, vocab_size=32, max_sequence_length=16, position_embedding_type="rope").cuda()

def fused_name(name):
    name = name.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
    return name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
"""
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("flags", ["", "--normalization LayerNorm --num-query-groups 2"])
def test_a_model_is_that_of_the_local_layers(flags):
    output(
        MODELS
        + f"""
args = parse_args(["--num-layers", "2", "--no-gradient-accumulation-fusion", *{flags.split()!r}])
example.start_process_group()
example.start_parallelism(args)
normalization = example.transformer_config(args).normalization
local = model_of(args, specs.get_gpt_layer_local_spec(normalization=normalization))
engine = model_of(args, specs.get_gpt_layer_with_transformer_engine_spec())
with torch.no_grad():
    for name, each in local.named_parameters():
        each.copy_(torch.randn_like(each) / 8 + ("norm" in name and name.endswith("weight")))
weights = {{fused_name(name): each for name, each in local.named_parameters()}}
assert set(weights) == set(dict(engine.named_parameters()))
left = engine.load_state_dict(weights, strict=False)
assert not left.unexpected_keys and all("_extra_state" in name for name in left.missing_keys)
tokens = torch.randint(32, (2, 16)).cuda()
places = torch.arange(16).expand(2, 16).cuda()
losses = [model(tokens, places, None, labels=(tokens + 1) % 32) for model in (local, engine)]
torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-6)
for each in losses:
    each.sum().backward()
found = dict(engine.named_parameters())
for name, each in weights.items():
    torch.testing.assert_close(found[name].grad, each.grad, rtol=1e-5, atol=1e-6)
""",
        ISTHMUS_HOST_DEVICES="1",
    )


def test_masks_windows_and_packed_sequences():
    output(
        START
        + """
def expected(q, k, v, hidden):
    heads = [each.permute(1, 2, 0, 3) for each in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, attn_mask=~hidden).permute(2, 0, 1, 3).flatten(2)

s, b, h, d = 6, 2, 4, 8
q, k, v = (torch.randn(s, b, h, d, device=device) for _ in range(3))
attention = te.DotProductAttention(h, d, attention_dropout=0.0)
row, column = torch.arange(s, device=device)[:, None], torch.arange(s, device=device)
later = (column > row).expand(b, 1, s, s)
padding = torch.zeros(b, 1, 1, s, dtype=torch.bool, device=device)
padding[1, ..., 4:] = True
arbitrary = (row == 5) & (column == 2)
for kind, mask, hidden in (
    ("no_mask", None, torch.zeros_like(later)),
    ("causal", None, later),
    ("causal", padding, later),
    ("padding", padding, padding.expand(b, 1, s, s)),
    ("padding_causal", padding, padding | later),
    ("arbitrary", arbitrary.expand(b, 1, s, s), arbitrary.expand(b, 1, s, s)),
):
    found = attention(q, k, v, mask, attn_mask_type=kind)
    torch.testing.assert_close(found, expected(q, k, v, hidden), rtol=1e-5, atol=1e-5)
found = attention(q, k, v, attn_mask_type="causal", window_size=(2, 0))
torch.testing.assert_close(found, expected(q, k, v, later | (column < row - 2)), rtol=1e-5, atol=1e-5)

ends = torch.tensor([0, 2, 6], dtype=torch.int32, device=device)
one = [each[:, 0] for each in (q, k, v)]
packed = dict(qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=4, max_seqlen_kv=4)
found = attention(*one, attn_mask_type="padding_causal", **packed)
alone = [attention(q[a:b, :1], k[a:b, :1], v[a:b, :1], attn_mask_type="causal") for a, b in ((0, 2), (2, 6))]
torch.testing.assert_close(found, torch.cat(alone).flatten(1), rtol=1e-5, atol=1e-5)
packed.update(cu_seqlens_q_padded=ends, cu_seqlens_kv_padded=ends)
assert torch.equal(found, attention(*one, attn_mask_type="padding_causal", **packed))
try:
    attention(*one, attn_mask_type="padding", **packed)
except ValueError as error:
    assert "require causal attention" in str(error)
else:
    raise AssertionError("padding between sequences was attended to")
"""
    )


@pytest.mark.full
def test_experts_take_their_own_rows():
    output(
        START
        + """
layer = te.GroupedLinear(3, 8, 5, bias=True, params_dtype=torch.float32)
inp = torch.randn(7, 8, device=device, requires_grad=True)
out = layer(inp, [4, 0, 3])
parts = ((inp[:4], 0), (inp[4:], 2))
other = torch.cat([F.linear(x, getattr(layer, f"weight{i}"), getattr(layer, f"bias{i}")) for x, i in parts])
torch.testing.assert_close(out, other, rtol=1e-6, atol=1e-6)
out.square().sum().backward()
assert layer.weight0.grad.abs().sum() > 0 and layer.weight1.grad.abs().sum() == 0
assert sorted(name for name in layer.state_dict() if name.startswith("weight")) == ["weight0", "weight1", "weight2"]
"""
    )


def test_random_states_by_name():
    output(
        START
        + """
tracker = te.distributed.CudaRNGStatesTracker()
tracker.add("a", 5)
before = torch.cuda.get_rng_state()
draws = []
for _ in range(2):
    with tracker.fork("a"):
        draws.append(torch.rand(3, device=device))
assert torch.equal(torch.cuda.get_rng_state(), before) and not draws[0].equal(draws[1])
torch.cuda.manual_seed(5)
assert torch.rand(3, device=device).equal(draws[0])
for arguments in (("a", 6), ("b", 5)):
    try:
        tracker.add(*arguments)
    except RuntimeError as error:
        print(error)
"""
    )


@pytest.mark.host("a driver's own graphs refuse random numbers")
def test_graphs_of_layers_and_micro_batches():
    """Two layers, two micro-batches in the order of a pipeline, one keyword argument, dropout by a named state."""
    output(
        START
        + """
from transformer_engine.pytorch.distributed import CudaRNGStatesTracker, get_all_rng_states

tracker = CudaRNGStatesTracker()
tracker.add("a", 5)

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = te.Linear(8, 8, params_dtype=torch.float32)

    def forward(self, x, *, scale):
        with tracker.fork("a"):
            return F.dropout(self.linear(x) * scale)

layers = (Layer(), Layer())
make = lambda: torch.randn(4, 8, device=device, requires_grad=True)
batches, scale = [make() for _ in range(2)], torch.tensor(2.0, device=device)

def run(calls):
    get_all_rng_states()["a"].manual_seed(5)
    outputs = []
    for batch, x in enumerate(batches):
        hidden = x
        for number in range(2):
            hidden = calls(batch, number)(hidden, scale=scale)
        outputs.append(hidden)
    for each in outputs:
        each.square().sum().backward()
    tensors = [*batches, *(each for layer in layers for each in layer.parameters())]
    grads = [each.grad.clone() for each in tensors]
    for each in tensors:
        each.grad = None
    return [*(each.detach() for each in outputs), *grads]

expected = [run(lambda _, number: layers[number]) for _ in range(2)][1]
samples, before = [(make(),) for _ in range(4)], torch.cuda.get_rng_state()
calls = te.make_graphed_callables(
    layers, samples, sample_kwargs=[{"scale": torch.ones_like(scale)} for _ in range(4)],
    _order=[1, 1, -1, -1], allow_unused_input=True,
)
assert len(calls) == 4 and torch.equal(torch.cuda.get_rng_state(), before)
for _ in range(2):
    found = run(lambda batch, number: calls[2 * batch + number])
    assert all(map(torch.equal, found, expected))

from transformer_engine.pytorch.utils import make_weak_ref
weak, = make_weak_ref([batches[0] * 2])
weak.requires_grad = False  # Megatron 0.16 does the same
assert weak.is_leaf
"""
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("with te.fp8_autocast(enabled=True): pass", "FP8 needs the real Transformer Engine"),
        (
            "te.Linear(4, 4, ub_overlap_ag=True)",
            "Linear: ub_overlap_ag=True needs the real Transformer Engine",
        ),
        ("te.LayerNormLinear(4, 4, normalization='L2')", "it must be LayerNorm or RMSNorm"),
        ("te.DotProductAttention(2, 4, softmax_type='learnable')", "softmax_type=learnable needs"),
    ],
)
def test_missing_features_are_refused(code, said):
    done = run(START + code)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


def test_the_real_package_is_not_replaced(tmp_path):
    (tmp_path / "transformer_engine.py").write_text("__version__ = '9.9'\n")
    code = """
    import isthmus.megatron, transformer_engine
    print(transformer_engine.__version__)
    """
    assert output(code, PYTHONPATH=str(tmp_path)) == "9.9"
