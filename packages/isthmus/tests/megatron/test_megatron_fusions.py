"""The stand-ins for Transformer Engine's and apex's fused operators compute the same as Megatron's code."""

import pytest

from tests.helpers.children import output

ROTARY = """
import types, warnings; warnings.simplefilter("ignore")
import isthmus.megatron, torch
from megatron.core.models.common.embeddings import rope_utils

def group(rank, size):
    return types.SimpleNamespace(rank=lambda: rank, size=lambda: size)

def compare(heads, freqs, interleaved, cu_seqlens=None, rank=0, size=1):
    found = []
    for fused in (True, False):
        config = types.SimpleNamespace(
            apply_rope_fusion=fused, rotary_interleaved=interleaved, multi_latent_attention=False, mrope_section=None
        )
        leaf = heads.detach().requires_grad_()
        out = rope_utils.apply_rotary_pos_emb(leaf, freqs, config, cu_seqlens, cp_group=group(rank, size))
        (out * torch.linspace(-1, 1, out.numel(), device="cuda").view(out.shape)).sum().backward()
        found.append((out.detach(), leaf.grad))
    for ours, theirs in zip(*found):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert not found[0][0].equal(heads)

def angles(positions, width, interleaved):
    table = torch.outer(torch.arange(positions), 100.0 ** -torch.linspace(0, 1, width // 2))
    table = table.repeat_interleave(2, -1) if interleaved else torch.cat([table, table], -1)
    return table[:, None, None].cuda()
"""


def test_rotary_embedding_of_whole_batches():
    output(
        ROTARY
        + """
packed = torch.randn(6, 3, 2, 4, 8).cuda()  # two groups of two queries, a key and a value
for interleaved in (False, True):
    for width in (8, 4):
        freqs = angles(6, width, interleaved)
        compare(packed[..., :2, :].flatten(2, 3), freqs, interleaved)
        compare(packed[..., 2, :], freqs, interleaved)
        turned = rope_utils.fused_apply_rotary_pos_emb(packed[..., 2, :], freqs, interleaved=interleaved)
        shorter = rope_utils.fused_apply_rotary_pos_emb(packed[:4, ..., 2, :], freqs, interleaved=interleaved)
        assert shorter.equal(turned[:4])
each = torch.stack([angles(6, 8, False), 2 * angles(6, 8, False), 3 * angles(6, 8, False)], 1).squeeze(2)
compare(packed[..., 2, :], each, False)
"""
    )


@pytest.mark.full
def test_rotary_embedding_of_packed_sequences():
    output(
        ROTARY
        + """
starts = torch.tensor([0, 8, 8, 20, 24], dtype=torch.int32).cuda()
for rank, size in ((0, 1), (0, 2), (1, 2)):
    heads = torch.randn(24 // size, 2, 8).cuda()
    for positions in (12, 24):
        compare(heads, angles(positions, 4, False), False, starts, rank, size)
fused = rope_utils.fused_apply_rotary_pos_emb_thd(heads, starts, angles(12, 8, True), 2, 1, interleaved=True)
own = rope_utils._apply_rotary_pos_emb_thd(heads, starts, angles(12, 8, True), True, cp_group=group(1, 2))
torch.testing.assert_close(fused, own, rtol=1e-6, atol=1e-6)
"""
    )


@pytest.mark.full
def test_the_fused_rotary_embedding_of_packed_sequences_pairs_neighbours():
    said = output(
        """
        import warnings; warnings.simplefilter("ignore")
        import isthmus.megatron
        from isthmus.megatron import rotary
        from megatron.core.transformer.transformer_config import TransformerConfig
        def config():
            made = TransformerConfig(
                num_layers=1, hidden_size=8, num_attention_heads=2, apply_rope_fusion=True, rotary_interleaved=True
            )
            return made.apply_rope_fusion, made.rotary_interleaved
        print(config())
        rotary._packed_supports_interleaved = lambda: True
        print(config())
        """
    )
    assert said.split("\n") == ["(False, True)", "(True, True)"]


def test_gradients_of_weights_are_added():
    output(
        """
        import isthmus.megatron, torch
        import fused_weight_gradient_mlp_cuda as fused
        for dtype, into, add in (
            (torch.float32, torch.float32, fused.wgrad_gemm_accum_fp32),
            (torch.bfloat16, torch.float32, fused.wgrad_gemm_accum_fp32),
            (torch.bfloat16, torch.bfloat16, fused.wgrad_gemm_accum_fp16),
            (torch.float16, torch.float16, fused.wgrad_gemm_accum_fp16),
        ):
            x, dy = torch.randn(4, 3, 5).cuda().to(dtype), torch.randn(4, 3, 7).cuda().to(dtype)
            total = torch.randn(7, 5).cuda().to(into)
            expected = (total.double() + torch.einsum("tbo,tbi->oi", dy.double(), x.double())).to(into)
            add(x, dy, total)
            torch.testing.assert_close(total, expected)
        """
    )
