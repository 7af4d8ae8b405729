"""Replacements in Hugging Face's transformers, by part.

Attention and losses use the library's registries. Layers are patched in their classes, because the library's kernel
mapping (``use_kernel_forward_from_hub``) needs the package ``kernels`` and models that opt in.
"""

from collections.abc import Callable
from typing import Any

from isthmus.ops.patching import attention, layers, losses
from isthmus.ops.patching.attempt import Attempt
from isthmus_common.patches import resolve

# Class prefixes of LLaMA-like models, by package.
LIKE_LLAMA = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}


def _class(family: str, name: str) -> str:
    return f"transformers.models.{family}.modeling_{family}.{LIKE_LLAMA.get(family, '')}{name}"


def _norm(attempt: Attempt) -> None:
    for family in LIKE_LLAMA:
        attempt.replace(
            _class(family, "RMSNorm.forward"),
            layers.norm,
            "one pass over the hidden states (rms_norm)",
            expects=("self", "hidden_states"),
        )


def _residual(attempt: Attempt) -> None:
    """Must run after ``_norm``: the replaced norms accept a residual."""
    replaced = {each.target for each in attempt.scope.patches}
    for family in LIKE_LLAMA:
        target, norm = _class(family, "DecoderLayer.forward"), _class(family, "RMSNorm")
        if f"{norm}.forward" not in replaced:
            attempt.left[target] = f"needs {norm}.forward, which is not replaced by this call"
            continue
        owner, name = resolve(norm)
        attempt.replace(
            target,
            layers.decoder_layer(getattr(owner, name)),
            "the sum after attention and its norm in one pass (add_rms_norm)",
            expects=(
                "self", "hidden_states", "attention_mask", "position_ids", "past_key_values", "use_cache",
                "position_embeddings",
            ),
        )  # fmt: skip

    for name in ("BertSelfOutput.forward", "BertOutput.forward"):
        attempt.replace(
            _class("bert", name),
            layers.add_layer_norm,
            "dropout, sum and layer norm in one pass (dropout_add_layer_norm)",
            expects=("self", "hidden_states", "input_tensor"),
        )


def _rotary(attempt: Attempt) -> None:
    for family in LIKE_LLAMA:
        attempt.replace(
            f"transformers.models.{family}.modeling_{family}.apply_rotary_pos_emb",
            layers.rotary_embedding,
            "query and key in one pass (rotary)",
            expects=("q", "k", "cos", "sin", "unsqueeze_dim"),
        )


def _mlp(attempt: Attempt) -> None:
    for family in LIKE_LLAMA:
        attempt.replace(
            _class(family, "MLP.forward"),
            layers.gated_mlp,
            "activation and product in one pass (swiglu)",
            expects=("self", "x"),
        )


def _attention(attempt: Attempt) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    attempt.register(
        ALL_ATTENTION_FUNCTIONS,
        AttentionInterface.register,
        "sdpa",
        attention.sdpa,
        "transformers.AttentionInterface",
        "flash attention without repeated key heads, with masks and dropout (attention)",
        expects=("module", "query", "key", "value", "attention_mask", "dropout", "scaling", "is_causal"),
    )


def _loss(attempt: Attempt) -> None:
    from transformers.loss import loss_utils

    arguments = ("logits", "labels", "vocab_size", "num_items_in_batch", "ignore_index")
    reason = "reads the logits once each way, without a float32 copy (cross_entropy)"
    makers: dict[str, Callable[[Any], Any]] = {"ForCausalLM": losses.causal, "ForMaskedLM": losses.masked}
    for name, make in makers.items():
        original = loss_utils.LOSS_MAPPING.get(name)
        shared = [key for key, each in loss_utils.LOSS_MAPPING.items() if each is original]
        for key in [name] if original is None else shared:
            attempt.register(
                loss_utils.LOSS_MAPPING,
                loss_utils.LOSS_MAPPING.__setitem__,
                key,
                make,
                "transformers.loss.loss_utils.LOSS_MAPPING",
                reason,
                arguments,
            )
    attempt.replace(
        "transformers.trainer.ForCausalLMLoss",
        losses.causal,
        "Trainer compares a model's loss with it to count the targets of a batch",
        expects=arguments,
    )
    attempt.replace(
        _class("bert", "CrossEntropyLoss"),
        losses.module,
        "reads the logits once each way (cross_entropy)",
        expects=("weight",),
    )


PARTS: dict[str, Callable[[Attempt], None]] = {
    "norm": _norm,
    "residual": _residual,
    "rotary": _rotary,
    "mlp": _mlp,
    "attention": _attention,
    "loss": _loss,
}
