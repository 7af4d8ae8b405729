"""In batch-invariant mode a trainer and the generator agree bit for bit, whatever the batches and the chunks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SEQUENCES = 200
TOKENS = 8


@pytest.fixture
def invariant(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import torch

    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    yield
    torch.get_device_module().set_batch_invariant(False)


def _sampled(engine: Any) -> list[tuple[list[int], list[int], list[float]]]:
    """Prompt, sampled tokens and their log-probabilities, of sequences that are cut into chunks beside each other."""
    from vllm import SamplingParams

    draw = random.Random(7)
    prompts = [
        [draw.randrange(3, 500) for _ in range(draw.choice([1, 5, 17, 33, 80]))] for _ in range(SEQUENCES)
    ]
    parameters = SamplingParams(temperature=1.0, seed=1, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    found = engine.generate([{"prompt_token_ids": each} for each in prompts], parameters, use_tqdm=False)
    samples = []
    for each in found:
        out = each.outputs[0]
        logprobs = [step[token].logprob for step, token in zip(out.logprobs, out.token_ids, strict=True)]
        samples.append((list(each.prompt_token_ids), list(out.token_ids), logprobs))
    return samples


def _differences(samples: list[tuple[list[int], list[int], list[float]]], model: Any) -> list[float]:
    """Largest difference of each sequence to the log-probabilities of one forward pass of a trainer's model."""
    import torch

    found = []
    for prompt, tokens, generated in samples:
        ids = torch.tensor([prompt + tokens], device=model.device)
        with torch.no_grad():
            rows = model(ids).logits[0].float().log_softmax(-1)[len(prompt) - 1 : -1]
        trained = rows[range(len(tokens)), tokens].tolist()
        found.append(max(abs(ours - theirs) for ours, theirs in zip(trained, generated, strict=True)))
    return found


def _trainer(folder: Path, dtype: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(
        torch.accelerator.current_accelerator()
    )


OPTIONS = {"max_num_batched_tokens": 64, "max_num_seqs": 8}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_trainer_and_generator_agree_bit_for_bit(
    dtype: str, models: Path, engine: Callable[..., Any], invariant: None
) -> None:
    from isthmus import ops

    samples = _sampled(engine("llama", dtype=dtype, **OPTIONS))
    with ops.patch("transformers"):
        found = _differences(samples, _trainer(models / "llama", dtype))
    assert len(found) == SEQUENCES
    assert max(found) == 0


def test_without_the_mode_they_differ(
    models: Path, engine: Callable[..., Any], record_property: Callable[[str, object], None]
) -> None:
    found = _differences(_sampled(engine("llama", **OPTIONS)), _trainer(models / "llama", "float32"))
    record_property("largest_difference", max(found))
    assert 0 < max(found) < 1e-3
