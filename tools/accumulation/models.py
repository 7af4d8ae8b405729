"""Train models of Hugging Face in bfloat16 alone: on the chip, and with every operator in float32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from tools.opinfo.twin import tree_map

STEPS = 200
LAST = 20  # steps whose mean loss is compared
BATCH, LENGTH, WORDS = 8, 64, 61
SIZES: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128}
LAYERS: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4}


class Float32(TorchDispatchMode):
    """Computes each operator on 16-bit tensors in float32, and rounds its results once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator."""
        kwargs = kwargs or {}
        if func.is_view or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)
        narrow = False

        def widen(value: Any) -> Any:
            nonlocal narrow
            if not isinstance(value, torch.Tensor) or value.dtype != torch.bfloat16:
                return value
            narrow = True
            return value.float()

        wide = tree_map(widen, args), tree_map(widen, kwargs)
        if not narrow or "dtype" in kwargs:
            return func(*args, **kwargs)
        results = func(*wide[0], **wide[1])
        return tree_map(
            lambda value: (
                value.bfloat16()
                if isinstance(value, torch.Tensor) and value.dtype == torch.float32
                else value
            ),
            results,
        )


class Model(NamedTuple):
    """A model and its input, made from sequences of word numbers."""

    name: str
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[torch.Tensor], dict[str, torch.Tensor]]


def _as_pictures(words: torch.Tensor) -> dict[str, torch.Tensor]:
    rows = (words.float() / WORDS - 0.5).bfloat16()
    pictures = rows[:, None, :32, None] * rows[:, None, None, :32]
    return {"pixel_values": pictures.expand(-1, 3, -1, -1), "labels": words[:, 0] % 7}


MODELS = (
    Model(
        "LLaMA",
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **LAYERS)),
        lambda words: {"input_ids": words, "labels": words},
    ),
    Model(
        "GPT-2",
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0,
                bos_token_id=0, eos_token_id=0,
            )
        ),
        lambda words: {"input_ids": words, "labels": words},
    ),
    Model(
        "BERT",
        lambda: transformers.BertForMaskedLM(
            transformers.BertConfig(
                **SIZES, **LAYERS, hidden_dropout_prob=0, attention_probs_dropout_prob=0
            )
        ),
        lambda words: {"input_ids": torch.where(words % 5 == 0, 0, words), "labels": words},
    ),
    Model(
        "T5",
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=WORDS, d_model=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4, dropout_rate=0,
                decoder_start_token_id=0,
            )
        ),
        lambda words: {"input_ids": words, "labels": words},
    ),
    Model(
        "ViT",
        lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(
                hidden_size=64, intermediate_size=128, **LAYERS, image_size=32, patch_size=8, num_labels=7,
                hidden_dropout_prob=0, attention_probs_dropout_prob=0,
            )
        ),
        _as_pictures,
    ),
)  # fmt: skip


def sequences(generator: torch.Generator) -> torch.Tensor:
    """Return a batch of sequences in which each word follows from the one before, but for one in ten."""
    words = torch.randint(WORDS, (BATCH, 1), generator=generator)
    for _ in range(LENGTH - 1):
        drawn = torch.randint(WORDS, (BATCH, 1), generator=generator)
        usual = torch.rand(BATCH, 1, generator=generator) < 0.9
        words = torch.cat([words, torch.where(usual, (words[:, -1:] * 7 + 3) % WORDS, drawn)], 1)
    return words


def losses(model: Model, device: str) -> list[float]:
    """Train a model in bfloat16, weights and optimizer included, and return its losses."""
    torch.manual_seed(0)
    network = model.make().to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(STEPS):
        inputs = {name: value.to(device) for name, value in model.inputs(sequences(generator)).items()}
        loss = network(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
