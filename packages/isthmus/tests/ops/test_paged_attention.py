"""Attention over a paged cache and writes into it, against plain mathematics in float64."""

import itertools
import math

import pytest
import torch

from isthmus import ops
from isthmus.ops.paged_attention import QUANTIZED, attend_paged
from tests.helpers.ops_checks import DTYPES, TOLERANCE, by_each, in_each_dtype, on_each_device

# Queries and keys of each sequence: prompts, decoding, a later chunk, none of either, many parts of keys.
MIXED = [(5, 5), (1, 37), (7, 20), (0, 9), (1, 1), (0, 0)]
LONG = [(1, 700), (70, 530), (1, 256), (3, 257), (130, 130)]
WITHOUT_KEYS = [(2, 0), (5, 3), (1, 0)]
OPTIONS = [
    {},
    {"causal": False},
    {"causal": False, "window": (-1, 2)},
    {"window": (3, 0), "scale": 0.7},
    {"window": (4, 1), "causal": False, "softcap": 1.5},
    {"alibi": 1, "sinks": True},
    {"alibi": 2, "softcap": 3.0, "window": (6, -1)},
    {"key_scale": 0, "value_scale": 1},
    {"key_scale": 2, "value_scale": 2, "sinks": True},
]


class Problem:
    """Arguments of a call over a cache with NaN in every row that no sequence uses."""

    def __init__(
        self, lengths, block, heads=6, key_heads=2, size=40, value_size=24, dtype=torch.float32, device="cpu",
        layout="separate", padding=0, seed=0, cache=None,
    ):  # fmt: skip
        random = torch.Generator().manual_seed(seed)
        queries, keys = zip(*lengths, strict=True)
        counts = [-(-n // block) for n in keys]
        blocks = sum(counts) + 3
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed + 1)).to(torch.int32)
        self.lengths, self.block, self.heads, self.key_heads = lengths, block, heads, key_heads
        self.table = torch.full((len(keys), max(counts) + 2), 2**31 - 1, dtype=torch.int32)
        both = torch.full((blocks, block, key_heads, size + value_size), math.nan)
        both = both.to(cache or dtype)
        start = 0
        for row, n, count in zip(self.table, keys, counts, strict=True):
            row[:count] = order[start : start + count]
            values = torch.randn(n, key_heads, size + value_size, generator=random)
            values = (values * 30 if cache == torch.int8 else values).to(both.dtype)
            for i in range(count):
                part = values[i * block : (i + 1) * block]
                both[row[i], : len(part)] = part
            start += count
        both = both.to(device)
        if layout == "heads":  # [blocks, key heads, block, features] in memory
            both = both.transpose(1, 2).contiguous().transpose(1, 2)
        self.key_cache, self.value_cache = both[..., :size], both[..., size:]
        if layout == "separate":
            self.key_cache, self.value_cache = self.key_cache.contiguous(), self.value_cache.contiguous()
        tokens = sum(queries) + padding
        self.q = torch.randn(tokens, heads, size, generator=random).to(dtype).to(device)
        self.ends = torch.tensor([0, *itertools.accumulate(queries)], dtype=torch.int32, device=device)
        self.keys = torch.tensor(keys, dtype=torch.int32, device=device)
        self.table = self.table.to(device)
        self.random = random

    def options(self, alibi=0, sinks=False, key_scale=-1, value_scale=-1, **plain):
        """Options with tensors: ``alibi`` and the scales are ranks."""

        def tensor(*shape):
            return (torch.rand(shape, generator=self.random) + 0.1).to(self.q.device)

        made = dict(plain)
        if alibi:
            made["alibi_slopes"] = tensor(*(len(self.lengths), self.heads)[2 - alibi :])
        if sinks:
            made["sinks"] = tensor(self.heads)
        for name, rank in (("key_scale", key_scale), ("value_scale", value_scale)):
            if rank >= 0:
                made[name] = tensor(*((), (1,), (self.key_heads,))[rank])
        return made

    @property
    def arguments(self):
        most = [max(each) for each in zip(*self.lengths, strict=True)]
        return self.q, self.key_cache, self.value_cache, self.table, self.ends, self.keys, *most

    def run(self, **options):
        return ops.paged_attention(*self.arguments, **options)

    def reference(
        self, scale=None, causal=True, window=(-1, -1), softcap=0.0, alibi_slopes=None, sinks=None,
        key_scale=None, value_scale=None,
    ):  # fmt: skip
        """The output in float64, with 0 for padding."""
        out = torch.zeros(len(self.q), self.heads, self.value_cache.shape[-1], dtype=torch.float64)
        left, right = window
        right = 0 if causal else right
        groups, ends = self.heads // self.key_heads, self.ends.tolist()
        for i, (queries, keys) in enumerate(self.lengths):
            if not queries:
                continue
            q = self.q[ends[i] : ends[i + 1]].cpu().double().transpose(0, 1)
            k, v = (
                torch.stack([cache[self.table[i, j // self.block], j % self.block] for j in range(keys)])
                .cpu().double().transpose(0, 1).repeat_interleave(groups, 0) if keys
                else torch.zeros(self.heads, 0, cache.shape[-1], dtype=torch.float64)
                for cache in (self.key_cache, self.value_cache)
            )  # fmt: skip
            by_key, by_value = (
                1.0 if each is None
                else each.cpu().double().expand(self.key_heads).repeat_interleave(groups).view(-1, 1, 1)
                for each in (key_scale, value_scale)
            )  # fmt: skip
            scores = q @ k.transpose(1, 2) * by_key * (q.shape[-1] ** -0.5 if scale is None else scale)
            scores = softcap * (scores / softcap).tanh() if softcap else scores
            distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
            if alibi_slopes is not None:
                slopes = (alibi_slopes if alibi_slopes.dim() == 1 else alibi_slopes[i]).cpu().double()
                scores = scores - slopes[:, None, None] * distance.abs()
            if left >= 0:
                scores = scores.masked_fill(distance > left, -math.inf)
            if right >= 0:
                scores = scores.masked_fill(distance < -right, -math.inf)
            powers = scores.exp()
            total = powers.sum(-1, keepdim=True)
            if sinks is not None:
                total = total + sinks.cpu().double().exp()[:, None, None]
            found = powers @ v * by_value / total.masked_fill(total == 0, 1)
            out[ends[i] : ends[i + 1]] = found.transpose(0, 1)
        return out


def assert_near(got, expected):
    wide = got.detach().cpu().double()
    limit = TOLERANCE[got.dtype] * max(1.0, expected.abs().max().item() if expected.numel() else 0.0)
    torch.testing.assert_close(wide, expected, rtol=0, atol=limit)


@on_each_device
@by_each
@pytest.mark.sampled(24)
@pytest.mark.parametrize("block", [1, 7, 16, 128])
@pytest.mark.parametrize("index", range(len(OPTIONS)))
def test_every_option_over_blocks_of_every_size(device, implementation, block, index):
    problem = Problem(MIXED, block, device=device, layout=("separate", "joined", "heads")[index % 3])
    options = problem.options(**OPTIONS[index])
    with ops.use("paged_attention", implementation):
        assert_near(problem.run(**options), problem.reference(**options))


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.sampled(12)
@pytest.mark.parametrize("lengths", [MIXED, LONG, WITHOUT_KEYS], ids=["mixed", "long", "without keys"])
def test_dtypes_and_many_parts_of_keys(device, implementation, dtype, lengths):
    problem = Problem(
        lengths, 16, size=64, value_size=64, dtype=dtype, device=device, layout="joined", padding=3
    )
    with ops.use("paged_attention", implementation):
        got = problem.run()
    assert_near(got, problem.reference())
    assert not got[-3:].any()


@pytest.mark.parametrize("heads", [(1, 1), (8, 8), (8, 1), (7, 1), (12, 4), (130, 1)])
@pytest.mark.parametrize("size", [1, 5, 64, 80, 128, 130])
def test_heads_and_features(heads, size):
    problem = Problem([(1, 300), (3, 40)], 16, *heads, size=size, value_size=size + 3)
    assert_near(problem.run(), problem.reference())


@on_each_device
@by_each
@in_each_dtype
@pytest.mark.parametrize("cache", QUANTIZED, ids=["float8", "int8"])
def test_a_quantized_cache(device, implementation, dtype, cache):
    problem = Problem(MIXED, 7, dtype=dtype, device=device, cache=cache)
    options = problem.options(key_scale=2, value_scale=0)
    options = {name: each * (0.02 if cache == torch.int8 else 1.0) for name, each in options.items()}
    with ops.use("paged_attention", implementation):
        assert_near(problem.run(**options), problem.reference(**options))


@by_each
def test_float64(implementation):
    problem = Problem(LONG, 16, dtype=torch.float64)
    options = {"softcap": 2.0, "sinks": torch.randn(6, dtype=torch.float64), "window": (200, 0)}
    with ops.use("paged_attention", implementation):
        assert_near(problem.run(**options), problem.reference(**options))


@on_each_device
@by_each
def test_the_output_and_the_log_sum_exp(device, implementation):
    problem = Problem(MIXED, 7, device=device, padding=2)
    wide = torch.full((len(problem.q), 6, 50), 7.0, device=device)
    out, lse = wide[..., 3:27], torch.full((6, len(problem.q)), 7.0, device=device)
    with ops.use("paged_attention", implementation):
        assert problem.run(out=out) is out
        attend_paged(*problem.arguments, right=0, lse=lse)
    assert_near(out[:-2], problem.reference()[:-2])
    assert (wide[-2:] == 7).all() and (wide[..., :3] == 7).all() and (wide[..., 27:] == 7).all()
    assert (lse[:, -2:] == 7).all()
    values = problem.value_cache.clone()
    problem.value_cache = torch.where(values.isnan(), values, 1.0)
    # With a sink of the log-sum-exp itself half of the weight is the sink's.
    last = lse[:, 0].contiguous()
    assert_near(problem.run(sinks=last)[0].mean(-1), torch.full((6,), 0.5, dtype=torch.float64))


def batched(problem, lengths, threads, **options):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return problem.run(**options)
    finally:
        torch.set_num_threads(before)


@in_each_dtype
@pytest.mark.parametrize("index", [0, 3, 5])
def test_a_row_has_the_same_bits_whatever_is_computed_beside_it(dtype, index):
    """Alone, in a batch, in chunks, over blocks of another size, and on any number of threads."""
    lengths = [(1, 700), (600, 600), (33, 500), (1, 3)]
    whole = Problem(lengths, 16, size=64, value_size=64, dtype=dtype)
    options = whole.options(**OPTIONS[index])
    expected = whole.run(**options)
    for threads in (1, 2, 5, 32):
        assert torch.equal(batched(whole, lengths, threads, **options), expected)
    ends = [0, *itertools.accumulate(n for n, _ in lengths)]
    for i, (queries, keys) in enumerate(lengths):
        for chunk in (1, 7, 256, queries):
            for first in range(0, queries, max(chunk, queries // 3)):
                count = min(chunk, queries - first)
                seen = keys - queries + first + count
                part = ops.paged_attention(
                    whole.q[ends[i] + first : ends[i] + first + count], whole.key_cache, whole.value_cache,
                    whole.table[i : i + 1], torch.tensor([0, count], dtype=torch.int32),
                    torch.tensor([seen], dtype=torch.int32), count, seen,
                    **{k: v[i : i + 1] if k == "alibi_slopes" and v.dim() == 2 else v for k, v in options.items()},
                )  # fmt: skip
                assert torch.equal(part, expected[ends[i] + first : ends[i] + first + count])


def test_a_row_has_the_same_bits_over_blocks_of_any_size():
    lengths = [(1, 700), (20, 500)]
    problems = [Problem(lengths, block, size=64, value_size=64) for block in (1, 7, 16, 128, 1024)]
    outs = [each.run() for each in problems]
    for other in outs[1:]:
        assert torch.equal(other, outs[0])


def test_numbers_that_no_query_sees_do_not_matter():
    problem = Problem([(3, 400)], 16, padding=0)
    expected = problem.run(window=(20, 0))
    hidden = problem.table[0, : (400 - 3 - 20) // 16].clone()
    problem.key_cache[hidden.long()] = math.nan
    problem.value_cache[hidden.long()] = math.nan
    problem.table[0, : len(hidden)] = -1  # the blocks before a window are freed
    assert torch.equal(problem.run(window=(20, 0)), expected)


def test_large_and_infinite_scores():
    problem = Problem([(2, 300)], 16)
    expected = problem.reference(scale=6.0, sinks=torch.full((6,), -200.0))
    assert_near(problem.run(scale=6.0, sinks=torch.full((6,), -math.inf)), expected)
    problem.q[0, 0] = math.inf
    got = problem.run()
    assert got[0, 0].isnan().all() and not got[0, 1:].isnan().any() and not got[1].isnan().any()


@on_each_device
@by_each
def test_wrong_calls_are_refused(device, implementation):
    p = Problem(MIXED, 7, device=device)
    q, k, v, table, ends, keys, *most = p.arguments
    refused = [
        (lambda: ops.paged_attention(q.requires_grad_(), k, v, table, ends, keys, *most), "computes no gradients"),
        (lambda: ops.paged_attention(q[0], k, v, table, ends, keys, *most), "must be .tokens"),
        (lambda: ops.paged_attention(q, k[:, :3], v, table, ends, keys, *most), "match in blocks"),
        (lambda: ops.paged_attention(q[:, :5], k, v, table, ends, keys, *most), "multiple of key heads"),
        (lambda: ops.paged_attention(q.half(), k, v, table, ends, keys, *most), "the caches are torch.float32"),
        (lambda: ops.paged_attention(q, k, v, table.long(), ends, keys, *most), "block_table is torch.int64"),
        (lambda: ops.paged_attention(q, k, v, table, ends[1:], keys, *most), "cu_seqlens_q .sequences"),
        (lambda: p.run(sinks=ends.float()[:2]), "sinks has shape"),
        (lambda: p.run(out=q[..., :3]), "out is torch.float32"),
        (lambda: ops.paged_attention(q[:3], k, v, table, ends, keys, *most), "to at most 3"),
        (lambda: ops.paged_attention(q, k, v, table, ends, keys, 3, most[1]), "above max_seqlen_q, 3"),
        (lambda: ops.paged_attention(q, k, v, table, ends, keys, most[0], 30), "from 0 to 30"),
        (lambda: ops.paged_attention(q, k, v, table, ends, keys * 2, most[0], 1000), "seqlens_k must be from 0"),
    ]  # fmt: skip
    with ops.use("paged_attention", implementation):
        for call, message in refused:
            with pytest.raises(ValueError, match=message):
                call()
            q.requires_grad_(False)
        table[1, 2] = len(k)
        with pytest.raises(IndexError):
            p.run()


def written(key, value, key_cache, value_cache, slots, key_scale=None, value_scale=None):
    """Write token by token."""
    for given, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        for token, slot in enumerate(slots.tolist()):
            if slot < 0:
                continue
            row = given[token]
            if scale is not None:
                row = row.float() / scale.expand(len(row))[:, None]
            if cache.dtype in QUANTIZED:
                info = torch.iinfo(cache.dtype) if cache.dtype == torch.int8 else torch.finfo(cache.dtype)
                row = row.float().clamp(info.min, info.max)
                row = row.round() if cache.dtype == torch.int8 else row
            cache[slot // cache.shape[1], slot % cache.shape[1]] = row.to(cache.dtype)


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


@on_each_device
@by_each
@pytest.mark.sampled(24)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("layout", ["separate", "joined", "heads"])
@pytest.mark.parametrize("cache", [None, *QUANTIZED], ids=["plain", "float8", "int8"])
@pytest.mark.parametrize("slot_dtype", [torch.int64, torch.int32], ids=str)
def test_tokens_are_written_into_their_slots(device, implementation, dtype, layout, cache, slot_dtype):
    if dtype == torch.float64 and cache is not None and implementation == "cpu":
        return  # refused: float64 is rounded once
    torch.manual_seed(1)
    blocks, block, heads, size, value_size = 5, 7, 3, 20, 9
    key, value = (torch.randn(14, heads, n, dtype=torch.float64).mul(9).to(dtype) for n in (size, value_size))
    both = torch.randn(blocks, block, heads, size + value_size).to(cache or dtype)
    if layout == "heads":
        both = both.transpose(1, 2).contiguous().transpose(1, 2)
    slots = torch.randperm(blocks * block)[:11]
    slots[[2, 7]] = torch.tensor([-1, -9])
    scales = {}
    if cache is not None:
        scales = {"key_scale": torch.rand(heads) / 9, "value_scale": torch.tensor([0.25])}
    expected = both.clone()
    written(key, value, expected[..., :size], expected[..., size:], slots, **scales)
    both = both.to(device)
    caches = both[..., :size], both[..., size:]
    if layout == "separate":
        caches = caches[0].contiguous(), caches[1].contiguous()
    moved = {name: each.to(device) for name, each in scales.items()}
    with ops.use("cache_write", implementation):
        ops.cache_write(key.to(device), value.to(device), *caches, slots.to(slot_dtype).to(device), **moved)
    for got, wanted in zip(caches, (expected[..., :size], expected[..., size:]), strict=True):
        assert torch.equal(bits(got), bits(wanted))


@on_each_device
@by_each
def test_writes_of_nothing_and_out_of_range(device, implementation):
    key, caches = (
        torch.ones(3, 2, 4, device=device),
        [torch.zeros(2, 5, 2, 4, device=device) for _ in range(2)],
    )
    slots = torch.tensor([-1, -1, -1], device=device)
    with ops.use("cache_write", implementation):
        ops.cache_write(key, key, *caches, slots)
        ops.cache_write(key[:0], key[:0], *caches, slots[:0])
        assert not any(each.any() for each in caches)
        with pytest.raises(IndexError):
            ops.cache_write(key, key, *caches, slots + 11)
    for call, message in (
        (lambda: ops.cache_write(key, key, *caches, slots.repeat(2)), "must match"),
        (lambda: ops.cache_write(key, key[..., :2], *caches, slots), "must match"),
        (lambda: ops.cache_write(key.half(), key.half(), *caches, slots), "the caches are torch.float32"),
        (lambda: ops.cache_write(key, key, *caches, slots.float()), "slots must be int64 or int32"),
        (lambda: ops.cache_write(key[0], key, *caches, slots), "must be .tokens"),
        (lambda: ops.cache_write(key, key, *caches, slots, key_scale=key[0, 0]), "key_scale has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@on_each_device
def test_special_numbers_are_written_as_they_are(device):
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e30, -1e30, 0.5, 1.5], device=device)
    key = special.view(1, 1, 8)
    slot = torch.zeros(1, dtype=torch.int64, device=device)
    limits = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
    for dtype in (torch.float32, *QUANTIZED):
        caches = [torch.zeros(1, 1, 1, 8, device=device).to(dtype) for _ in range(2)]
        ops.cache_write(key, key, *caches, slot)
        got = caches[0].cpu().float().flatten()
        if dtype == torch.float32:
            assert torch.equal(bits(got), bits(special))
            continue
        most, least = limits[dtype], -limits[dtype] - (dtype == torch.int8)
        wanted = [0.0 if dtype == torch.int8 else math.nan, most, least, -0.0, most, least, 0.5, 1.5]
        wanted = [0.0, most, least, 0.0, most, least, 0.0, 2.0] if dtype == torch.int8 else wanted
        torch.testing.assert_close(got, torch.tensor(wanted), rtol=0, atol=0, equal_nan=True)


def test_flash_attention_over_a_block_table():
    p = Problem([(5, 5), (1, 37)], 7, padding=0, value_size=40)
    slopes = torch.rand(6)
    ends = torch.tensor([0, 5, 42], dtype=torch.int32)
    options = {"causal": True, "window_size": (9, 0), "softcap": 2.0, "alibi_slopes": slopes}
    got = ops.flash_attn_varlen_func(
        p.q, p.key_cache, p.value_cache, p.ends, ends, 5, 37, block_table=p.table, **options
    )
    packed = [
        torch.cat([torch.stack([each[p.table[i, j // 7], j % 7] for j in range(n)]) for i, n in enumerate((5, 37))])
        for each in (p.key_cache, p.value_cache)
    ]  # fmt: skip
    out, lse, _ = ops.flash_attn_varlen_func(
        p.q, *packed, p.ends, ends, 5, 37, return_attn_probs=True, **options
    )
    torch.testing.assert_close(got, out, rtol=0, atol=2e-6)
    again, sums, nothing = ops.flash_attn_varlen_func(
        p.q, p.key_cache, p.value_cache, p.ends, ends, 5, 37, block_table=p.table, return_attn_probs=True, **options
    )  # fmt: skip
    assert torch.equal(again, got) and not nothing.numel()
    torch.testing.assert_close(sums, lse, rtol=0, atol=2e-6)


def test_which_and_no_gather():
    p = Problem(MIXED, 7)
    assert str(ops.which("paged_attention", *p.arguments)).startswith("paged_attention: cpu")
    wide = torch.zeros(*p.key_cache.shape, 2)[..., 0]
    said = str(ops.which("paged_attention", p.q, wide, p.value_cache, *p.arguments[3:]))
    assert "composite" in said and "strided features" in said
