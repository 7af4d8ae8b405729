"""Convolution, compression and attention along sequences against loops and derivatives in float64."""

import pytest
import torch

from tests.runtime.opapi import check, gradients
from tests.runtime.tensors import flags, leaf, real


@pytest.mark.parametrize("masked", [False, True])
def test_causal_convolution(masked: bool) -> None:
    x, weight = leaf(5, 2, 4), leaf(3, 4)
    mask = flags(2, 5) if masked else None
    rows = []
    for s in range(5):
        row = torch.zeros(2, 4, dtype=torch.float64)
        for w in range(3):
            if s - 2 + w >= 0:
                row = row + x[s - 2 + w] * weight[w]
        rows.append(row if mask is None else row * mask[:, s, None])
    y, dy = torch.stack(rows), real(5, 2, 4)
    given = {"x": x, "weight": weight, "mask": mask}
    check("MaskedCausalConv1d", {"out": y}, **given)
    check("MaskedCausalConv1dBackward", gradients(y, dy, dx=x, dweight=weight), dy=dy, **given)


def test_windows_of_sequences_summed() -> None:
    x, weight = leaf(14, 2, 3), leaf(4, 2)
    ends, rows, begin = [5, 7, 14], [], 0
    for end in ends:
        for start in range(begin, end - 3, 2):
            rows.append((x[start : start + 4] * weight[..., None]).sum(0))
        begin = end
    y = torch.stack(rows)
    given = {"x": x, "weight": weight, "actual_seq_len": ends, "block_size": 4, "stride": 2}
    check("NsaCompress", {"out": y}, **given, layout="TND")
    dy = real(*y.shape)
    check("NsaCompressGrad", gradients(y, dy, dx=x, dweight=weight), dy=dy, **given, layout="TND")


@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_way_of_a_third(masked: bool) -> None:
    given = {"query_ik": leaf(2, 1, 3, 4, 6)}
    for part, shape in (("ij", (2, 1, 3, 5, 6)), ("jk", (2, 1, 5, 4, 6))):
        given |= {f"{name}_{part}": leaf(*shape) for name in ("key", "value")}
    q, k1, v1, k2, v2 = given.values()
    scores = (q[..., None, :] * (k1[:, :, :, None] + k2.transpose(2, 3)[:, :, None])).sum(-1)
    mask = flags(2, 1, 3, 1, 5) & torch.tensor([True, True, True, True, False]) if masked else None
    scores = 0.4 * (scores if mask is None else scores - mask * 4e9)
    p = scores.softmax(-1)
    out = (p[..., None] * (v1[:, :, :, None] + v2.transpose(2, 3)[:, :, None])).sum(-2)
    largest = scores.amax(-1, keepdim=True)
    statistics = {
        "softmax_max": largest.expand(2, 1, 3, 4, 8),
        "softmax_sum": (scores - largest).exp().sum(-1, keepdim=True).expand(2, 1, 3, 4, 8),
    }
    options = {"atten_mask": mask, "scale": 0.4}
    check("FusedFloydAttention", {"out": out, **statistics}, 1e-4, **given, **options)
    dy = real(*out.shape)
    expected = gradients(out, dy, **{f"d{name.removesuffix('_ik')}": x for name, x in given.items()})
    options |= {"dy": dy, "attention_out": out, **statistics}
    check("FusedFloydAttentionGrad", expected, 1e-4, **given, **options)


@pytest.mark.parametrize("name", ["DynamicBlockQuant", "DynamicBlockQuantV2"])
@pytest.mark.parametrize("block", [(1, 4), (2, 3)])
def test_a_scale_for_each_block(name: str, block: tuple[int, int]) -> None:
    x = real(5, 10)
    rows, columns = -(-5 // block[0]), -(-10 // block[1])
    y, scale = torch.zeros(5, 10, dtype=torch.int8), torch.zeros(rows, columns, dtype=torch.float64)
    for r in range(rows):
        for c in range(columns):
            at = (slice(r * block[0], (r + 1) * block[0]), slice(c * block[1], (c + 1) * block[1]))
            scale[r, c] = x[at].double().abs().max() / 127
            y[at] = (x[at].double() / scale[r, c]).round().to(torch.int8)
    options = {"row_block_size": block[0], "col_block_size": block[1], "round_mode": "rint"}
    check(name, {"y": y, "scale": scale}, x=x, **options)
