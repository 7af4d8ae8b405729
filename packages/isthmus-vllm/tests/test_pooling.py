"""Pooling models: embeddings, classes and scores equal those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.vllm.generation import as_inputs, random_prompts
from tools.vllm.models import make_pooling

PROMPTS = random_prompts([7, 16, 33, 100, 1, 2])
PAIRS = [("the quick brown fox", "lazy dog"), ("a", "import torch, json, os")]
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def hidden_states(folder: Path, prompt: list[int]) -> torch.Tensor:
    from transformers import AutoModel

    with torch.no_grad():
        model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        return model(torch.tensor([prompt])).last_hidden_state[0]  # type: ignore[no-any-return]


def logits(folder: Path, **inputs: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForSequenceClassification

    with torch.no_grad():
        model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
        return model(**inputs).logits[0]  # type: ignore[no-any-return]


def normalised(vector: torch.Tensor) -> torch.Tensor:
    return vector / vector.norm()


def test_embeddings_of_a_decoder(engine: Callable[..., Any], models: Path) -> None:
    found = engine("llama", runner="pooling").embed(as_inputs(PROMPTS), use_tqdm=False)
    for prompt, each in zip(PROMPTS, found, strict=True):
        wanted = normalised(hidden_states(models / "llama", prompt)[-1])
        torch.testing.assert_close(torch.tensor(each.outputs.embedding), wanted, **TOLERANCE)


def test_embeddings_of_an_encoder(engine: Callable[..., Any], tmp_path: Path) -> None:
    from vllm.config.pooler import PoolerConfig

    folder = make_pooling(tmp_path / "bert", "BertModel")
    options = {"runner": "pooling", "pooler_config": PoolerConfig(seq_pooling_type="MEAN")}
    found = engine(str(folder), **options).embed(as_inputs(PROMPTS), use_tqdm=False)
    for prompt, each in zip(PROMPTS, found, strict=True):
        wanted = normalised(hidden_states(folder, prompt).mean(0))
        torch.testing.assert_close(torch.tensor(each.outputs.embedding), wanted, **TOLERANCE)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "LlamaForSequenceClassification"])
def test_classes(kind: str, engine: Callable[..., Any], tmp_path: Path) -> None:
    folder = make_pooling(tmp_path / "classes", kind, num_labels=3)
    found = engine(str(folder), runner="pooling").classify(as_inputs(PROMPTS), use_tqdm=False)
    for prompt, each in zip(PROMPTS, found, strict=True):
        wanted = logits(folder, input_ids=torch.tensor([prompt])).softmax(-1)
        torch.testing.assert_close(torch.tensor(each.outputs.probs), wanted, **TOLERANCE)


def test_scores_of_pairs(engine: Callable[..., Any], tmp_path: Path) -> None:
    folder = make_pooling(tmp_path / "score", "BertForSequenceClassification", num_labels=1)
    made = engine(str(folder), runner="pooling")
    found = made.score([first for first, _ in PAIRS], [second for _, second in PAIRS], use_tqdm=False)
    for (first, second), each in zip(PAIRS, found, strict=True):
        inputs = made.get_tokenizer()(first, second, return_tensors="pt")
        wanted = logits(folder, **inputs).sigmoid()[0]
        torch.testing.assert_close(torch.tensor(each.outputs.score), wanted, **TOLERANCE)
