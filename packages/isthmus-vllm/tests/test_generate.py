"""Greedy tokens in float32 equal those of transformers, for each architecture, with and without graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import expected, greedy

ARCHITECTURES = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "phi3",
    "mixtral",
    "qwen3moe",
    "gpt2",
    "bloom",
    "opt",
]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_equal_those_of_transformers(name: str, models: Path, engine: Callable[..., Any]) -> None:
    assert greedy(engine(name)) == expected(models / name)


@pytest.mark.parametrize("runner", ["0", "1"])
@pytest.mark.parametrize("name", ["llama", "mistral", "mixtral"])
def test_graphs_change_no_token(
    name: str, runner: str, models: Path, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    made = engine(name, enforce_eager=False)
    assert greedy(made) == expected(models / name)


def test_the_second_runner_generates_the_same(
    models: Path, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    assert greedy(engine("llama")) == expected(models / "llama")
