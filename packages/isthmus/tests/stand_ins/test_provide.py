"""``isthmus run --provide``: flash_attn and apex under their own import paths, by isthmus.ops."""

import importlib
import importlib.metadata as metadata
import inspect
import os
import re
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from isthmus.launch.run import Job, JobError
from isthmus.stand_ins import provide
from tests.helpers.children import output
from tests.helpers.command import run

ABSENT = [name for name in provide.PROVIDED if find_spec(name) is None]


@pytest.fixture(scope="module", autouse=True)
def on_the_path():
    """Return the PYTHONPATH of a job."""
    before = list(sys.path)
    sys.path[:0] = provide.folders(",".join(ABSENT))
    yield
    sys.path[:] = before
    modules = {each for names in provide.PROVIDED.values() for each in names}
    for name in [each for each in sys.modules if each.partition(".")[0] in modules]:
        del sys.modules[name]


def load(name):
    return importlib.import_module(name)


# ---- the command -----------------------------------------------------------------------------------------------
VERSIONS = """
import importlib.metadata as metadata, importlib.util
assert importlib.util.find_spec('flash_attn.bert_padding')
assert 'flash-attn' in metadata.packages_distributions()['flash_attn']
print(metadata.version('flash_attn'), metadata.version('flash-attn'), metadata.version('apex'))
from transformers.utils import is_flash_attn_2_available, is_apex_available
print(is_flash_attn_2_available(), is_apex_available())
import torch
from flash_attn import flash_attn_func
from apex.optimizers import FusedAdam
q = torch.randn(1, 5, 2, 8, device='cuda', requires_grad=True)
flash_attn_func(q, q, q, causal=True).sum().backward()
FusedAdam([q]).step()
"""
EAGER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
sizes = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
config = LlamaConfig(vocab_size=40, num_hidden_layers=2, **sizes)
tokens = torch.arange(14, device='cuda').view(2, 7)
mask = torch.ones_like(tokens)
mask[0, :3] = 0
found = []
for kind in ('eager', 'flash_attention_2'):
    torch.manual_seed(0)
    config._attn_implementation = kind
    model = LlamaForCausalLM(config).to('cuda')
    assert model.config._attn_implementation == kind
    found.append(model(tokens, attention_mask=mask).logits[mask.bool()])
    found[-1].square().sum().backward()
    found.append(model.model.layers[0].self_attn.q_proj.weight.grad)
