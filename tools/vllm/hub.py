"""A cache of the Hugging Face hub with the configurations that vLLM's tests name, and no weights.

The architectures are those of the public models; tokenizers are this project's tiny one. Where a test loads weights,
vLLM makes them (``load_format="dummy"``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LLAMA_3 = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
_QWEN_3 = {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}  # fmt: skip
# Name on the hub -> class of the configuration, its architecture and arguments.
CONFIGURATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "facebook/opt-125m": ("OPTConfig", "OPTForCausalLM", {"vocab_size": 50272}),
    "meta-llama/Meta-Llama-3-8B": ("LlamaConfig", "LlamaForCausalLM", _LLAMA_3),
    "Qwen/Qwen3-0.6B": ("Qwen3Config", "Qwen3ForCausalLM", _QWEN_3),
}


def make(cache: Path) -> Path:
    """Make the cache, and return it; for ``HF_HUB_CACHE``."""
    import transformers

    from tools.vllm.models import tokenizer

    for name, (kind, architecture, arguments) in CONFIGURATIONS.items():
        home = cache / f"models--{name.replace('/', '--')}"
        if (home / "refs").is_dir():
            continue
        snapshot = home / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        configuration = getattr(transformers, kind)(
            **arguments, architectures=[architecture], dtype="bfloat16"
        )
        configuration.save_pretrained(snapshot)
        tokenizer().save_pretrained(snapshot)
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("0" * 40)
    return cache
