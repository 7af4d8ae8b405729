"""The shape of a transformer, from a config.json of Hugging Face or from Megatron's options."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus_common.training.model_arguments import option_numbers
from isthmus_diagnostics.plan.files import PlanError

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
_FAMILIES = "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe".split()


@dataclass(frozen=True)
class Model:
    """A decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU, dense or with experts.

    Attributes:
        layers, hidden, heads, groups, head: layers; features; query heads, key and value heads, features of a head.
        ffn: width of the feed-forward layer, or of one expert.
        vocab: entries of the vocabulary.
        tied: whether the output layer's weight is the embedding's.
        experts, topk: experts of each layer, and those that a token visits; 0 of a dense model.
        bias: whether queries, keys and values have a bias.
        seq: tokens of a sample.
        dtype: of weights and activations.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    ffn: int
    vocab: int
    tied: bool = False
    experts: int = 0
    topk: int = 0
    bias: bool = False
    seq: int = 4096
    dtype: str = "bfloat16"

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return WIDTHS[self.dtype]

    @property
    def query(self) -> int:
        """Features of all query heads."""
        return self.heads * self.head

    @property
    def key(self) -> int:
        """Features of all key heads."""
        return self.groups * self.head

    @property
    def attention(self) -> int:
        """Weights of the attention of a layer."""
        qkv = self.query + 2 * self.key
        return self.hidden * (qkv + self.query) + qkv * self.bias

    @property
    def mlp(self) -> int:
        """Weights of a feed-forward layer, or of one expert."""
        return 3 * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """Weights of the whole model."""
        layer = (
            self.attention + 2 * self.hidden + self.mlp * max(1, self.experts) + self.hidden * self.experts
        )
        return self.layers * layer + self.hidden + self.vocab * self.hidden * (1 if self.tied else 2)


def read(path: Path, seq: int | None, dtype: str) -> Model:
    """Read a model from a config.json, or from a file with Megatron's options, such as a launch script.

    Args:
        path: the file.
        seq: tokens of a sample; None: ``--seq-length`` of the options, else 4096.
        dtype: of the training; "" is bfloat16, or that of the options.

    Raises:
        PlanError: the file cannot be read, or the model is none of the supported ones.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise PlanError(f"{path}: {reason}; give a config.json, or a file with Megatron's options") from None
    try:
        is_json = text.lstrip().startswith("{")
        model = _hugging_face(json.loads(text)) if is_json else megatron(text)
    except KeyError as error:
        raise PlanError(f"{path}: {error.args[0]} is missing; it is needed to plan") from None
    except (ValueError, TypeError) as error:
        raise PlanError(f"{path}: {error}") from None
    if dtype and dtype not in WIDTHS:
        raise PlanError(f"--dtype {dtype}: expected {', '.join(WIDTHS)}")
    model = replace(model, seq=seq or model.seq, dtype=dtype or model.dtype)
    sizes = {name: getattr(model, name) for name in "layers hidden heads groups head ffn vocab seq".split()}
    for name, size in sizes.items():
        if size < 1:
            raise PlanError(f"{path}: {name} is {size}; it must be 1 or more")
    return model


def _hugging_face(config: dict[str, Any]) -> Model:
    family = config.get("model_type", "llama")
    if family not in _FAMILIES:
        raise ValueError(f"model_type {family!r} is not supported; expected {', '.join(_FAMILIES)}")
    if config.get("shared_expert_intermediate_size") or config.get("mlp_only_layers"):
        raise ValueError("shared experts and dense layers among those with experts are not supported")
    heads = int(config["num_attention_heads"])
    experts = int(config.get("num_local_experts") or config.get("num_experts") or 0)
    ffn = config.get("moe_intermediate_size") if experts else None
    return Model(
        layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        heads=heads,
        groups=int(config.get("num_key_value_heads") or heads),
        head=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
        ffn=int(ffn or config["intermediate_size"]),
        vocab=int(config["vocab_size"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=experts,
        topk=int(config.get("num_experts_per_tok", 2)) if experts else 0,
        bias=bool(config.get("attention_bias", family.startswith("qwen2"))),
    )


def megatron(text: str) -> Model:
    """Return a model from options of Megatron.

    Raises:
        KeyError: an option is missing.
        ValueError: the text has no options.
    """

    def option(name: str, default: int | None = None) -> int:
        found = next(iter(option_numbers(text, name)), default)
        if found is None:
            raise KeyError(f"--{name}")
        return found

    if "--num-layers" not in text:
        raise ValueError("neither JSON nor options of Megatron such as --num-layers 32")
    hidden, heads = option("hidden-size"), option("num-attention-heads")
    experts = option("num-experts", 0)
    ffn = option("ffn-hidden-size", 4 * hidden)
    return Model(
        layers=option("num-layers"),
        hidden=hidden,
        heads=heads,
        groups=option("num-query-groups", heads),
        head=option("kv-channels", hidden // heads),
        ffn=option("moe-ffn-hidden-size", ffn) if experts else ffn,
        vocab=option("vocab-size"),
        tied="--untie-embeddings-and-output-weights" not in text,
        experts=experts,
        topk=option("moe-router-topk", 2) if experts else 0,
        bias="--add-qkv-bias" in text,
        seq=option("seq-length", 4096),
        dtype="bfloat16" if "--bf16" in text else "float16" if "--fp16" in text else "float32",
    )
