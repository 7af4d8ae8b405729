"""Greedy generation, and the tokens that transformers generates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.vllm.models import NEW_TOKENS, PROMPTS


def greedy(engine: Any, prompts: Any = PROMPTS, tokens: int = NEW_TOKENS, **options: Any) -> list[list[int]]:
    """Generate exactly that many tokens for each prompt."""
    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, **options)
    found = engine.generate(prompts, parameters, use_tqdm=False)
    return [list(each.outputs[0].token_ids) for each in found]


def expected(folder: Path) -> list[list[int]]:
    """The tokens that transformers generates for the same prompts."""
    return [list(each) for each in json.loads((folder / "tokens.json").read_text())]
