"""Qwen2, Qwen2.5, Qwen3 and their mixtures of experts."""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config, decoder
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
NAMES = (
    decoder.ENDS
    + decoder.ATTENTION
    + decoder.MLP
    + decoder.EXPERTS
    + """
model.layers.{layer}.mlp.shared_expert.gate_proj.weight = shared.gate.weight
model.layers.{layer}.mlp.shared_expert.up_proj.weight = shared.up.weight
model.layers.{layer}.mlp.shared_expert.down_proj.weight = shared.down.weight
model.layers.{layer}.mlp.shared_expert_gate.weight = shared_gate.weight
"""
)


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    second = config["model_type"].startswith("qwen2")
    bias = config.get("attention_bias", config.get("qkv_bias", second))
    yield from decoder.outer_parameters(config)
    for layer in range(config["num_hidden_layers"]):
        yield from decoder.attention(
            config, layer, bias=bias, output_bias=bias and not second, norms=not second
        )
        if not _is_sparse(config, layer):
            yield from decoder.mlp(config, layer)
            continue
        number = config.get("num_local_experts") or config["num_experts"]
        yield from decoder.experts(config, layer, number, config["moe_intermediate_size"])
        if config["model_type"] == "qwen2_moe":
            size = config["shared_expert_intermediate_size"]
            yield from decoder.gated_mlp(config, size, layer, prefix="shared.")
            yield Parameter("shared_gate.weight", (1, config["hidden_size"]), layer)


def _is_sparse(config: Config, layer: int) -> bool:
    if not config["model_type"].endswith("moe") or layer in (config.get("mlp_only_layers") or ()):
        return False
    return (layer + 1) % int(config.get("decoder_sparse_step", 1)) == 0
