"""Rotary embedding by position, and caches of keys and values, against loops over tokens."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from tests.runtime.opapi import check
from tests.runtime.tensors import positive, quantised, real, whole


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def test_rotary_in_place_and_by_a_matrix() -> None:
    query, key, cos, sin = real(2, 3, 4, 6), real(2, 3, 2, 6), real(2, 3, 1, 6), real(2, 3, 1, 6)
    expected = {"query": turned(query.double(), cos, sin), "key": turned(key.double(), cos, sin)}
    given = {"query": query, "key": key, "cos": cos, "sin": sin, "layout": 1}
    check("ApplyRotaryPosEmb", expected, **given)
    check("ApplyRotaryPosEmbV2", expected, **given, rotary_mode="half")
    pairs = torch.zeros(6, 6)
    for i in range(0, 6, 2):
        pairs[i + 1, i], pairs[i, i + 1] = -1, 1
    expected = {
        name: x.double() * cos + x.double() @ pairs.double() * sin
        for name, x in (("query", query), ("key", key))
    }
    check("ApplyRotaryPosEmbV2", expected, **given, rotary_mode="interleave")
    check("RotaryPositionEmbeddingV2", {"out": expected["query"]}, self=query, cos=cos, sin=sin, rotate=pairs)
    apart = query.double().unflatten(-1, (-1, 2)).mT.flatten(-2)
    check("InterleaveRope", {"out": turned(apart, cos, sin)}, x=query, cos=cos, sin=sin)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(
    ("name", "sections"),
    [
        *itertools.product(("RopeWithSinCosCache", "RopeWithSinCosCacheV2"), (None, "after")),
        ("RopeWithSinCosCacheV2", "alternating"),
    ],
)
def test_rotary_by_position(name: str, neox: bool, sections: str | None) -> None:
    table, query, key = real(9, 12), real(5, 2 * 16), real(5, 16)
    positions = whole(3, 5, high=9) if sections else whole(5, high=9)
    parts = [2, 2, 2]
    expected = {}
    for which, x in (("query", query), ("key", key)):
        heads = x.double().reshape(5, -1, 16).clone()
        for token in range(5):
            rows = table[positions[:, token] if sections else positions[token : token + 1]].double()
            if sections == "after":
                source = [0] * parts[0] + [1] * parts[1] + [2] * parts[2]
            elif sections == "alternating":
                source = [i % 3 if i < parts[1] * 3 else 0 for i in range(6)]
            else:
                source = [0] * 6
            cos, sin = (torch.stack([rows[s, i + half] for i, s in enumerate(source)]) for half in (0, 6))
            part = heads[token, :, :12]
            first, second = part.chunk(2, -1) if neox else (part[:, ::2], part[:, 1::2])
            one, two = first * cos - second * sin, second * cos + first * sin
            heads[token, :, :12] = (
                torch.cat([one, two], -1) if neox else torch.stack([one, two], -1).flatten(-2)
            )
        expected[f"{which}_out"] = heads.reshape(5, -1)
    options = {"cache_mode": int(sections == "alternating")} if name.endswith("V2") else {}
    given = {"positions": positions, "query": query, "key": key, "cos_sin_cache": table}
    check(name, expected, **given, mrope_section=parts, head_size=16, is_neox_style=neox, **options)


MODES = ["Norm", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_v", [False, True])
@pytest.mark.parametrize("codes", [False, True])
def test_norm_and_rotary_into_caches(mode: str, with_v: bool, codes: bool) -> None:
    batch, count, rope, width, block, pages = 2, 5, 32, 64, 4, 6
    gamma, cos, sin = real(width), real(batch, 1, count, rope), real(batch, 1, count, rope)
    kv = real(batch, 1, count, width if with_v else width + rope)
    y = F.rms_norm(kv[..., :width].double(), (width,), gamma.double(), 1e-3)
    source = y[..., :rope] if with_v else kv[..., width:].double()
    key = turned(source.unflatten(-1, (-1, 2)).mT.flatten(-2), cos, sin)
    v = real(batch, 1, count, width)
    key, value = (torch.cat([key, y[..., rope:]], -1), v.double()) if with_v else (key, y)
    scales = {"k_scale": positive(key.shape[-1]) * 40, "v_scale": positive(width) * 40} if codes else {}
    places = [[3, 0, 7, 6, 1], [5, 2, 4, 0, 7]], [[3, 17, -1, 6, 21], [8, 2, 23, 0, 14]]
    index = torch.tensor(places[mode != "Norm"])
    blocks = torch.tensor([[8, 20], [-1, 4]])
    expected = {"k_out": key, "v_out": value}
    dtype = torch.int8 if codes else torch.float32
    inputs = {}
    for name, rows, scale in (("k_cache", key, "k_scale"), ("v_cache", value, "v_scale")):
        stored = (rows * scales[scale]).round().clamp(-128, 127) if codes else rows
        shape = (batch, 1, 8) if mode == "Norm" else (pages, block, 1)
        cache = whole(*shape, rows.shape[-1], high=9).to(dtype)
        stored = stored.to(dtype)
        result = cache.clone().contiguous()
        fractal = 32 if codes else 16
        for b in range(batch):
            for s in range(count):
                if mode == "Norm":
                    result[b, 0, index[b, s]] = stored[b, 0, s]
                    continue
                if "BLK" in mode:
                    start = int(blocks[b, s // block])
                    page, offset = (start // block, s % block) if start >= 0 else (-1, 0)
                else:
                    page, offset = int(index[b, s]) // block, int(index[b, s]) % block
                if page < 0:
                    continue
                if mode.endswith("NZ"):
                    result[page].view(-1, block, fractal)[:, offset] = stored[b, 0, s].view(-1, fractal)
                else:
                    result[page, offset, 0] = stored[b, 0, s]
        inputs[name], expected[name] = cache, result
    given = {"kv": kv, "gamma": gamma, "cos": cos, "sin": sin, "epsilon": 1e-3, "cache_mode": mode}
    given |= {**inputs, **scales, "is_output_kv": True}
    given["index"] = (blocks if "BLK" in mode else index).flatten() if mode != "Norm" else index
    check("KvRmsNormRopeCacheV2", expected, 1e-4, **given, **({"v": v} if with_v else {}))
    if not with_v:
        check("KvRmsNormRopeCache", expected, 1e-4, **given)


@pytest.mark.parametrize("fractal", [False, True])
def test_tokens_in_caches_of_blocks(fractal: bool) -> None:
    key, value, slots = real(5, 2, 8), real(5, 2, 16), torch.tensor([3, -1, 7, 0, 10], dtype=torch.int32)
    inputs, expected, mode = {}, {}, "PA_NZ" if fractal else "Norm"
    for name, rows in (("key", key), ("value", value)):
        width = rows[0].numel()
        cache = real(3, width // 4, 4, 4) if fractal else real(3, 4, *rows.shape[1:])
        result = cache.clone().contiguous()
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0 and fractal:
                result[slot // 4, :, slot % 4] = rows[token].reshape(-1, 4)
            elif slot >= 0:
                result[slot // 4, slot % 4] = rows[token]
        inputs[f"{name}_cache"], expected[f"{name}_cache"] = cache, result
    given = {"slot_mapping": slots, "cache_mode": mode}
    check("ScatterPaKvCache", expected, key=key, value=value, **inputs, **given, scatter_mode="None")
    one = {"key_cache": expected["key_cache"]}
    check("ScatterPaCache", one, key=key, key_cache=inputs["key_cache"], **given)
    table = torch.tensor([[2, 0], [1, 5]], dtype=torch.int32)
    for ends, offsets in (([6, 5], None), ([0, 6, 11], None), ([3, 5], [4, 0])):
        lengths = torch.tensor(ends).diff().tolist() if len(ends) == 3 else ends
        outs = {"key": torch.zeros(sum(lengths), 2, 8), "value": torch.zeros(sum(lengths), 2, 16)}
        for name, out in outs.items():
            cache, row = inputs[f"{name}_cache"], 0
            for i, length in enumerate(lengths):
                for j in range(length):
                    column = j // 4 + (offsets[i] // 4 if offsets else 0)
                    page = int(table[i, column])
                    if page < 3:
                        found = cache[page, :, j % 4] if fractal else cache[page, j % 4]
                        out[row] = found.reshape(out[row].shape)
                    row += 1
        given = {"block_tables": table, "seq_lens": torch.tensor(ends, dtype=torch.int32), "cache_mode": mode}
        given |= {name: torch.zeros_like(out) for name, out in outs.items()}
        given["seq_offset"] = None if offsets is None else torch.tensor(offsets, dtype=torch.int32)
        check("GatherPaKvCache", outs, **inputs, **given, is_seq_lens_cumsum=len(ends) == 3)


def test_updates_from_an_index_on() -> None:
    cache, updates, start = real(3, 2, 6, 4), real(2, 2, 2, 4), torch.tensor([4, 1])
    expected = cache.clone()
    for i, at in enumerate(start.tolist()):
        expected[i, :, at : at + 2] = updates[i]
    check("InplaceScatterUpdate", {"self": expected}, self=cache, indices=start, updates=updates, axis=-2)
    stored, scale, offset = whole(3, 2, 6, 4).to(torch.int8), positive(4) / 40, torch.tensor([1.0, -2, 3, 0])
    expected = stored.clone()
    for i, at in enumerate(start.tolist()):
        expected[i, :, at : at + 2] = quantised(updates[i].double() / scale + offset)
    given = {"self": stored, "indices": start, "updates": updates, "scale": scale, "offset": offset}
    given |= {"axis": -2, "quant_axis": -1, "reduction": 1}
    check("InplaceQuantScatter", {"self": expected}, **given)
    check("InplaceQuantScatterV2", {"self": expected}, **given, round_mode="rint")


@pytest.mark.parametrize("axis", [-2, -1])
def test_updates_of_a_list(axis: int) -> None:
    targets, start = [real(2, 5, 4) for _ in range(3)], torch.tensor([2, 0, 3])
    mask = torch.tensor([1, 0, 1], dtype=torch.uint8)
    updates = real(3, 2, 1, 4) if axis == -2 else real(3, 2, 5, 1)
    expected = [target.clone() for target in targets]
    for i in (0, 2):
        expected[i].select(axis, int(start[i])).copy_(updates[i].squeeze(axis))
    given = {"targets": targets, "indices": start, "updates": updates, "mask": mask}
    check("ScatterList", {"targets": expected}, **given, reduce="update", axis=axis)


def test_updates_at_coordinates() -> None:
    target, indices, updates = real(4, 3, 2), torch.tensor([[0, 2], [3, 1]]), real(2, 2)
    expected = target.clone()
    expected[0, 2], expected[3, 1] = updates
    check("ScatterNdUpdate", {"self": expected}, self=target, indices=indices, updates=updates)
