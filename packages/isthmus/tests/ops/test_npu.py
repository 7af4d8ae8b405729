"""isthmus.ops by torch_npu: against a stand-in with the documented signatures, as no such device was there.

It shows that arguments are passed as the plugin documents them, and which calls are refused; not that the plugin's
kernels compute what its documentation says.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from isthmus.ops import npu
from isthmus.ops.registration import operators
from tests.helpers.children import output

BF16 = torch.bfloat16


def npu_rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> Any:
    assert gamma.dtype == x.dtype and gamma.dim() == 1
    wide = x.float()
    rstd = (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return (wide * rstd * gamma).to(x.dtype), rstd


def npu_add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> Any:
    out, rstd = npu_rms_norm(x1.float() + x2.float(), gamma.float(), epsilon)
    return out.to(x1.dtype), rstd, x1 + x2


def npu_swiglu(x: Any, dim: int = -1) -> Any:
    first, second = x.chunk(2, dim)
    return (F.silu(first.float()) * second).to(x.dtype)


def npu_rotary_mul(x: Any, r1: Any, r2: Any, rotary_mode: str = "half") -> Any:
    assert x.dim() == r1.dim() == r2.dim() == 4 and r1.shape[-1] == r2.shape[-1] == x.shape[-1]
    if rotary_mode == "half":
        first, second = x.chunk(2, -1)
        other = torch.cat([-second, first], -1)
    else:
        assert rotary_mode == "interleave"
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * r1 + other * r2


def npu_fusion_attention(
    query: Any, key: Any, value: Any, head_num: int, input_layout: str, *, atten_mask: Any = None,
    scale: float = 1.0, keep_prob: float = 1.0, sparse_mode: int = 0,
) -> Any:  # fmt: skip
    assert (input_layout, head_num, keep_prob, sparse_mode) == ("BSND", query.shape[2], 1.0, 0)
    groups = head_num // key.shape[2]
    q, k, v = (each.float().transpose(1, 2) for each in (query, key, value))
    scores = q @ k.repeat_interleave(groups, 1).transpose(2, 3) * scale
    if atten_mask is not None:  # True is masked out
        assert atten_mask.dtype == torch.bool and atten_mask.shape == scores.shape[2:]
        scores = scores.masked_fill(atten_mask, -torch.inf)
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top).exp()
    total = weights.sum(-1, keepdim=True)
    out = (weights / total @ v.repeat_interleave(groups, 1)).transpose(1, 2).to(query.dtype)
    return out, top.expand(*top.shape[:-1], 8), total.expand(*total.shape[:-1], 8), None, 0, 0, 0


def npu_fused_infer_attention_score(
    query: Any, key: Any, value: Any, *, atten_mask: Any, actual_seq_lengths: Any, actual_seq_lengths_kv: Any,
    block_table: Any, num_heads: int, num_key_value_heads: int, scale: float, input_layout: str, block_size: int,
    sparse_mode: int, pre_tokens: int, next_tokens: int,
) -> Any:  # fmt: skip
    assert (input_layout, num_heads) == ("TND", query.shape[1]) and actual_seq_lengths[-1] == query.shape[0]
    assert key.shape[1:] == (block_size, num_key_value_heads * query.shape[2])
    assert sparse_mode in (0, 3, 4) and (atten_mask is None) == (sparse_mode == 0)
    if atten_mask is not None:  # the compressed form
        assert torch.equal(atten_mask, torch.ones(2048, 2048, dtype=torch.bool).triu(1))
    outs, begin = [], 0
    for end, length, row in zip(actual_seq_lengths, actual_seq_lengths_kv, block_table, strict=True):
        rows = row[: -(-length // block_size)].long()
        k, v = (
            each[rows].flatten(0, 1)[:length].unflatten(-1, (num_key_value_heads, -1))
            for each in (key, value)
        )
        distance = torch.arange(length - (end - begin), length)[:, None] - torch.arange(length)
        hidden = {
            0: distance < -length,
            3: distance < 0,
            4: (distance < -next_tokens) | (distance > pre_tokens),
        }
        made = npu_fusion_attention(
            query[None, begin:end], k[None], v[None], num_heads, "BSND", atten_mask=hidden[sparse_mode], scale=scale
        )  # fmt: skip
        outs.append(made[0][0])
        begin = end
    return torch.cat(outs), torch.zeros(1)


@pytest.fixture(autouse=True)
def plugin(monkeypatch):
    """The stand-in under the plugin's name."""
    functions = (
        npu_rms_norm,
        npu_add_rms_norm,
        npu_swiglu,
        npu_rotary_mul,
        npu_fusion_attention,
        npu_fused_infer_attention_score,
    )
    module = SimpleNamespace(**{each.__name__: each for each in functions})
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    npu._plugin.cache_clear()
    yield
    npu._plugin.cache_clear()


def rest(**changes: Any) -> tuple[Any, ...]:
    """The arguments of attention after query, key and value."""
    names = "bias mask slopes cu_q cu_k rng longest_q longest_k scale left right top_left softcap dropout_p"
    defaults = dict.fromkeys(names.split()) | {"longest_q": 5, "longest_k": 7, "scale": 0.25}
    return tuple((defaults | {"top_left": False, "softcap": 0.0, "dropout_p": 0.0} | changes).values())


