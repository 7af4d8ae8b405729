"""Speculative decoding: tokens are accepted, and equal those of greedy decoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import expected, greedy, metric

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"


@pytest.mark.parametrize("runner", ["0", "1"])
@pytest.mark.parametrize("draft", ["ngram", "draft", "llama"])
def test_tokens_equal_those_of_greedy_decoding(
    draft: str, runner: str, models: Path, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    config = {"method": "draft_model", "model": str(models / draft), "num_speculative_tokens": 3}
    made = engine("llama", speculative_config=NGRAM if draft == "ngram" else config)
    assert greedy(made) == expected(models / "llama")
    drafted = metric(made, "vllm:spec_decode_num_draft_tokens")
    accepted = metric(made, ACCEPTED)
    assert drafted > 0
    if draft != "draft":  # a model of its own random weights, which may guess no token
        assert accepted > 0
    if draft == "llama":
        assert accepted / drafted > 0.9
