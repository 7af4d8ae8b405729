"""Chunked prefill, prefix caching and preemption: each happens, and no token changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import greedy, metric, random_prompts, transformers_greedy

TOKENS = 40
PROMPTS = random_prompts([100, 7, 33, 250, 1, 64, 17, 128])


@pytest.fixture(scope="module")
def expected(models: Path) -> list[list[int]]:
    return transformers_greedy(models / "llama", PROMPTS, TOKENS)


def test_chunked_prefill(
    engine: Callable[..., Any], expected: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine("llama", max_num_batched_tokens=32, enable_prefix_caching=False)
    scheduler = made.llm_engine.engine_core.engine_core.scheduler
    schedule, steps = scheduler.schedule, []

    def recorded(*arguments: Any, **options: Any) -> Any:
        steps.append(schedule(*arguments, **options))
        return steps[-1]

    monkeypatch.setattr(scheduler, "schedule", recorded)
    assert greedy(made, PROMPTS, TOKENS) == expected
    chunks = [
        tokens
        for step in steps
        for new in step.scheduled_new_reqs
        if (tokens := step.num_scheduled_tokens[new.req_id]) < len(new.prompt_token_ids)
    ]
    assert len(chunks) > 0
    assert max(step.total_num_scheduled_tokens for step in steps) <= 32


def test_prefix_caching(engine: Callable[..., Any], models: Path) -> None:
    made = engine("llama", enable_prefix_caching=True)
    prompts = [PROMPTS[3] + tail for tail in random_prompts([3, 3, 3, 3], seed=7)]
    wanted = transformers_greedy(models / "llama", prompts, 12)
    before = metric(made, "vllm:prefix_cache_hits")
    assert greedy(made, prompts[:1], 12) == wanted[:1]
    assert greedy(made, prompts, 12) == wanted
    assert metric(made, "vllm:prefix_cache_hits") - before >= 4 * 240


def test_preemption_computes_again(engine: Callable[..., Any], expected: list[list[int]]) -> None:
    made = engine("llama", num_gpu_blocks_override=36, enable_prefix_caching=False)
    before = metric(made, "vllm:num_preemptions")
    assert greedy(made, PROMPTS, TOKENS) == expected
    assert metric(made, "vllm:num_preemptions") > before
