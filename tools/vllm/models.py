"""Tiny models with random weights, made on the spot, and the tokens that transformers generates with them.

    python -m tools.vllm.models build/vllm/models

Each folder has a model, a tokenizer and ``tokens.json``: transformers' greedy tokens for :data:`PROMPTS` in float32.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROMPTS = [
    "the quick brown fox",
    "lazy dog",
    "import torch, json, os",
    "a",
    "def make(out, hidden=256):\n    return",
    "the lazy dog jumps over the quick brown fox. the quick brown fox jumps over the lazy dog. the",
]
NEW_TOKENS = 64
_VOCABULARY = 512
_CHAT = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_COMMON = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
_GPT2 = {"vocab_size": _VOCABULARY, "n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 1024}
_TOKENS = {"initializer_range": 0.1, "bos_token_id": 1, "eos_token_id": 2}
_OPT = {"ffn_dim": 256, "word_embed_proj_dim": 128}
# Name -> class of the configuration, and its arguments.
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _COMMON | {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
                                        "intermediate_size": 688, "num_hidden_layers": 4, "initializer_range": 0.08}),
    "draft": ("LlamaConfig", _COMMON | {"num_hidden_layers": 1}),
    "qwen2": ("Qwen2Config", _COMMON),
    "qwen3": ("Qwen3Config", _COMMON | {"head_dim": 32}),
    "mistral": ("MistralConfig", _COMMON | {"sliding_window": 24, "head_dim": 32}),
    "gemma2": ("Gemma2Config", _COMMON | {"tie_word_embeddings": True, "head_dim": 32, "sliding_window": 24,
                                          "query_pre_attn_scalar": 32}),
    "phi3": ("Phi3Config", _COMMON | {"sliding_window": None}),
    "mixtral": ("MixtralConfig", _COMMON | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
                                            "head_dim": 32}),
    "qwen3moe": ("Qwen3MoeConfig", _COMMON | {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2,
                                              "moe_intermediate_size": 64, "norm_topk_prob": True,
                                              "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "gpt2": ("GPT2Config", _GPT2 | _TOKENS),
    "bloom": ("BloomConfig", {"vocab_size": _VOCABULARY, "hidden_size": 128, "n_layer": 3, "n_head": 4,
                              "pad_token_id": 0} | _TOKENS),
    "opt": ("OPTConfig", {key: _COMMON[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings", "pad_token_id")}
            | {"init_std": 0.1, "bos_token_id": 1, "eos_token_id": 2} | _OPT),
}  # fmt: skip
# 51 million parameters, for benchmarks.
SMALL = ("LlamaConfig", _COMMON | {"hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12,
                                   "num_key_value_heads": 4, "intermediate_size": 2048,
                                   "max_position_embeddings": 2048})  # fmt: skip


def make(folder: Path, names: list[str] | None = None) -> Path:
    """Make the models that the folder lacks, and return it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    for name in names or CONFIGURATIONS:
        if not (folder / name / "tokens.json").exists():
            make_one(folder / name, *CONFIGURATIONS[name])
            _write_tokens(folder / name)
    return folder


def make_one(folder: Path, configuration: str, arguments: dict[str, Any], seed: int = 1) -> None:
    """Make one model with its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, configuration)(**arguments)
    ).float()
    model.generation_config = transformers.GenerationConfig(eos_token_id=2, bos_token_id=1)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def make_pooling(folder: Path, kind: str, **arguments: Any) -> Path:
    """Make a model of that class of transformers, an encoder (Bert) or a decoder, and return its folder."""
    import torch
    import transformers

    common = {key: value for key, value in _COMMON.items() if key != "num_key_value_heads"} | arguments
    configuration = getattr(transformers, "BertConfig" if kind.startswith("Bert") else "LlamaConfig")(
        **common
    )
    torch.manual_seed(1)
    getattr(transformers, kind)(configuration).float().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def make_vision(folder: Path) -> Path:
    """Make an Idefics3 model, of which SmolVLM is one, for images of 32 x 32, and return its folder."""
    import torch
    import transformers
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    side, patch, scale = 32, 8, 2
    tokens = tokenizer()
    image, *others = "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"
    tokens.add_special_tokens({"additional_special_tokens": [image, *others]})
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    configuration = transformers.Idefics3Config(
        vision_config=size | {"image_size": side, "patch_size": patch},
        text_config=transformers.LlamaConfig(**_COMMON | {"vocab_size": len(tokens) + 8}),
        image_token_id=tokens.convert_tokens_to_ids(image), scale_factor=scale, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.Idefics3ForConditionalGeneration(configuration).float()
    model.generation_config = transformers.GenerationConfig(eos_token_id=2, bos_token_id=1)
    model.save_pretrained(folder)
    pixels = Idefics3ImageProcessorPil(
        size={"longest_edge": side}, max_image_size={"longest_edge": side}, do_image_splitting=False
    )
    length = (side // patch // scale) ** 2
    transformers.Idefics3Processor(pixels, tokens, image_seq_len=length).save_pretrained(folder)
    return folder


def make_quantized(model: Path, folder: Path) -> tuple[Path, Path]:
    """Make two models of one: weights of linear layers in 8 bits with a scale for each output, and their values.

    The first is in the format that LLM Compressor writes (``FP8_DYNAMIC``).
    """
    import json
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    quantized, values = folder / "quantized", folder / "values"
    for each in (quantized, values):
        shutil.copytree(model, each)
    weights = load_file(model / "model.safetensors")
    for name in [each for each in weights if each.endswith("proj.weight")]:
        scale = weights[name].abs().amax(1, keepdim=True) / 448
        small = (weights[name] / scale).to(torch.float8_e4m3fn)
        weights[name] = small.float() * scale
        weights[name + "_scale"], weights["small " + name] = scale, small
    extra = {name for name in weights if name.endswith("_scale") or name.startswith("small ")}
    save_file({name: weights[name] for name in weights if name not in extra}, values / "model.safetensors")
    stored = {
        name: weights.get(f"small {name}", weights[name]) for name in weights if not name.startswith("small ")
    }
    save_file(stored, quantized / "model.safetensors")
    eight = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {
        "targets": ["Linear"], "weights": eight | {"strategy": "channel", "dynamic": False},
        "input_activations": eight | {"strategy": "token", "dynamic": True},
    }  # fmt: skip
    configuration = json.loads((model / "config.json").read_text())
    configuration["quantization_config"] = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group},
        "ignore": ["lm_head"], "quantization_status": "compressed",
    }  # fmt: skip
    (quantized / "config.json").write_text(json.dumps(configuration))
    return quantized, values


def make_adapter(model: Path, folder: Path, seed: int) -> Path:
    """Make a random LoRA adapter of rank 8 on every linear layer of a model, and return its folder."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM"
    )
    get_peft_model(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), config).save_pretrained(
        folder
    )
    return folder


def tokenizer() -> Any:
    """A byte-level tokenizer of 512 tokens."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*PROMPTS, Path(__file__).read_text("utf-8")], trainer)
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<unk>"
    )
    found.chat_template = _CHAT
    return found


def _write_tokens(folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tools.vllm.generation import generate

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    encode = AutoTokenizer.from_pretrained(folder)
    tokens = [generate(model, encode(prompt).input_ids, NEW_TOKENS) for prompt in PROMPTS]
    (folder / "tokens.json").write_text(json.dumps(tokens))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:] or None)
