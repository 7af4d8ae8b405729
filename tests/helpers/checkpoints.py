"""Tiny models of every architecture as Hugging Face checkpoints, and the command in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.cli import app
from isthmus_formats.checkpoint.name_tables import fuse_by_table

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 90,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 8,
    "n_group": 2,
    "topk_group": 1,
}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL},
    "llama-tied": {"model_type": "llama", **SMALL, "tie_word_embeddings": True, "vocab_size": 96},
    "llama-tied-biased": {
        "model_type": "llama",
        **SMALL,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "mistral": {"model_type": "mistral", **SMALL, "head_dim": 8, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", **SMALL},
    "qwen3": {"model_type": "qwen3", **SMALL, "head_dim": 8, "tie_word_embeddings": True},
    "qwen2_moe": {"model_type": "qwen2_moe", **SMALL, **EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen3_moe": {"model_type": "qwen3_moe", **SMALL, **EXPERTS, "head_dim": 8},
    "mixtral": {"model_type": "mixtral", **SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": {"model_type": "deepseek_v2", **SMALL, **LATENT},
    "deepseek_v3": {"model_type": "deepseek_v3", **SMALL, **LATENT},
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_head": 8,
        "n_layer": 4,
        "vocab_size": 90,
        "n_positions": 64,
    },
    "internlm2": {"model_type": "internlm2", **SMALL, "bias": False},
}


def write_random(folder: Path, config: dict[str, Any], dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write a Hugging Face checkpoint with random parameters, by the package's own table of names."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    of = model(config)
    tensors = {}
    for each in fuse_by_table(of.names, of.parameters, of.type, "huggingface"):
        shape = each.piece("", "", [_whole_slice(part) for part in each.parameters], of.groups).shape
        tensors[each.key()] = torch.randn(shape).to(dtype)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def _whole_slice(parameter: Any) -> Any:
    from isthmus_formats.checkpoint.layout import whole_slice

    return whole_slice(parameter), 0


def checkpoint(*arguments: object) -> Result:
    """Run ``isthmus checkpoint`` in this process."""
    return CliRunner().invoke(app, [str(each) for each in arguments])


def convert_checkpoint(source: Path, target: Path, *arguments: object) -> Path:
    """Convert a checkpoint, which must succeed."""
    result = checkpoint("convert", source, target, "--to", *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return target


def check_refused(source: Path, *arguments: object) -> str:
    """Check that a conversion is refused in one line and leaves nothing behind; return the line."""
    before = sorted(source.parent.iterdir())
    result = checkpoint("convert", source, source.parent / "target", "--to", *arguments)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1, (result.output, result.exception)
    assert sorted(source.parent.iterdir()) == before
    return result.stderr


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a Hugging Face checkpoint."""
    return {
        name: each for path in sorted(folder.glob("*.safetensors")) for name, each in load_file(path).items()
    }


def check_same(a: Path, b: Path) -> None:
    """Check that two Hugging Face checkpoints have the same tensors, bit by bit."""
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype and torch.equal(tensor, right[name]), name
