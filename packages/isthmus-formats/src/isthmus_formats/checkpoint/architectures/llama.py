"""LLaMA 1 to 3 and Mistral."""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config, decoder
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("llama", "mistral")
NAMES = decoder.ENDS + decoder.ATTENTION + decoder.MLP


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    yield from decoder.outer_parameters(config)
    bias = config.get("attention_bias", False)
    for layer in range(config["num_hidden_layers"]):
        yield from decoder.attention(config, layer, bias=bias, output_bias=bias)
        yield from decoder.mlp(config, layer, bias=config.get("mlp_bias", False))
