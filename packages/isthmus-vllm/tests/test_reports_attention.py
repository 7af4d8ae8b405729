"""Public reports of wrong attention and stale caches, replayed: no token differs from those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.vllm.generation import as_inputs, greedy, metric, random_prompts, transformers_greedy
from tools.vllm.models import CONFIGURATIONS, make_one
from tools.vllm.replay import Report, ask, discrepancies

HITS, PREEMPTED = "vllm:prefix_cache_hits", "vllm:num_preemptions"
LONG = random_prompts([200], seed=5)[0]
SAME = random_prompts([40], seed=6)[0]

# A window of 24 tokens in every layer.
WINDOW = [
    Report("vllm#3385", "a window of W tokens masked one token too many or too few",
           [ask(22, 23, 24, 25, 26, 47, 48, 49)]),
    Report("vllm#2064", "nonsense after prompts longer than the window", [ask(200, 100, 60, max_tokens=24)]),
    Report("vllm#23969", "the window was kept in the prompt and lost in decode",
           [ask(3, 20, 23, max_tokens=64)]),
    Report("vllm-ascend#6469", "attention with a window was computed and not written to the output",
           [ask(30, max_tokens=40), ask(5, max_tokens=40)]),
    Report("vllm-ascend#2830", "batches of other sizes failed where the model has a window",
           [ask(30), ask(30, 7, 50, seed=1), ask(9, 28, 3, 40, 61, 25, 24, 8, seed=2), ask(26, 2, seed=3)]),
]  # fmt: skip
# Windowed layers and full layers alternate; scores are capped.
ALTERNATING = [
    Report("vllm#14896", "the window of alternating layers was not detected", [ask(100, 23, 150, max_tokens=30)]),
    Report("vllm#7425", "scores were not capped in one backend", [ask(1, 10, 90, max_tokens=40)]),
    Report("vllm-ascend#11383", "blocks of windowed layers and of full layers did not match on a cache hit",
           [ask(prompt=LONG), ask(prompt=LONG), ask(prompt=LONG + [7, 8, 9]), ask(prompt=LONG[:130])], HITS),
]  # fmt: skip
FULL = [
    Report("vllm-ascend#1678", "a short chunk changed the mask of later prompts",
           [ask(5, 3, 2), ask(300, 130), ask(129, 7, 127)]),
    Report("vllm-ascend#1416", "positions of a larger batch remained behind those of a smaller one",
           [ask(200, 150, 100), ask(3), ask(2, 1)]),
    Report("vllm-ascend#2601", "cyclic output in long sequences", [ask(380, max_tokens=110)]),
    Report("vllm-ascend#2714", "wrong tokens after a hit of the prefix cache",
           [ask(prompt=LONG), ask(prompt=LONG + SAME), ask(prompt=LONG[:100] + SAME)], HITS),
    Report("vllm-ascend#1498", "no path for a whole prompt that hits the cache beside one that does not",
           [ask(prompt=SAME), ask(prompt=SAME) + ask(33, 90, seed=9)], HITS),
    Report("vllm-ascend#7236", "a prompt was completely in the cache", [ask(prompt=LONG[:64])] * 3, HITS),
    Report("vllm#7845", "equal prompts had different outputs with the prefix cache",
           [ask(prompt=SAME, max_tokens=30) * 6, ask(prompt=SAME, max_tokens=30) * 3], HITS),
    Report("vllm#20426", "rows of one prompt differed in a batch: values were not contiguous",
           [ask(prompt=LONG, max_tokens=20) * 8]),
    Report("vllm#26130", "attention to a common prefix broke on cache hits",
           [ask(prompt=LONG)] + [[each for tail in range(8) for each in ask(prompt=[*LONG, tail + 5])]] * 2, HITS),
    Report("vllm#42245", "log-probabilities of a cached prompt were those of other requests",
           [ask(prompt=LONG, prompt_logprobs=2), ask(prompt=LONG + SAME, prompt_logprobs=2)
            + ask(prompt=SAME, prompt_logprobs=2)] * 2),
    Report("vllm#13105", "log-probabilities of a cached prompt were missing",
           [ask(prompt=LONG), ask(prompt=LONG) + ask(prompt=LONG, prompt_logprobs=1, max_tokens=1)]),
]  # fmt: skip
# Chunks of 24 tokens and 36 blocks for eight requests.
CROWDED = [
    Report("vllm#28787", "tokens were lost after chunked prefill and preemption",
           [ask(100, 7, 33, 200, 1, 64, 17, 128, max_tokens=40)], PREEMPTED),
    Report("vllm#48245", "output in flight was counted twice after preemption",
           [ask(100, 100, 100, 60, 60, 60, 60, 60, max_tokens=60, logprobs=1)], PREEMPTED),
    Report("vllm#36580", "slots of later chunks were computed from the first chunk's position",
           [ask(300), ask(25, 24, 23, 49)]),
    Report("vllm-ascend#6522", "the number of computed tokens was wrong after a request was computed again",
           [ask(90, 80, 70, 60, 50, 40, 30, 20, max_tokens=50, repetition_penalty=1.2)], PREEMPTED),
]  # fmt: skip
# Biases by distance; chunks of 32 tokens.
ALIBI = [
    Report("HabanaAI/vllm-hpu-extension#19", "biases by distance were left out in decode",
           [ask(30, 3, max_tokens=40)]),
    Report("vllm#4171", "biases by distance with cached prefixes were refused for a head size",
           [ask(prompt=LONG), ask(prompt=LONG + SAME) + ask(20)], HITS),
]  # fmt: skip
GROUPS: dict[str, tuple[str, dict[str, Any], list[Report]]] = {
    "window": ("mistral", {}, WINDOW),
    "alternating": ("gemma2", {"enable_prefix_caching": True}, ALTERNATING),
    "full": ("llama", {"enable_prefix_caching": True}, FULL),
    "crowded": ("llama", {"max_num_batched_tokens": 24, "num_gpu_blocks_override": 36}, CROWDED),
    "alibi": ("bloom", {"max_num_batched_tokens": 32, "enable_prefix_caching": True}, ALIBI),
}


@pytest.mark.parametrize(
    ("group", "report"), [(group, each) for group in GROUPS for each in GROUPS[group][2]], ids=str
)
def test_report(group: str, report: Report, engine: Callable[..., Any], models: Path) -> None:
    model, options, _ = GROUPS[group]
    assert discrepancies(engine(model, **options), models / model, report) == []


def test_partial_rotation(engine: Callable[..., Any], tmp_path: Path) -> None:
    """vllm-ascend#6581: a rotation of a part of each head was applied to the whole head."""
    arguments = CONFIGURATIONS["qwen2"][1] | {"partial_rotary_factor": 0.25, "num_key_value_heads": 4}
    make_one(tmp_path, "StableLmConfig", arguments)
    prompts = random_prompts([30, 3, 100])
    assert greedy(engine(str(tmp_path)), prompts, 24) == transformers_greedy(tmp_path, prompts, 24)


