"""Parts that decoders share."""

from __future__ import annotations

from collections.abc import Iterator

from isthmus_formats.checkpoint.architectures import Config
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Parameter

ENDS = """
model.embed_tokens.weight = embedding.weight
model.norm.weight = norm.weight
lm_head.weight = output.weight
"""
ATTENTION = """
model.layers.{layer}.input_layernorm.weight = input_norm.weight
model.layers.{layer}.self_attn.q_proj.* = attention.q.*
model.layers.{layer}.self_attn.k_proj.* = attention.k.*
model.layers.{layer}.self_attn.v_proj.* = attention.v.*
model.layers.{layer}.self_attn.o_proj.* = attention.o.*
model.layers.{layer}.self_attn.q_norm.weight = attention.q_norm.weight
model.layers.{layer}.self_attn.k_norm.weight = attention.k_norm.weight
"""
MLP = """
model.layers.{layer}.post_attention_layernorm.weight = mlp_norm.weight
model.layers.{layer}.mlp.gate_proj.* = mlp.gate.*
model.layers.{layer}.mlp.up_proj.* = mlp.up.*
model.layers.{layer}.mlp.down_proj.* = mlp.down.*
"""
EXPERTS = """
model.layers.{layer}.post_attention_layernorm.weight = moe_norm.weight
model.layers.{layer}.mlp.gate.weight = router.weight
model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight = gate.weight
model.layers.{layer}.mlp.experts.{expert}.up_proj.weight = up.weight
model.layers.{layer}.mlp.experts.{expert}.down_proj.weight = down.weight
"""


def outer_parameters(config: Config) -> Iterator[Parameter]:
    """Return the parameters outside the layers: embedding, last norm, output."""
    vocabulary, hidden = config["vocab_size"], config["hidden_size"]
    yield Parameter("embedding.weight", (vocabulary, hidden), shard=0)
    yield Parameter("norm.weight", (hidden,))
    if not config.get("tie_word_embeddings", False):
        yield Parameter("output.weight", (vocabulary, hidden), shard=0)


def attention(
    config: Config, layer: int, *, bias: bool = False, output_bias: bool = False, norms: bool = False
) -> Iterator[Parameter]:
    """Return the attention of a layer.

    Args:
        config: the configuration.
        layer: the layer.
        bias: q, k and v have biases.
        output_bias: the projection of the output has one.
        norms: q and k are normalized by head.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    groups, head = config.get("num_key_value_heads") or heads, head_size(config)
    if heads % groups:
        raise CheckpointError(f"config.json: {heads} attention heads cannot share {groups} key-value heads")
    yield Parameter("input_norm.weight", (hidden,), layer)
    for name, rows, rotary in ("q", heads * head, head), ("k", groups * head, head), ("v", groups * head, 0):
        yield Parameter(f"attention.{name}.weight", (rows, hidden), layer, shard=0, rotary=rotary)
        if bias:
            yield Parameter(f"attention.{name}.bias", (rows,), layer, shard=0, rotary=rotary)
    yield Parameter("attention.o.weight", (hidden, heads * head), layer, shard=1)
    if output_bias:
        yield Parameter("attention.o.bias", (hidden,), layer)
    if norms:
        yield Parameter("attention.q_norm.weight", (head,), layer, rotary=head)
        yield Parameter("attention.k_norm.weight", (head,), layer, rotary=head)


def head_size(config: Config) -> int:
    """Return the size of a head."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def sliding_window(config: Config) -> int | None:
    """Return the number of tokens that attention reaches back to; None for all. transformers' defaults apply."""
    window = config.get("sliding_window", 4096 if config["model_type"] == "mistral" else None)
    return window if config.get("use_sliding_window", not config["model_type"].startswith("qwen")) else None


def mlp(config: Config, layer: int, *, bias: bool = False) -> Iterator[Parameter]:
    """Return the gated MLP of a dense layer, with the norm before it."""
    yield Parameter("mlp_norm.weight", (config["hidden_size"],), layer)
    yield from gated_mlp(config, config["intermediate_size"], layer, prefix="mlp.", bias=bias)


def experts(config: Config, layer: int, number: int, size: int) -> Iterator[Parameter]:
    """Return the router and the experts of a layer, with the norm before them.

    Args:
        config: the configuration.
        layer: the layer.
        number: the number of experts.
        size: the intermediate size of an expert.
    """
    hidden = config["hidden_size"]
    yield Parameter("moe_norm.weight", (hidden,), layer)
    yield Parameter("router.weight", (number, hidden), layer)
    for expert in range(number):
        yield from gated_mlp(config, size, layer, expert=expert)


def gated_mlp(
    config: Config, size: int, layer: int, *, expert: int | None = None, prefix: str = "", bias: bool = False
) -> Iterator[Parameter]:
    """Return the three matrices of a gated MLP of a given intermediate size."""
    hidden = config["hidden_size"]
    for name in "gate", "up":
        yield Parameter(f"{prefix}{name}.weight", (size, hidden), layer, expert, 0)
        if bias:
            yield Parameter(f"{prefix}{name}.bias", (size,), layer, expert, 0)
    yield Parameter(f"{prefix}down.weight", (hidden, size), layer, expert, 1)
    if bias:
        yield Parameter(f"{prefix}down.bias", (hidden,), layer, expert)