def paged(ends=(0, 1, 4, 6), lengths=(130, 3, 40), block=128, dtype=BF16, **changes: Any) -> tuple[Any, ...]:
    """The arguments of paged_attention: decode, a prompt and a later chunk, and a token of padding."""
    cache = [tokens(5, block, 2, size, dtype=dtype) for size in (16, changes.pop("value_size", 16))]
    table = torch.tensor([[3, 1], [0, 9], [4, 9]], dtype=torch.int32)
    out = tokens(7, 4, cache[1].shape[-1], dtype=dtype)
    numbers = [torch.tensor(each, dtype=torch.int32) for each in (ends, lengths)]
    names = "slopes sinks key_scale value_scale out lse longest_q longest_k scale left right softcap"
    defaults = dict.fromkeys(names.split()) | {"out": out, "longest_q": 6, "longest_k": 130, "scale": 0.25}
    others = defaults | {"right": 0, "softcap": 0.0} | changes
    return (tokens(7, 4, 16, dtype=dtype), *cache, table, *numbers, *others.values())


def tokens(*shape: int, dtype: Any = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


Q, K, V = tokens(2, 5, 4, 16), tokens(2, 7, 2, 16), tokens(2, 7, 2, 16)
TABLE = tokens(9, 32, dtype=torch.float32)
TURN = (
    tokens(2, 9, 4, 64, dtype=torch.float32),
    tokens(2, 9, 2, 64, dtype=torch.float32),
    TABLE.cos(),
    TABLE.sin(),
)
CASES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "rms_norm": ("rms_norm", (tokens(3, 8), tokens(8), 1e-5)),
    "add_rms_norm": ("add_rms_norm", (tokens(3, 8), tokens(3, 8), tokens(8), 1e-5)),
    "swiglu": ("swiglu", (tokens(3, 8), None, -1)),
    "rotary by halves": ("rotary", (*TURN, None, 1, 64, -1, False, False)),
    "rotary interleaved, back": ("rotary", (*TURN, None, 1, 64, -1, True, True)),
    "attention": ("attention", (Q, K, V, *rest())),
    "attention, causal": ("attention", (Q, K, V, *rest(right=0))),
    "attention, causal from the first": ("attention", (Q, K, V, *rest(right=0, top_left=True))),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_are_as_documented_and_results_as_the_composites(case):
    name, arguments = CASES[case]
    call, refuses = npu._SERVED[name]
    assert refuses(*arguments) == ""
    found, expected = call(*arguments), operators()[name].composite(*arguments)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for made, wanted in pairs:
        torch.testing.assert_close(made, wanted, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize(
    "changes",
    [{}, {"left": 5}, {"right": None}, {"ends": (0, 1, 1, 6)}, {"ends": (0, 1, 6, 6)}],
    ids=["causal", "window", "all keys", "no query", "more queries than keys"],
)
def test_paged_attention_is_as_the_composite(changes):
    given, expected = paged(**changes), paged(**changes)
    call, refuses = npu._SERVED["paged_attention"]
    assert refuses(*given) == ""
    call(*given)
    operators()["paged_attention"].composite(*expected)
    torch.testing.assert_close(given[10], expected[10], rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("paged_attention", paged(dtype=torch.float32), "no kernel for queries of torch.float32"),
        ("paged_attention", paged(softcap=2.0), "no ALiBi"),
        ("paged_attention", paged(lse=torch.zeros(4, 7)), "log-sum-exp"),
        ("paged_attention", paged(right=1), "no window"),
        ("paged_attention", paged(left=1, right=None), "no window"),
        ("paged_attention", paged(block=16), "blocks of 16 tokens"),
        ("paged_attention", paged(value_size=8), "head sizes 16 and 8"),
        ("rms_norm", (tokens(3, 8), None, 1e-5), "needs a weight"),
        ("rms_norm", (tokens(3, 8), torch.ones(8), 1e-5), "needs a weight of torch.bfloat16"),
        ("rms_norm", (tokens(3, 8).double(), torch.ones(8).double(), 1e-5), "no kernel for torch.float64"),
        ("add_rms_norm", (tokens(3, 8), torch.ones(3, 8), tokens(8), 1e-5), "needs a residual"),
        ("swiglu", (tokens(3, 8), tokens(3, 8), -1), "in one tensor"),
        ("rotary", (*TURN, torch.arange(9), 1, 64, -1, False, False), "takes no positions"),
        ("rotary", (*TURN, None, 1, 32, -1, False, False), "rotates whole heads"),
        (
            "rotary",
            (TURN[0].bfloat16(), None, *TURN[2:], None, 1, 64, -1, False, False),
            "dtype of the tables",
        ),
        ("attention", (Q.float(), K.float(), V.float(), *rest()), "no kernel for torch.float32"),
        ("attention", (Q, K, V, *rest(mask=torch.ones(1, 1, 5, 7) > 0)), "no bias, mask"),
        ("attention", (Q, K, V, *rest(dropout_p=0.1)), "dropout"),
        ("attention", (K, Q, Q, *rest(longest_q=7, longest_k=5, right=0)), "no visible key"),
    ],
)
def test_options_not_documented_to_match_are_refused(name, arguments, reason):
    assert reason in npu._SERVED[name][1](*arguments)


def test_they_are_registered_where_the_plugin_is_and_serve_its_devices_alone(tmp_path):
    (tmp_path / "torch_npu.py").write_text("raise AssertionError('imported before a call takes it')\n")
    code = """
        import torch
        from types import SimpleNamespace
        from isthmus import ops
        from isthmus.ops.registration import operators
        print([name for name, each in ops.implementations().items() if "npu" in each])
        (one,) = [each for each in operators()["rms_norm"]._implementations if each.name == "npu"]
        print(one.on(SimpleNamespace(type="npu")), one.on(torch.device("cpu")))
        print(ops.rms_norm(torch.ones(2, 8)).shape)
    """
    said = output(code, PYTHONPATH=str(tmp_path)).splitlines()
    assert sorted(eval(said[0])) == sorted(npu._SERVED)
    assert said[1:] == ["True False", "torch.Size([2, 8])"]
    assert (
        output("from isthmus import ops; print(any('npu' in e for e in ops.implementations().values()))")
        == "False"
    )
