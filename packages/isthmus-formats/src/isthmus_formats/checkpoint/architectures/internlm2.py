"""InternLM2: q, k and v in one matrix, by query group."""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config, decoder
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("internlm2",)
NAMES = """
model.tok_embeddings.weight = embedding.weight
model.norm.weight = norm.weight
output.weight = output.weight
model.layers.{layer}.attention_norm.weight = input_norm.weight
model.layers.{layer}.attention.wqkv.* = attention.q.* attention.k.* attention.v.* | grouped
model.layers.{layer}.attention.wo.* = attention.o.*
model.layers.{layer}.ffn_norm.weight = mlp_norm.weight
model.layers.{layer}.feed_forward.w1.weight = mlp.gate.weight
model.layers.{layer}.feed_forward.w3.weight = mlp.up.weight
model.layers.{layer}.feed_forward.w2.weight = mlp.down.weight
"""


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    bias = config.get("bias", True)
    yield from decoder.outer_parameters(config)
    for layer in range(config["num_hidden_layers"]):
        yield from decoder.attention(config, layer, bias=bias, output_bias=bias)
        yield from decoder.mlp(config, layer)
