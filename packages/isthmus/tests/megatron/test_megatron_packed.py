"""Packed sequences (``thd``) in Megatron's local attention: each gives the same result as alone."""

import pytest

from tests.helpers.children import output, run
from tools.repository import ROOT

MODEL = (
    f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r})\n"
    """
import warnings; warnings.simplefilter("ignore")
import pretrain_gpt_core as example, torch
from gpt_core.flags import parse_args
from megatron.core.packed_seq_params import PackedSeqParams

LENGTHS = (7, 12, 1, 4)

def model_of(*flags):
    sizes = ["--num-layers", "1", "--vocab-size", "32", "--no-gradient-accumulation-fusion"]
    args = parse_args([*sizes, *flags])
    example.start_parallelism(args)
    return example.build_stage(args, example.transformer_config(args), None)

def together(**settings):
    ends = torch.tensor([0, *LENGTHS]).cumsum(0, dtype=torch.int32).cuda()
    return PackedSeqParams("thd", ends, ends, **settings)

def train(model, tokens, packed=None, mask=None):
    places = torch.arange(tokens.numel()).view(1, -1).cuda()
    losses = model(tokens, places, mask, labels=(tokens + 1) % 32, packed_seq_params=packed)
    (losses * (1 + tokens)).sum().backward()
    return losses.detach()

example.start_process_group()
torch.manual_seed(1)
tokens = [torch.randint(32, (1, each)).cuda() for each in LENGTHS]
"""
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("flags", ["", "--no-rope-fusion", "--normalization LayerNorm --num-query-groups 4"])
def test_each_sequence_is_computed_as_if_alone(flags):
    output(
        MODEL
        + f"""
model = model_of(*{flags.split()!r})
expected = torch.cat([train(model, each) for each in tokens], 1)
gradients = {{name: each.grad.clone() for name, each in model.named_parameters()}}
for longest in (12, 24):
    model.zero_grad()
    losses = train(model, torch.cat(tokens, 1), together(max_seqlen_q=longest, max_seqlen_kv=longest))
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    for name, each in model.named_parameters():
        torch.testing.assert_close(each.grad, gradients[name], rtol=1e-4, atol=1e-4)
"""
    )


@pytest.mark.full
def test_unsupported_options_of_packed_sequences_are_refused():
    done = run(
        MODEL
        + """
model, packed = model_of(), together(max_seqlen_q=12, max_seqlen_kv=12)
mask = torch.zeros(1, 1, 24, 24, dtype=torch.bool).cuda()
core = model.decoder.layers[0].self_attention.core_attention
def said(change, **arguments):
    try:
        change()
        train(model, torch.cat(tokens, 1), packed, **arguments)
    except ValueError as error:
        print(error)
said(lambda: None, mask=mask)
packed.cu_seqlens_q_padded = packed.cu_seqlens_kv_padded = packed.cu_seqlens_q
said(lambda: None)
said(lambda: setattr(core, "attn_mask_type", type(core.attn_mask_type).padding))
said(lambda: setattr(core.config, "context_parallel_size", 2))
"""
    )
    assert done.stdout.splitlines() == [
        "packed sequences do not support an attention mask; pass --no-create-attention-mask-in-dataloader",
        "packed sequences with padding between them require causal attention",
        "context parallelism does not support an attention bias, packed sequences or softmax offset",
    ], done.stderr
