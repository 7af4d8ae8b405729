"""Quantized weights: tokens equal those of transformers with the values that the weights stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.vllm.generation import as_inputs, greedy, random_prompts, transformers_greedy, transformers_logits
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


def test_8_bit_cache(engine: Callable[..., Any], models: Path) -> None:
    from vllm import SamplingParams

    (prompt,) = random_prompts([100])
    parameters = SamplingParams(temperature=0, max_tokens=2, logprobs=5, ignore_eos=True)
    (found,) = engine(kv_cache_dtype="fp8").generate(as_inputs([prompt]), parameters, use_tqdm=False)
    wanted = transformers_logits(models / "llama", prompt + list(found.outputs[0].token_ids[:1])).log_softmax(
        -1
    )
    differences = [
        abs(each.logprob - float(row[token]))
        for row, chances in zip(wanted[-2:], found.outputs[0].logprobs, strict=True)
        for token, each in chances.items()
    ]
    assert 1e-5 < max(differences) < 0.5