def test_embeddings_of_cached_prompts(engine: Callable[..., Any], models: Path) -> None:
    """vllm-ascend#7452: embeddings differed with the prefix cache, whose keys the attention did not read."""
    from transformers import AutoModel

    made = engine("llama", runner="pooling", enable_prefix_caching=True)
    model = AutoModel.from_pretrained(models / "llama", dtype=torch.float32).eval()
    before = metric(made, HITS)
    for prompt in (LONG, LONG, LONG + SAME):
        (found,) = made.embed(as_inputs([prompt]), use_tqdm=False)
        with torch.no_grad():
            wanted = model(torch.tensor([prompt])).last_hidden_state[0, -1]
        torch.testing.assert_close(
            torch.tensor(found.outputs.embedding), wanted / wanted.norm(), rtol=0, atol=1e-5
        )
    assert metric(made, HITS) > before


@pytest.mark.parametrize("level", [1, 2])
def test_prompts_cached_before_sleep(level: int, engine: Callable[..., Any], models: Path) -> None:
    """vllm#17103: after sleep, prompts hit cached blocks whose keys and values were gone."""
    made = engine("llama", enable_sleep_mode=True, enable_prefix_caching=True)
    wanted = transformers_greedy(models / "llama", [LONG], 24)
    assert greedy(made, [LONG], 24) == wanted
    made.sleep(level)
    made.wake_up()
    if level == 2:
        made.collective_rpc("reload_weights")
    assert greedy(made, [LONG], 24) == wanted
