"""GPT-2: learned positions, biases everywhere, matrices transposed in Hugging Face files."""

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config
from isthmus_formats.checkpoint.layout import Parameter

TYPES = ("gpt2",)
NAMES = """
transformer.wte.weight = embedding.weight
transformer.wpe.weight = position.weight
transformer.ln_f.* = norm.*
lm_head.weight = output.weight
transformer.h.{layer}.ln_1.* = input_norm.*
transformer.h.{layer}.attn.c_attn.weight = attention.q.weight attention.k.weight attention.v.weight | transposed
transformer.h.{layer}.attn.c_attn.bias = attention.q.bias attention.k.bias attention.v.bias
transformer.h.{layer}.attn.c_proj.weight = attention.o.weight | transposed
transformer.h.{layer}.attn.c_proj.bias = attention.o.bias
transformer.h.{layer}.ln_2.* = mlp_norm.*
transformer.h.{layer}.mlp.c_fc.weight = mlp.plain.weight | transposed
transformer.h.{layer}.mlp.c_fc.bias = mlp.plain.bias
transformer.h.{layer}.mlp.c_proj.weight = mlp.down.weight | transposed
transformer.h.{layer}.mlp.c_proj.bias = mlp.down.bias
"""


def parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters of a configuration."""
    hidden, vocabulary = config["n_embd"], config["vocab_size"]
    size = config.get("n_inner") or 4 * hidden
    yield Parameter("embedding.weight", (vocabulary, hidden), shard=0)
    yield Parameter("position.weight", (config["n_positions"], hidden))
    yield from _norm("norm", hidden)
    if not config.get("tie_word_embeddings", True):
        yield Parameter("output.weight", (vocabulary, hidden), shard=0)
    for layer in range(config["n_layer"]):
        yield from _norm("input_norm", hidden, layer)
        for name in "attention.q", "attention.k", "attention.v":
            yield from _linear(name, hidden, hidden, layer, 0)
        yield from _linear("attention.o", hidden, hidden, layer, 1)
        yield from _norm("mlp_norm", hidden, layer)
        yield from _linear("mlp.plain", size, hidden, layer, 0)
        yield from _linear("mlp.down", hidden, size, layer, 1)


def _norm(name: str, hidden: int, layer: int | None = None) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (hidden,), layer)
    yield Parameter(f"{name}.bias", (hidden,), layer)


def _linear(name: str, rows: int, columns: int, layer: int, shard: int) -> Iterator[Parameter]:
    yield Parameter(f"{name}.weight", (rows, columns), layer, shard=shard)
    yield Parameter(f"{name}.bias", (rows,), layer, shard=None if shard else 0)
