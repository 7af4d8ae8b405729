"""Mixtral."""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config, decoder
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("mixtral",)
NAMES = (
    decoder.ENDS
    + decoder.ATTENTION
    + """
model.layers.{layer}.post_attention_layernorm.weight = moe_norm.weight
model.layers.{layer}.block_sparse_moe.gate.weight = router.weight
model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight = gate.weight
model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight = up.weight
model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight = down.weight
"""
)


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    yield from decoder.outer_parameters(config)
    for layer in range(config["num_hidden_layers"]):
        yield from decoder.attention(config, layer)
        yield from decoder.experts(config, layer, config["num_local_experts"], config["intermediate_size"])
