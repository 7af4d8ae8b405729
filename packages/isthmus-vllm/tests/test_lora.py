"""Adapters (LoRA): two of them and none in one batch equal transformers with peft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import generate, greedy, random_prompts
from tools.vllm.models import make_adapter

TOKENS = 24
PROMPTS = random_prompts([7, 16, 33, 1, 64, 5])


@pytest.mark.parametrize("runner", ["0", "1"])
def test_adapters_mixed_in_a_batch(
    runner: str, engine: Callable[..., Any], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from vllm.lora.request import LoRARequest

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    adapters = [None, *(make_adapter(models / "llama", tmp_path / str(seed), seed) for seed in (1, 2))]
    requests = [each and LoRARequest(each.name, int(each.name), str(each)) for each in adapters]
    chosen = [0, 1, 2, 1, 2, 1]
    wanted: list[list[int]] = [[] for _ in PROMPTS]
    for index, folder in enumerate(adapters):
        model = AutoModelForCausalLM.from_pretrained(models / "llama", dtype="float32").eval()
        if folder:
            model = PeftModel.from_pretrained(model, folder).eval()
        for place, prompt in enumerate(PROMPTS):
            if chosen[place] == index:
                wanted[place] = generate(model, prompt, TOKENS)
    made = engine("llama", enable_lora=True, max_loras=2, max_lora_rank=8)
    assert greedy(made, PROMPTS, TOKENS, lora_request=[requests[each] for each in chosen]) == wanted
    assert greedy(made, PROMPTS[1:2], TOKENS) != wanted[1:2]
