"""What is replaced in Hugging Face's transformers, part by part.

Attention and losses have registries, which are used. The kernel mapping for layers (``use_kernel_forward_from_hub``)
works only with the package ``kernels`` and for models that ask for it, so layers are replaced in their classes.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.ops.patching import layers
from isthmus.ops.patching.attempt import Attempt
from isthmus.patches import resolve

# Class prefixes of the models that are made like LLaMA, by the name of their package.
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
    """After the norms, which have to take a residual."""
    replaced = {each.target for each in attempt.scope.patches}
    for family in LIKE_LLAMA:
        target, norm = _class(family, "DecoderLayer.forward"), _class(family, "RMSNorm")
        if f"{norm}.forward" not in replaced:
            attempt.left[target] = f"{norm}.forward is not replaced by this call"
            continue
        owner, name = resolve(norm)
        attempt.replace(
            target,
            layers.decoder_layer(getattr(owner, name)),
            "the sum after attention and the norm behind it in one pass (add_rms_norm)",
            expects=(
                "self", "hidden_states", "attention_mask", "position_ids", "past_key_values", "use_cache",
                "position_embeddings",
            ),
        )  # fmt: skip


def _mlp(attempt: Attempt) -> None:
    for family in LIKE_LLAMA:
        attempt.replace(
            _class(family, "MLP.forward"),
            layers.gated_mlp,
            "activation and product in one pass (swiglu)",
            expects=("self", "x"),
        )


PARTS: dict[str, Callable[[Attempt], None]] = {
    "norm": _norm,
    "residual": _residual,
    "mlp": _mlp,
}