torch.testing.assert_close(found[0], found[2], rtol=1e-4, atol=1e-5)
torch.testing.assert_close(found[1], found[3], rtol=1e-3, atol=1e-5)
print('alike')
"""


def test_a_job_finds_the_modules_and_their_versions():
    done = run("--quiet", "--provide", "flash_attn,apex", "-c", VERSIONS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2.8.3+isthmus", "2.8.3+isthmus", "0.1+isthmus", "True", "True"]


@pytest.mark.full
def test_transformers_flash_attention_is_its_eager_attention():
    done = run("--quiet", "--provide", "flash_attn", "-c", EAGER)
    assert done.stdout == "alike\n", done.stderr


def test_every_provided_package_has_a_version():
    paths = provide.folders(",".join(provide.PROVIDED))
    found = {each.metadata["Name"].replace("-", "_") for each in metadata.distributions(path=paths)}
    assert {*provide.PROVIDED, "flash_attn_3"} - {
        "transformer_engine"
    } == found  # Megatron takes its version as absent
    for name in found:
        (each,) = metadata.distributions(name=name, path=paths)
        assert each.version.endswith("+isthmus")
        if name in provide.PROVIDED:
            assert load(name).__version__ == each.version


def test_the_real_package_is_not_hidden(tmp_path):
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").touch()
    code = """
        from isthmus.launch.run import Job, JobError
        try:
            Job(["-c", "pass"], provide="apex").environment()
        except JobError as error:
            print(error)
    """
    said = output(code, PYTHONPATH=str(tmp_path))
    assert said.startswith(f"--provide: cannot provide apex: the real apex is installed ({tmp_path}")


def test_nothing_else_can_be_provided():
    expected = "cannot provide 'deep_ep'; expected one of flash_attn, apex, transformer_engine, xformers"
    with pytest.raises(JobError, match=expected):
        Job(["-c", "pass"], provide="deep_ep").environment()
    for name, hint in (
        ("flash-attn", "did you mean flash_attn?"),
        ("bitsandbytes", "pip install bitsandbytes"),
    ):
        with pytest.raises(JobError, match=re.escape(hint)):
            Job(["-c", "pass"], provide=name).environment()
    path = Job(["-c", "pass"], provide="apex", environ={"PYTHONPATH": "mine"}).environment()["PYTHONPATH"]
    assert [Path(each).name for each in path.split(os.pathsep)] == ["site", "apex", "mine"]


# ---- flash_attn -------------------------------------------------------------------------------------------------
def test_flash_attn_modules():
    module = load("flash_attn")
    assert load("flash_attn.flash_attn_interface").flash_attn_func is module.flash_attn_func
    assert load("flash_attn.layers.rotary").apply_rotary_emb_func
    x, weight = torch.randn(3, 8), torch.rand(8)
    expected = torch.nn.functional.rms_norm(x, (8,), weight, 1e-4)
    torch.testing.assert_close(load("flash_attn.ops.rms_norm").rms_norm(x, weight, 1e-4), expected)
    padding = load("flash_attn.bert_padding")
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    x = torch.randn(2, 3, 4)
    tokens, indices, *_ = padding.unpad_input(x, mask)
    assert torch.equal(padding.pad_input(tokens, indices, 2, 3), x * mask.unsqueeze(-1))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_modules(causal):
    """Packed sequences are separate; a call overrides its module; dropout is for training."""
    mha = load("flash_attn.modules.mha")
    qkv, starts = torch.randn(7, 3, 2, 8), torch.tensor([0, 3, 7], dtype=torch.int32)
    q, k, v = qkv.unbind(1)

    def expected(first, last):
        heads = (each[first:last].transpose(0, 1) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal).transpose(0, 1)

    itself = mha.FlashSelfAttention(causal=causal, attention_dropout=0.5).eval()
    torch.testing.assert_close(itself(qkv[None, :3])[0], expected(0, 3))
    apart = torch.cat([expected(0, 3), expected(3, 7)])
    torch.testing.assert_close(itself(qkv, cu_seqlens=starts, max_seqlen=4), apart)
    other = mha.FlashCrossAttention(causal=not causal)
    lengths = {"cu_seqlens": starts, "max_seqlen": 4, "cu_seqlens_k": starts, "max_seqlen_k": 4}
    torch.testing.assert_close(other(q, qkv[:, 1:], causal=causal, **lengths), apart)
    torch.testing.assert_close(other(q[None, :3], qkv[None, :3, 1:], causal=causal)[0], expected(0, 3))
    assert not torch.equal(itself.train()(qkv[None, :3])[0], expected(0, 3))


def test_cross_entropy_has_flash_attns_arguments():
    loss = load("flash_attn.losses.cross_entropy").CrossEntropyLoss
    logits, target = torch.randn(5, 7), torch.tensor([0, 1, -100, 6, 2])
    torch.testing.assert_close(loss()(logits, target), torch.nn.functional.cross_entropy(logits, target))
    total, part = loss(-100, "sum", 0.1, 0.5, 1e-2, False, None, True)(logits, target)
    lse = torch.logsumexp(0.5 * logits[target >= 0], -1)
    torch.testing.assert_close(part, 1e-2 * lse.square().sum())
    plain = torch.nn.functional.cross_entropy(0.5 * logits, target, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(total, plain + part)
    with pytest.raises(NotImplementedError, match="process_group is given"):
        loss(process_group=object())


def cache(batch=3, longest=9, heads=2, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, longest, heads, size, generator=generator) for _ in range(2)]


def attended(q, k, v, causal):
    """Attention with the last query aligned to the last key."""
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        seen = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


@pytest.mark.parametrize("causal", [False, True])
def test_decoding_over_a_cache(causal):
    decode, (k_cache, v_cache) = load("flash_attn").flash_attn_with_kvcache, cache()
    q, k, v = (torch.randn(2, 3, 2, 8) for _ in range(3))
    held, which = torch.tensor([4, 6], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)
    before = [k_cache.clone(), v_cache.clone()]
    out, lse = decode(q, k_cache, v_cache, k, v, cache_seqlens=held, cache_batch_idx=which, causal=causal,
                      cache_leftpad=torch.tensor([1, 0]), return_softmax_lse=True)  # fmt: skip
    assert lse.shape == (2, 2, 3)
    for i, (row, length, pad) in enumerate(((2, 4, 1), (0, 6, 0))):
        for now, was, new in ((k_cache, before[0], k), (v_cache, before[1], v)):
            assert torch.equal(now[row, :length], was[row, :length])
            assert torch.equal(now[row, length : length + 3], new[i])
            assert torch.equal(now[row, length + 3 :], was[row, length + 3 :])
        expected = attended(q[i], k_cache[row, pad : length + 3], v_cache[row, pad : length + 3], causal)
        torch.testing.assert_close(out[i], expected)
    with pytest.raises(ValueError, match="would have 10 keys, but the cache holds 9"):
        decode(q, k_cache, v_cache, k, v, cache_seqlens=7)


def test_a_paged_cache_is_the_same_cache():
    decode, (k_cache, v_cache) = load("flash_attn").flash_attn_with_kvcache, cache(2, 8)
    q, held = torch.randn(2, 1, 4, 8), torch.tensor([5, 8])
    table = torch.tensor([[3, 0], [1, 2]], dtype=torch.int32)
    paged = [torch.empty(4, 4, 2, 8) for _ in range(2)]
    for pages, whole in zip(paged, (k_cache, v_cache), strict=True):
        pages[table.long().flatten()] = whole.reshape(4, 4, 2, 8)
    expected = decode(q, k_cache, v_cache, cache_seqlens=held, causal=True)
    assert torch.equal(decode(q, *paged, cache_seqlens=held, block_table=table, causal=True), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_decoding_turns_by_the_position_in_the_cache(causal):
    decode = load("flash_attn").flash_attn_with_kvcache
    turn = load("flash_attn.layers.rotary").apply_rotary_emb
    angles = torch.arange(9).unsqueeze(1) * torch.tensor([1.0, 0.1, 0.01, 0.001])
    tables = (angles.cos(), angles.sin())
    q, k, v = (torch.randn(1, 6, 2, 8) for _ in range(3))
    k_cache, v_cache = (each.zero_() for each in cache(1))
    outs = [
        decode(q[:, i : i + 2], k_cache, v_cache, k[:, i : i + 2], v[:, i : i + 2], *tables, cache_seqlens=i,
               causal=causal, rotary_interleaved=False)
        for i in (0, 2, 4)
    ]  # fmt: skip
    turned = turn(k, *tables)
    torch.testing.assert_close(k_cache[:, :6], turned)
    if causal:
        torch.testing.assert_close(
            torch.cat(outs, 1)[0], attended(turn(q, *tables)[0], turned[0], v[0], True)
        )
    else:
        last = turn(q[:, 4:], *tables, seqlen_offsets=4)[:, :1]
        torch.testing.assert_close(outs[2][:, :1][0], attended(last[0], turned[0], v[0], False))


# ---- apex -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory_efficient", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_norms_have_the_gradients_of_pytorchs(affine, memory_efficient):
    norms = load("apex.normalization")
    for ours, theirs in ((norms.FusedLayerNorm, torch.nn.LayerNorm), (norms.FusedRMSNorm, torch.nn.RMSNorm)):
        mine = ours((3, 5), 1e-4, affine, memory_efficient).double()
        yours = theirs((3, 5), 1e-4, affine).double()
        yours.load_state_dict(mine.state_dict())
        with torch.no_grad():
            for a, b in zip(mine.parameters(), yours.parameters(), strict=True):
                b.copy_(a.uniform_(0.5, 2.0))
        x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(mine, x)
        grad = torch.randn(4, 3, 5, dtype=torch.float64)
        got = torch.autograd.grad(mine(x), [x, *mine.parameters()], grad)
        for a, b in zip(got, torch.autograd.grad(yours(x), [x, *yours.parameters()], grad), strict=True):
            torch.testing.assert_close(a, b)


def test_memory_efficient_norms_keep_no_input():
    for name in ("FusedLayerNorm", "FusedRMSNorm"):
        kept = []
        layer, x = getattr(load("apex.normalization"), name)(8, memory_efficient=True), torch.randn(4, 8)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda each, kept=kept: kept.append(each) or each, lambda each: each
        ):
            out = layer(x.requires_grad_())
        assert any(each.data_ptr() == out.data_ptr() for each in kept)
        assert all(each.data_ptr() != x.data_ptr() for each in kept)


def test_mixed_norms_give_the_weights_dtype():
    norms, x = load("apex.normalization"), torch.randn(4, 8, dtype=torch.bfloat16)
    for memory_efficient in (False, True):
        for kind in (norms.MixedFusedLayerNorm, norms.MixedFusedRMSNorm):
            layer = kind(8, memory_efficient=memory_efficient)
            x.requires_grad_().grad = None
            layer(x).sum().backward()
            assert layer(x).dtype == torch.float32 and x.grad.dtype == torch.bfloat16
    function = load("apex.normalization.fused_layer_norm").FusedLayerNormAffineFunction
    weight = torch.ones(8)
    got = function.apply(x.float(), weight, torch.zeros(8), (8,), 1e-5, True)
    torch.testing.assert_close(got, torch.nn.functional.layer_norm(x.float(), (8,), weight))


def test_adam_with_apexs_arguments():
    adam = load("apex.optimizers").FusedAdam
    mine = [torch.nn.Parameter(torch.linspace(-1, 1, n)) for n in (5, 33)]
    yours = [torch.nn.Parameter(each.detach().clone()) for each in mine]
    for options, peer in (
        ({"weight_decay": 0.1}, torch.optim.AdamW),
        ({"adam_w_mode": False}, torch.optim.Adam),
    ):
        weight_decay = options.get("weight_decay", 0.0)
        ours, theirs = adam(mine, lr=0.01, **options), peer(yours, lr=0.01, weight_decay=weight_decay)
        for step in range(3):
            for a, b in zip(mine, yours, strict=True):
                a.grad = b.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(step))
            ours.step()
            theirs.step()
        torch.testing.assert_close(mine, yours)
        assert ours.param_groups[0]["step"] == 3 and set(ours.state[mine[0]]) == {"exp_avg", "exp_avg_sq"}
        ours.zero_grad()
        assert mine[0].grad is None
    with pytest.raises(RuntimeError, match="takes a closure only"):
        ours.step(scale=2.0)


def test_adam_with_the_order_of_transformer_engines_arguments():
    adam = load("transformer_engine.pytorch.optimizers").FusedAdam
    optimizer = adam([torch.nn.Parameter(torch.ones(1))], 0.1, (0.5, 0.6), 1e-6, 0.2, bias_correction=False)
    others = inspect.signature(load("apex.optimizers").FusedAdam).parameters
    assert set(inspect.signature(adam).parameters) == set(others)
    assert optimizer.defaults == {
        "lr": 0.1, "bias_correction": False, "betas": (0.5, 0.6), "eps": 1e-6, "weight_decay": 0.2, "amsgrad": False,
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"bias_correction": False, "master_weights": True, "amsgrad": True}])
def test_a_graph_of_adam_advances_its_step_and_reads_the_learning_rate(options):
    adam = load("apex.optimizers").FusedAdam
    dtype = torch.bfloat16 if options else torch.float32
    both = [torch.nn.Parameter(torch.linspace(-1, 1, 33, device="chip", dtype=dtype)) for _ in range(2)]
    eager, captured = (
        adam([each], lr=0.5, capturable=mine, **options)
        for each, mine in zip(both, (False, True), strict=True)
    )
    for each in both:
        each.grad = torch.linspace(-1, 2, 33, device="chip", dtype=dtype)
    eager.step()
    captured.step()
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        captured.step()
    for rate in (0.1, 0.2):
        captured.param_groups[0]["lr"].fill_(rate)
        eager.param_groups[0]["lr"] = rate
        graph.replay()
        eager.step()
    torch.testing.assert_close(both[1], both[0])
    assert captured.param_groups[0]["step"].item() == 3
    for optimizer, said in ((eager, "capturable=True"), (adam([both[0]], capturable=True), "once before")):
        with pytest.raises(RuntimeError, match=said), torch.chip.graph(torch.chip.Graph()):
            optimizer.step()


def test_a_graph_of_adam_refuses_state_that_a_replay_would_reset():
    adam = load("apex.optimizers").FusedAdam
    first, later = (torch.nn.Parameter(torch.ones(4, device="chip")) for _ in range(2))
    optimizer = adam([first, later], capturable=True)
    first.grad = torch.ones_like(first)
    optimizer.step()
    later.grad = torch.ones_like(later)
    restored = adam([first, later], capturable=True)
    restored.load_state_dict(adam([first, later]).state_dict() | {"state": optimizer.state_dict()["state"]})
    for each in (optimizer, restored):
        with pytest.raises(RuntimeError, match="once before"), torch.chip.graph(torch.chip.Graph()):
            each.step()
        each.step()
        with torch.chip.graph(torch.chip.Graph()):
            each.step()
        # Transformer Engine counts with integers.
        each.param_groups[0]["step"] = each.param_groups[0]["step"].int()
        with pytest.raises(RuntimeError, match="once before"), torch.chip.graph(torch.chip.Graph()):
            each.step()


@pytest.mark.parametrize("form", ["gradient", "parameter", "view"])
def test_capturable_adam_with_strides_that_differ(form):
    adam = load("apex.optimizers").FusedAdam
    found = []
    for capturable in (False, True):
        whole = torch.arange(24.0, device="chip").view(4, 6)
        param = torch.nn.Parameter(
            {"gradient": whole[:3], "parameter": whole.t(), "view": whole[:, :3]}[form]
        )
        param.grad = torch.linspace(-1, 1, param.numel(), device="chip").view(param.shape)
        if form == "gradient":
            param.grad = param.grad.t().contiguous().t()
        optimizer = adam([param], lr=0.1, capturable=capturable)
        optimizer.step()
        optimizer.step()
        found.append(whole)
    torch.testing.assert_close(*found)


def test_loading_a_state_of_adam_keeps_this_optimizers_dtypes():
    adam = load("apex.optimizers").FusedAdam
    param = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    param.grad = torch.ones_like(param)
    wide = adam([param], master_weights=True)
    narrow = adam([param], master_weights=True, exp_avg_dtype=torch.bfloat16)
    wide.step()
    narrow.load_state_dict(wide.state_dict())
    dtypes = {name: value.dtype for name, value in narrow.state[param].items()}
    assert dtypes == {
        "exp_avg": torch.bfloat16, "exp_avg_sq": torch.float32, "master_param": torch.float32,
    }  # fmt: skip
    state = wide.state_dict()
    del state["param_groups"][0]["amsgrad"]  # apex and Transformer Engine save it like this
    narrow.load_state_dict(state)
    narrow.step()
    assert narrow.param_groups[0]["step"] == 2
    state["state"][0]["master_param"] = torch.zeros(4, dtype=torch.int16)
    with pytest.raises(ValueError, match="store_param_remainders=False"):
        narrow.load_state_dict(state)


def test_adam_with_narrow_means_and_decoupled_gradients():
    adam = load("apex.optimizers").FusedAdam
    means = {"exp_avg_dtype": torch.bfloat16, "exp_avg_sq_dtype": torch.bfloat16}
    mine, yours = (torch.nn.Parameter(torch.linspace(-1, 1, 8, dtype=torch.bfloat16)) for _ in range(2))
    narrow = adam([mine], lr=0.1, master_weights=True, use_decoupled_grad=True, **means)
    wide = adam([yours], lr=0.1, master_weights=True)
    for _ in range(3):
        mine.decoupled_grad, yours.grad = torch.ones(8), torch.ones(8, dtype=torch.bfloat16)
        narrow.step()
        wide.step()
    assert narrow.state[mine]["exp_avg"].dtype == torch.bfloat16
    masters = [
        each.get_unscaled_state(param, "master_param") for each, param in ((narrow, mine), (wide, yours))
    ]
    torch.testing.assert_close(*masters, rtol=0, atol=5e-3)
    assert not torch.equal(*masters)  # the means were rounded
    narrow.zero_grad()
    assert mine.decoupled_grad is None
    narrow.set_scaled_state(mine, "exp_avg", torch.full((8,), 0.5))
    assert narrow.get_unscaled_state(mine, "exp_avg").tolist() == [0.5] * 8
    with pytest.raises(ValueError, match="needs the scales"):
        adam([mine], exp_avg_dtype=torch.float16)


def test_adam_without_bias_correction_and_with_masters():
    adam = load("apex.optimizers").FusedAdam
    param = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = adam([param], lr=1e-4, bias_correction=False, master_weights=True)
    for _ in range(4):
        param.grad = torch.full_like(param, 2.0)
        optimizer.step()
    master, mean, square = torch.ones(4), 0.0, 0.0
    for _ in range(4):
        mean, square = mean + 0.1 * (2 - mean), square + 0.001 * (4 - square)
        master = master - 1e-4 * mean / (square**0.5 + 1e-8)
    state = optimizer.state[param]
    torch.testing.assert_close(state["master_param"], master)
    assert state["exp_avg"].dtype == torch.float32 and torch.equal(param.detach(), master.bfloat16())
    other = torch.nn.Parameter(param.detach().clone())
    again = adam([other], master_weights=True)
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["step"] == 4
    assert torch.equal(again.state[other]["master_param"], state["master_param"])


def test_norms_and_scaling_of_lists():
    amp, apply = load("amp_C"), load("apex.multi_tensor_apply").multi_tensor_applier
    grads, flag = [torch.full((n,), 2.0) for n in (4, 9, 0)], torch.zeros(1, dtype=torch.int32)
    total, each = apply(amp.multi_tensor_l2norm, flag, [grads], True)
    assert total.shape == (1,) and total.item() == pytest.approx(52**0.5)
    assert each.tolist() == pytest.approx([4.0, 6.0, 0.0])
    assert apply(amp.multi_tensor_l2norm, flag, [grads], False)[1].numel() == 0
    halves = [torch.empty(each.shape, dtype=torch.bfloat16) for each in grads]
    apply(amp.multi_tensor_scale, flag, [grads, halves], 0.5)
    assert flag.item() == 0 and all((each == 1).all() for each in halves)
    grads[1][3] = float("nan")
    apply(amp.multi_tensor_scale, flag, [grads, grads], 2.0)
    assert flag.item() == 1 and grads[0].tolist() == [4.0] * 4


@pytest.mark.full
def test_megatron_takes_them():
    pytest.importorskip("megatron.core")
    code = """
        import warnings
        warnings.simplefilter("error", UserWarning)
        from megatron.core.fusions.fused_layer_norm import HAVE_FUSED_LAYER_NORM
        from megatron.core.optimizer import Adam
        from megatron.core.optimizer.clip_grads import l2_norm_impl
        print(HAVE_FUSED_LAYER_NORM, Adam.__module__, l2_norm_impl.__module__)
    """
    paths = [*provide.folders("apex"), os.environ.get("PYTHONPATH", "")]
    said = output(code, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    assert said == "True apex.optimizers.fused_adam amp_C"


# ---- the hint for a missing package -------------------------------------------------------------------------------
HINT = "isthmus: {0} is not installed; `isthmus run --provide {1}` supplies a replacement"


@pytest.mark.parametrize(
    ("program", "module", "package"),
    [
        ("import flash_attn", "flash_attn", "flash_attn"),
        ("import importlib; importlib.import_module('flash_attn.layers.rotary')", "flash_attn", "flash_attn"),
        ("from apex.optimizers import FusedAdam", "apex", "apex"),
        ("import amp_C", "amp_C", "apex"),
        ("import flash_attn_interface", "flash_attn_interface", "flash_attn"),
        ("import xformers.ops", "xformers", "xformers"),
        ("from mamba_ssm import selective_scan_fn", "mamba_ssm", "mamba_ssm"),
        ("from causal_conv1d import causal_conv1d_fn", "causal_conv1d", "causal_conv1d"),
        ("raise ImportError('grouped_gemm is required')", "grouped_gemm", "grouped_gemm"),
        ("def f():\n  import transformer_engine.pytorch\nf()", "transformer_engine", "transformer_engine"),
        ("try:\n  import apex\nexcept ImportError:\n  raise ImportError('please install it')", "apex", "apex"),
        ("try:\n  import apex\nexcept ImportError as e:\n  raise RuntimeError('x') from e", "apex", "apex"),
        ("raise ImportError('the package flash_attn seems to be not installed.')", "flash_attn", "flash_attn"),
        ("import no_such_package", "", ""),
        ("try:\n  import flash_attn\nexcept ImportError:\n  pass\nimport no_such_package", "", ""),
        ("try:\n  import flash_attn\nexcept ImportError:\n  raise ValueError('another matter')", "", ""),
        ("import json.apex", "", ""),
    ],
)  # fmt: skip
def test_a_missing_package_that_can_be_provided_is_named(program, module, package, monkeypatch):
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "stand_ins" not in entry])
    provided = {each for names in provide.PROVIDED.values() for each in names}
    for name in [each for each in sys.modules if each.partition(".")[0] in provided]:
        monkeypatch.delitem(sys.modules, name)
    if module and PathFinder.find_spec(module):
        pytest.skip(f"the real {module} is installed")
    with pytest.raises(Exception) as caught:
        exec(program, {})
    assert provide.hint(caught.value) == (
        HINT.format(module, package).removeprefix("isthmus: ") if module else ""
    )


def test_the_hint_follows_the_traceback():
    done = run("--quiet", "-c", "import flash_attn")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[-1] == HINT.format("flash_attn", "flash_attn")
    assert lines[-2] == "ModuleNotFoundError: No module named 'flash_attn'"


def test_a_provided_package_gets_no_hint():
    with pytest.raises(ModuleNotFoundError) as caught:
        load("flash_attn.no_such_module")
    assert provide.hint(caught.value) == ""
