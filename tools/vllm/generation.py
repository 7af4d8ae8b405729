"""Generation by an engine and by transformers, and what an engine counts."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tools.vllm.models import NEW_TOKENS, PROMPTS


def greedy(engine: Any, prompts: Any = PROMPTS, tokens: int = NEW_TOKENS, **options: Any) -> list[list[int]]:
    """Generate exactly that many tokens for each prompt, a text or token ids."""
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    found = engine.generate(as_inputs(prompts), parameters, use_tqdm=False, **options)
    return [list(each.outputs[0].token_ids) for each in found]


def as_inputs(prompts: Any) -> list[Any]:
    """Prompts as vLLM takes them."""
    return [each if isinstance(each, str) else {"prompt_token_ids": list(each)} for each in prompts]


def random_prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Prompts of random token ids, of the given lengths."""
    source = random.Random(seed)
    return [[source.randrange(3, 500) for _ in range(length)] for length in lengths]


def expected(folder: Path) -> list[list[int]]:
    """The tokens that transformers generates for :data:`PROMPTS`."""
    return [list(each) for each in json.loads((folder / "tokens.json").read_text())]


@cache
def transformers_model(folder: Path) -> Any:
    """The model in float32 on the CPU."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def transformers_logits(folder: Path, tokens: list[int]) -> torch.Tensor:
    """Logits after each token, [tokens, vocabulary], by transformers."""
    logits: torch.Tensor = transformers_model(folder)(torch.tensor([tokens])).logits[0]
    return logits


def transformers_greedy(folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """The tokens that transformers generates for prompts of token ids."""
    return [generate(transformers_model(folder), each, tokens) for each in prompts]


@torch.no_grad()
def generate(model: Any, prompt: list[int], tokens: int) -> list[int]:
    """Generate exactly that many tokens greedily with a model of transformers."""
    ids = torch.tensor([prompt])
    out = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
        do_sample=False, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


def metric(engine: Any, name: str) -> float:
    """Sum of a counter or gauge of the engine over its labels."""
    return sum(float(each.value) for each in engine.get_metrics() if each.name == name)
