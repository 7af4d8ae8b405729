"""Public reports of wrong speculative decoding, replayed: acceptance changes no token and no distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import as_inputs, metric, random_prompts, transformers_logits
from tools.vllm.oracle import probabilities, process_logits
from tools.vllm.replay import CYCLE, Report, ask, ask_cycle, ask_pattern, discrepancies, resolve_draft

ACCEPTED, DRAFTED = "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_draft_tokens"
PREEMPTED = "vllm:num_preemptions"
TEXT = random_prompts([30], seed=4)[0]
DIGITS = r"[0-9]{2}(-[0-9]{2}){6}"

GREEDY = [
    Report("vllm-ascend#4090", "drafts by n-gram changed the tokens",
           [ask_cycle(max_tokens=60) * 2], ACCEPTED),
    Report("vllm-ascend#4521", "drafts changed the tokens without graphs", [ask(30, 4, 60, max_tokens=50)]),
    Report("vllm-ascend#4932", "drafts changed the tokens in batches only",
           [ask(30, 4, 60, 2, 18, 90, 41, 7, max_tokens=40)]),
    Report("vllm-ascend#5626", "tokens were taken from the wrong rows while prompts joined requests with drafts",
           [ask(*range(60, 4, -4), max_tokens=20) + ask_cycle(max_tokens=50)]),
    Report("vllm-ascend#8029", "prompts not longer than the drafts and one took the wrong path of attention",
           [ask(4, 3, 2, 1, max_tokens=20), ask(4, max_tokens=20)]),
]  # fmt: skip
PARAMETERS = [
    Report("vllm#18902", "frequency penalties had no effect on drafted tokens",
           [ask_cycle(max_tokens=40, frequency_penalty=0.7) + ask(9, max_tokens=40, presence_penalty=1.0)]),
    Report("vllm#33251", "a token counted twice for penalties of later drafts",
           [ask_cycle(max_tokens=40, repetition_penalty=1.3) + ask(30, 8, max_tokens=30)]),
    Report("vllm#9834", "one request's parameters verified the drafts of all",
           [ask(9, max_tokens=30) + ask(9, temperature=1.2, top_k=1, max_tokens=30)
            + ask_cycle(temperature=0.8, top_k=5, max_tokens=30)]),
    Report("vllm-ascend#5131", "top-k and top-p were left out for drafted tokens",
           [ask_cycle(temperature=1.1, top_k=4, top_p=0.8, max_tokens=40) * 4], DRAFTED),
    Report("vllm-ascend#9173", "the temperature of another row divided the logits of drafted tokens",
           [ask(9, max_tokens=30) + ask(12, temperature=2.0, top_k=1, max_tokens=30)
            + ask(14, temperature=0.3, top_k=2, max_tokens=30) + ask_cycle(temperature=1.0, top_k=1)]),
    Report("vllm#17876", "log-probabilities were 0 with drafts by n-gram",
           [ask_cycle(logprobs=2, max_tokens=30) + ask(9, logprobs=1, max_tokens=30)], DRAFTED),
    Report("vllm-ascend#7861", "log-probabilities of accepted tokens were not returned",
           [ask_cycle(logprobs=0, max_tokens=30), ask(5, logprobs=4)]),
    Report("vllm-ascend#4963", "the last steps had fewer tokens than drafts",
           [ask_cycle(max_tokens=2) + ask_cycle(max_tokens=1) + ask_cycle(max_tokens=5)]),
    Report("vllm#32163", "drafts ended the output before the minimum length",
           [ask_cycle(min_tokens=9, allowed_token_ids=[*range(5, 13)], stop_token_ids=[5, 6, 7, 8])]),
]  # fmt: skip
STRUCTURED = [
    Report("vllm#27969", "a draft that the grammar refused ended the engine",
           [[ask_pattern(CYCLE, DIGITS)], [ask_pattern(TEXT, DIGITS, temperature=1.0, seed=3)]]),
    Report("vllm#49738", "rows of the grammar's mask went to the next request where drafts were cut",
           [[ask_pattern(CYCLE, DIGITS), *ask(20, max_tokens=30), ask_pattern(TEXT, r"(ab|cd){5}"),
             *ask_cycle(max_tokens=30), ask_pattern(TEXT[:9], "[a-f]{12}")]]),
    Report("vllm-ascend#10043", "placeholders of refused drafts indexed the tables of probabilities",
           [[ask_pattern(CYCLE, DIGITS, temperature=0.8, seed=seed) for seed in range(6)]]),
]  # fmt: skip
CHUNKED = [
    Report("vllm-ascend#3025", "drafts took the wrong path of attention beside chunks of prompts",
           [ask_cycle(max_tokens=40) + ask(200, 90, max_tokens=20)], ACCEPTED),
    Report("vllm#29216", "log-probabilities were those of other rows with drafts and chunks",
           [ask_cycle(max_tokens=30, logprobs=2) + ask(200, 90, max_tokens=20, logprobs=1)]),
    Report("vllm#49620", "drafts in flight remained after preemption",
           [ask(100, 90, 80, 70, 60, 50, 40, max_tokens=60) + ask_cycle(max_tokens=60)], PREEMPTED),
]  # fmt: skip
ONE = [
    Report("vllm-ascend#11458", "the kernel for one draft mixed up accepted and following token",
           [ask_cycle(max_tokens=40) + ask(9, 30, max_tokens=30)], ACCEPTED),
]  # fmt: skip
NGRAM = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1, "num_speculative_tokens": 3}
DRAFT = {"method": "draft_model", "model": "draft", "num_speculative_tokens": 3}
CROWDED = {"max_num_batched_tokens": 48, "num_gpu_blocks_override": 36}
GROUPS: dict[str, tuple[dict[str, Any], list[Report]]] = {
    "n-gram": ({"speculative_config": NGRAM}, GREEDY + PARAMETERS + STRUCTURED),
    "draft": ({"speculative_config": DRAFT}, GREEDY[1:] + PARAMETERS + STRUCTURED),
    "chunked": ({"speculative_config": NGRAM} | CROWDED, CHUNKED),
    "one": ({"speculative_config": NGRAM | {"num_speculative_tokens": 1}}, ONE),
}

# Wrong in vLLM's own code, whatever the device: group, number and runner, and where.
OPEN = {
    (
        "draft",
        "vllm#32163",
        "0",
    ): "with asynchronous scheduling, MinTokensLogitsProcessor counts drafts as tokens"
}


@pytest.mark.parametrize(
    ("group", "report"), [(group, each) for group in GROUPS for each in GROUPS[group][1]], ids=str
)
@pytest.mark.parametrize("runner", ["0", "1"])  # changes last: an engine each
def test_report(
    group: str,
    report: Report,
    runner: str,
    engine: Callable[..., Any],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if reason := OPEN.get((group, report.number, runner)):
        request.applymarker(pytest.mark.xfail(reason=f"vLLM: {reason}", strict=True))
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    assert (
        discrepancies(engine("llama", **resolve_draft(GROUPS[group][0], models)), models / "llama", report)
        == []
    )


def joint_probabilities(
    folder: Path, prompt: list[int], parameters: dict[str, Any], length: int
) -> dict[tuple[int, ...], float]:
    """Probability of each sequence of that length which the parameters leave possible."""
    limits = {key: parameters[key] for key in ("temperature", "top_k") if key in parameters}
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        grown: dict[tuple[int, ...], float] = {}
        for tokens, chance in found.items():
            logits = transformers_logits(folder, prompt + list(tokens))[-1]
            row = probabilities(process_logits(logits, prompt, list(tokens), parameters), **limits)
            grown |= {
                (*tokens, token): chance * float(row[token]) for token in row.nonzero().flatten().tolist()
            }
        found = grown
    return found


SAME = DRAFT | {"model": "llama"}
FLAT = {"temperature": 2.0}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (NGRAM, FLAT | {"allowed_token_ids": [5, 6, 7]}),
        (SAME, FLAT | {"top_k": 3}),
        (SAME | {"draft_sample_method": "probabilistic"}, FLAT | {"top_k": 3}),
    ],
    ids=["vllm-ascend#7603", "vllm-ascend#6685", "vllm-ascend#13470"],
)
@pytest.mark.parametrize("runner", ["0", "1"])  # changes last: an engine each
def test_drafts_keep_the_distribution(
    config: dict[str, Any],
    parameters: dict[str, Any],
    runner: str,
    engine: Callable[..., Any],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drafts were accepted by a wrong ratio: of n-grams without probabilities, of other logits, or always."""
    from scipy.stats import chisquare
    from vllm import SamplingParams

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    made = engine(**resolve_draft({"speculative_config": config, "max_num_seqs": 250}, models))
    prompt, count, length = [5, 6, 7] * 6, 2_000, 3
    wanted = joint_probabilities(models / "llama", prompt, parameters, length)
    before = [metric(made, name) for name in (ACCEPTED, DRAFTED)]
    outputs = made.generate(
        as_inputs([prompt] * (count // 250)),
        SamplingParams(n=250, max_tokens=length + 4, ignore_eos=True, **parameters), use_tqdm=False,
    )  # fmt: skip
    found = Counter(tuple(each.token_ids[:length]) for output in outputs for each in output.outputs)
    accepted, drafted = (
        metric(made, name) - old for name, old in zip((ACCEPTED, DRAFTED), before, strict=True)
    )
    assert 0 < accepted < drafted
    assert found.keys() <= wanted.keys()
    assert len(wanted) == 27
    assert min(wanted.values()) * count >= 5
    expected = [chance * count for chance in wanted.values()]
    assert chisquare([found[tokens] for tokens in wanted], expected).pvalue > 1e-3


@pytest.mark.parametrize("runner", ["0", "1"])
def test_a_model_accepts_its_own_drafts(
    runner: str, engine: Callable[..., Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm-ascend#6606 and #6138: fewer drafts were accepted, while no token changed."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    made = engine(**resolve_draft({"speculative_config": SAME, "max_num_seqs": 250}, models))
    before = [metric(made, name) for name in (ACCEPTED, DRAFTED)]
    report = Report("vllm-ascend#6606", "fewer drafts were accepted", [ask(30, 4, 60, 9, max_tokens=40)])
    assert discrepancies(made, models / "llama", report) == []
    accepted, drafted = (
        metric(made, name) - old for name, old in zip((ACCEPTED, DRAFTED), before, strict=True)
    )
    assert accepted / drafted > 0.9
