"""A tiny model of megatron-core: loads a checkpoint, compares logits with transformers, saves one as torch_dist.

    isthmus run -c "from tests.helpers.checkpoint_megatron import main; main()" FOLDER

FOLDER has ``hf``, ``megatron`` (--names local) and ``megatron-dist`` (--names local); ``saved`` is written.
"""

from __future__ import annotations

import isthmus.megatron  # noqa: F401 - must come first

# isort: split
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


def build(config) -> GPTModel:
    """Return the model of a Hugging Face configuration."""
    experts = getattr(config, "num_local_experts", None)
    megatron = TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        normalization="RMSNorm",
        layernorm_epsilon=config.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        add_qkv_bias=config.model_type == "qwen2",
        qk_layernorm=config.model_type == "qwen3",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        num_moe_experts=experts,
        moe_router_topk=getattr(config, "num_experts_per_tok", 2),
        moe_token_dispatcher_type="alltoall",
        gradient_accumulation_fusion=False,
    )
    return (
        GPTModel(
            megatron,
            get_gpt_decoder_block_spec(
                megatron, use_transformer_engine=False, normalization="RMSNorm", qk_l2_norm=False
            ),
            vocab_size=config.vocab_size,
            max_sequence_length=64,
            share_embeddings_and_output_weights=config.tie_word_embeddings,
            position_embedding_type="rope",
            rotary_base=int(config.rope_parameters["rope_theta"]),
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
    folder = Path(sys.argv[1])
    dist.init_process_group(
        "nccl", store=dist.TCPStore("localhost", 0, 1, is_master=True), rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    reference = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32).eval()
    tokens = torch.randint(90, (1, 12))
    with torch.inference_mode():
        expected = reference(tokens).logits

    model = build(reference.config)
    content = torch.load(folder / "megatron/release/mp_rank_00/model_optim_rng.pt", weights_only=False)
    missing, unexpected = model.load_state_dict(content["model"], strict=False)
    assert not unexpected, unexpected
    assert all(name.endswith("_extra_state") for name in missing), missing
    torch.testing.assert_close(logits(model, tokens), expected, rtol=1e-4, atol=1e-4)

    state = model.sharded_state_dict()
    other = build(reference.config)
    strict = StrictHandling.LOG_ALL  # without the _extra_state of Transformer Engine
    loaded = dist_checkpointing.load(other.sharded_state_dict(), str(folder / "megatron-dist"), strict=strict)
    other.load_state_dict(loaded, strict=False)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    (folder / "saved").mkdir()
    dist_checkpointing.save(state, str(folder / "saved"))
    print("equal")
    dist.destroy_process_group()
