"""Public reports of wrong results from graphs, replayed: no token differs from those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import greedy, random_prompts, transformers_greedy, transformers_model
from tools.vllm.models import CONFIGURATIONS, make_one
from tools.vllm.replay import Report, ask, ask_cycle, discrepancies, resolve_draft

DRAFTS, HITS = "vllm:spec_decode_num_draft_tokens", "vllm:prefix_cache_hits"
PROMPT = random_prompts([70], seed=8)[0]
NGRAM = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1}

# Decode in whole graphs for 1, 2 and 4 requests; prefill without graphs.
DECODE = [
    Report("vllm-ascend#3482", "slots of a larger batch remained behind those of a smaller one",
           [ask(60, 50, 40, 30, max_tokens=20), ask(9, max_tokens=20), ask(30, 8, 3, max_tokens=20)]),
    Report("vllm-ascend#11774", "slots were not set when graphs were captured, and block 0 was written",
           [ask(prompt=PROMPT), ask(prompt=PROMPT) + ask(4, 5)], HITS),
    Report("vllm-ascend#10895", "graphs kept the lengths of the keys that they had captured",
           [ask(3, max_tokens=100), ask(150, max_tokens=40)]),
    Report("vllm#21196", "padded rows of a graph wrote to the cache", [ask(20, 18, 16, max_tokens=40)]),
    Report("vllm-ascend#10901", "padded rows read the block table of requests that had ended",
           [ask(100, 90, 80, 70, max_tokens=3), [*ask(30, 20, max_tokens=4), *ask(25, max_tokens=40)]]),
    Report("vllm-ascend#4963", "batches larger than the largest graph were padded to it",
           [ask(9, 8, 7, 6, 5, 4, 3, max_tokens=30)]),
    Report("vllm-ascend#8017", "random choice stalled beside graphs",
           [ask(9, 5, 3, temperature=0.9, seed=7, top_k=20), ask(4, temperature=1.0, top_k=1)]),
    Report("vllm-ascend#6475", "offsets of queries were not padded in batches of prompts and decode",
           [ask(*range(2, 40, 3), max_tokens=12)]),
]  # fmt: skip
# Whole graphs for decode and pieces for prefill, over layers with a window.
WINDOW = [
    Report("vllm-ascend#8508", "graphs of layers with a window kept the block table and repeated words",
           [ask(30, 5, max_tokens=64), ask(100, max_tokens=30)]),
    Report("vllm#29539", "decode in whole graphs and prefill in pieces gave one token again and again",
           [ask(3, max_tokens=30), ask(200, 40, 7, max_tokens=30), ask(1, 2, max_tokens=8)]),
]  # fmt: skip
# Three drafted tokens, so that decode has four queries a request.
DRAFTED = [
    Report("vllm-ascend#7134", "graphs of decode with drafts were entered in prefill instead",
           [ask_cycle(max_tokens=40) + ask(30, 4, max_tokens=40)], DRAFTS),
    Report("vllm-ascend#9863", "one request of one token was padded to the tokens of a graph, its requests not",
           [ask(1, max_tokens=40)]),
    Report("vllm-ascend#6835", "a prompt as long as the drafts and one was taken for decode",
           [ask(4, max_tokens=24), ask(4, 4, 3, 5, max_tokens=24, seed=3)]),
    Report("vllm-ascend#7148", "graphs failed where the queries of one request were no captured size",
           [ask(2, 3, 9, 17, 33, max_tokens=30)]),
    Report("vllm-ascend#13470", "lengths of a batch padded to a graph ended before its tokens",
           [ask(*range(5, 19), max_tokens=20), ask_cycle(max_tokens=30)], DRAFTS),
    Report("vllm#53520", "the draft model overwrote the output of a graph that held log-probabilities of prompts",
           [ask(100, 30, 7, prompt_logprobs=2), ask(prompt=PROMPT, prompt_logprobs=1)]),
]  # fmt: skip
GROUPS: dict[str, tuple[str, dict[str, Any], list[Report]]] = {
    "decode": ("llama", {"enable_prefix_caching": True, "compilation_config": {
        "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}}, DECODE),
    "window": ("mistral", {}, WINDOW),
    "n-gram": ("llama", {"speculative_config": NGRAM | {"num_speculative_tokens": 3}}, DRAFTED),
    "draft": ("llama", {"speculative_config": {
        "method": "draft_model", "model": "draft", "num_speculative_tokens": 2}}, DRAFTED),
}  # fmt: skip


@pytest.mark.parametrize(
    ("group", "report"), [(group, each) for group in GROUPS for each in GROUPS[group][2]], ids=str
)
@pytest.mark.parametrize("runner", ["0", "1"])  # the slowest: an engine each
def test_report(
    group: str,
    report: Report,
    runner: str,
    engine: Callable[..., Any],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    model, options, _ = GROUPS[group]
    assert (
        discrepancies(
            engine(model, enforce_eager=False, **resolve_draft(options, models)), models / model, report
        )
        == []
    )


def test_weights_replaced_under_graphs(engine: Callable[..., Any], models: Path, tmp_path: Path) -> None:
    """vllm-ascend#7473: graphs kept the addresses of weights that training had replaced."""
    make_one(tmp_path, *CONFIGURATIONS["llama"], seed=3)
    made = engine("llama", enforce_eager=False, additional_config={"pack_weights": False})
    prompts = random_prompts([30, 4, 9])
    assert greedy(made, prompts, 24) == transformers_greedy(models / "llama", prompts, 24)
    made.collective_rpc(
        "reload_weights", kwargs={"weights_iterator": iter(transformers_model(tmp_path).state_dict().items())}
    )
    made.reset_prefix_cache()
    assert greedy(made, prompts, 24) == transformers_greedy(tmp_path, prompts, 24)
