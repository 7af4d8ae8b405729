"""A tiny model of megatron-core: loads a checkpoint, compares logits with transformers, saves one as torch_dist.

    isthmus run -c "from tests.helpers.checkpoint_megatron import main; main()" FOLDER...

Each has ``hf``, ``megatron`` (--names local) and ``megatron-dist`` (--names local); ``saved`` is written. The model
is built from the saved arguments alone.
"""

from __future__ import annotations

import isthmus.megatron  # noqa: F401 - must come first

# isort: split
import dataclasses
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.validation import StrictHandling
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import AutoModelForCausalLM


def build(args) -> GPTModel:
    """Return the model of a checkpoint's saved arguments, as Megatron-LM's model provider builds it."""
    fields = {each.name for each in dataclasses.fields(TransformerConfig)}
    options = {name: value for name, value in vars(args).items() if name in fields}
    megatron = TransformerConfig(
        **options
        | {
            "num_moe_experts": args.num_experts,
            "gated_linear_unit": args.swiglu,
            "activation_func": torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu,
            "hidden_dropout": 0.0,
            "attention_dropout": 0.0,
            "moe_token_dispatcher_type": "alltoall",
            "gradient_accumulation_fusion": False,
            "bias_activation_fusion": not args.swiglu and args.bias_gelu_fusion,
        }
    )
    for name, value in vars(args).items():
        if name.startswith("yarn_"):
            setattr(megatron, name, value)
    return (
        GPTModel(
            megatron,
            get_gpt_decoder_block_spec(
                megatron, use_transformer_engine=False, normalization=args.normalization, qk_l2_norm=False
            ),
            vocab_size=args.padded_vocab_size,
            max_sequence_length=args.max_position_embeddings,
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type,
            rotary_base=getattr(args, "rotary_base", 10000),
            rotary_percent=getattr(args, "rotary_percent", 1.0),
            rope_scaling=getattr(args, "use_rope_scaling", False),
            rope_scaling_factor=getattr(args, "rope_scaling_factor", 8.0),
            seq_len_interpolation_factor=getattr(args, "rotary_seq_len_interpolation_factor", None),
        )
        .cuda()
        .eval()
    )


def logits(model: GPTModel, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits of a causal model."""
    length = tokens.shape[1]
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1).cuda()
    with torch.inference_mode():
        return model(tokens.cuda(), torch.arange(length)[None].cuda(), mask).float().cpu()


def main() -> None:
    dist.init_process_group(
        "nccl", store=dist.TCPStore("localhost", 0, 1, is_master=True), rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    for folder in map(Path, sys.argv[1:]):
        compare(folder)
        print(folder.name, "equal")
    dist.destroy_process_group()


def compare(folder: Path) -> None:
    reference = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32).eval()
    tokens = torch.randint(90, (1, 40))
    with torch.inference_mode():
        expected = reference(tokens).logits

    content = torch.load(folder / "megatron/release/mp_rank_00/model_optim_rng.pt", weights_only=False)
    model = build(content["args"])
    missing, unexpected = model.load_state_dict(content["model"], strict=False)
    assert not unexpected, unexpected
    assert all(name.endswith("_extra_state") for name in missing), missing
    torch.testing.assert_close(logits(model, tokens), expected, rtol=1e-4, atol=1e-4)

    state = model.sharded_state_dict()
    other = build(torch.load(folder / "megatron-dist/common.pt", weights_only=False)["args"])
    strict = StrictHandling.LOG_ALL  # without the _extra_state of Transformer Engine
    loaded = dist_checkpointing.load(other.sharded_state_dict(), str(folder / "megatron-dist"), strict=strict)
    other.load_state_dict(loaded, strict=False)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    (folder / "saved").mkdir()
    dist_checkpointing.save(state, str(folder / "saved"))
