"""Quantized weights: tokens equal those of transformers with the values that the weights stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.vllm.generation import greedy, random_prompts, transformers_greedy
from tools.vllm.models import make_quantized


def test_8_bit_weights(engine: Callable[..., Any], models: Path, tmp_path: Path) -> None:
    quantized, values = make_quantized(models / "llama", tmp_path)
    prompts = random_prompts([30, 4, 100])
    made = engine(str(quantized))
    assert greedy(made, prompts, 24) == transformers_greedy(values, prompts, 24)
    kept = made.apply_model(
        lambda model: {
            str(each.dtype) for name, each in model.named_parameters() if name.endswith("proj.weight")
        }
    )
    assert kept == [{"torch.float8_e4m3fn"}]
