"""Public reports of wrong sampling, log-probabilities and structured output, replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import random_prompts, transformers_logits
from tools.vllm.replay import Report, ask, ask_pattern, discrepancies

SCORED = random_prompts([30], seed=2)[0]
DIGITS = r"[0-9]{3}-[0-9]{4}"

PENALTIES = [
    Report("vllm-ascend#7789", "the repetition penalty did not see the tokens that had just been generated",
           [ask(30, 3, max_tokens=40, repetition_penalty=1.4)]),
    Report("vllm#5639", "penalties of one request had an effect on the next, by their order",
           [ask(9, repetition_penalty=2.0) + ask(9, temperature=1.0, seed=99, top_k=1),
            ask(9, temperature=1.0, seed=99, top_k=1) + ask(9, repetition_penalty=2.0)]),
    Report("vllm-ascend#10138", "counts of tokens for penalties failed on long prompts",
           [ask(400, 3, 300, frequency_penalty=0.6, repetition_penalty=1.2)]),
    Report("vllm-ascend#13159", "penalties of many requests went beyond the grid of the kernel",
           [ask(*range(1, 25), presence_penalty=1.5, frequency_penalty=0.5)]),
    Report("vllm#33251", "penalties kept the counts of the request that had the row before",
           [ask(5, 6, 7, max_tokens=30, frequency_penalty=1.0), ask(8, max_tokens=30, frequency_penalty=1.0),
            ask(5, 6, 7, max_tokens=8)]),
]  # fmt: skip
LIMITS = [
    Report("vllm#14301", "top-k of some requests limited those without it",
           [ask(9, temperature=1.0, top_k=2, max_tokens=30) + ask(9, temperature=1.0, max_tokens=30)
            + ask(5, temperature=1.0, top_k=1, max_tokens=30)]),
    Report("vllm#12678", "min-p was left out", [ask(9, 3, temperature=1.5, min_p=0.2, max_tokens=40)]),
    Report("vllm-ascend#10004", "no top-k and no top-p indexed outside of the table",
           [ask(9, temperature=1.0, max_tokens=20), ask(9, temperature=1.0, top_p=0.5, max_tokens=20)
            + ask(5, max_tokens=20)]),
    Report("vllm-ascend#13847", "the boundary of top-p was rounded to another token",
           [ask(9, 20, temperature=1.0, top_p=0.6, max_tokens=40)
            + ask(7, temperature=2.0, top_k=100, top_p=0.95, max_tokens=40)]),
    Report("vllm#1748", "greedy requests obeyed top-k and top-p of random ones",
           [ask(9, top_k=5, top_p=0.5) + ask(9, temperature=1.0, top_k=1) + ask(9, temperature=0.7, top_p=0.9)]),
    Report("vllm#6719", "temperature 0 was not greedy beside random requests",
           [[each for length in range(1, 9) for each in ask(length, max_tokens=10 + length)
             + ask(length, temperature=1.3, max_tokens=20)]]),
]  # fmt: skip
SEEDS = [
    Report("vllm#51226", "a seed was ignored beside a request without one",
           [ask(9, temperature=0.8, seed=42) + ask(8, temperature=0.8)] * 2),
    Report("vllm#17524", "the order of a batch changed the results of seeds",
           [[*ask(9, temperature=0.8, seed=1), *ask(8, temperature=0.8, seed=2), *ask(7, temperature=0.8, seed=3)],
            [*ask(7, temperature=0.8, seed=3), *ask(9, temperature=0.8, seed=1), *ask(8, temperature=0.8, seed=2)]]),
    Report("vllm-ascend#8495", "generators of requests were replaced when others ended",
           [[each for length in range(1, 10)
             for each in ask(length, temperature=1.0, seed=5, max_tokens=4 * length)]]),
]  # fmt: skip
CHOICES = [
    Report("vllm#32163", "the minimum length did not hold back the end of the text",
           [ask(9, ignore_eos=False, min_tokens=7, logit_bias={2: 100.0})
            + ask(9, ignore_eos=False, logit_bias={2: 100.0})]),
    Report("vllm#3876", "the minimum length shifted to other rows beside log-probabilities of prompts",
           [ask(30, prompt_logprobs=1) + ask(5, min_tokens=6, stop_token_ids=[5, 6], logit_bias={5: 50.0, 6: 50.0})
            + ask(7, prompt_logprobs=2)]),
    Report("vllm#3899", "biases failed beside log-probabilities of prompts",
           [ask(30, prompt_logprobs=1, logit_bias={9: 6.0, 10: -50.0}) + ask(6, allowed_token_ids=[4, 5, 300])]),
    Report("vllm-metal#348", "allowed tokens were ignored by greedy requests",
           [ask(9, allowed_token_ids=[11, 12, 400]) + ask(9) + ask(4, logit_bias={499: 100.0})]),
]  # fmt: skip
LOGPROBS = [
    Report("vllm-ascend#4248", "log-probabilities of two prompts held uninitialised tokens",
           [ask(30, 12, prompt_logprobs=1), ask(300, 1, 2, prompt_logprobs=3)]),
    Report("vllm#15420", "log-probabilities and ranks were not those of transformers",
           [ask(30, 4, prompt_logprobs=5, logprobs=5)]),
    Report("vllm#9453", "sampling parameters changed the reported log-probabilities",
           [ask(9, temperature=0.5, top_k=1, logprobs=3) + ask(9, logit_bias={7: 3.0}, logprobs=2)
            + ask(9, repetition_penalty=1.5, logprobs=0)]),
    Report("vllm#37144", "logits already processed were processed again",
           [ask(9, temperature=0.6, seed=4, logprobs=2) + ask(9, temperature=1.7, top_k=1, logprobs=2)]),
    Report("vllm#51789", "log-probabilities of chosen tokens replaced those of the whole batch",
           [ask(prompt=SCORED, logprobs=3) + ask(8, logprob_token_ids=[4, 9]) + ask(5, logprobs=1)]),
]  # fmt: skip
STRUCTURED = [
    Report("vllm#22896", "requests without a grammar got an empty mask beside those with one",
           [[*ask(9, max_tokens=12), ask_pattern(SCORED, DIGITS), *ask(6, temperature=1.0, top_k=1)]]),
    Report("vllm#19565", "the second of two grammars was not kept",
           [[ask_pattern(SCORED, DIGITS, temperature=1.0, seed=seed) for seed in range(8)]]),
    Report("vllm-ascend#6151", "masks of several rows failed with one request after another",
           [[ask_pattern(SCORED, DIGITS)], [ask_pattern(SCORED, "(yes|no)"), ask_pattern(SCORED[3:], "[a-z]{20}")]]),
]  # fmt: skip
# Wrong in vLLM's own code, whatever the device: number and runner, and where.
OPEN = {("vllm#51789", "0"): "Sampler.forward returns the chosen tokens' log-probabilities for every request"}
ALL = PENALTIES + LIMITS + SEEDS + CHOICES + LOGPROBS + STRUCTURED


@pytest.mark.parametrize("runner", ["0", "1"])
def test_beams_keep_their_parents(
    runner: str, engine: Callable[..., Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#47126: a beam whose token was not among the most likely shifted the parents of the others."""
    from vllm.sampling_params import BeamSearchParams

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    parameters = BeamSearchParams(beam_width=4, max_tokens=8, ignore_eos=True)
    (found,) = engine().beam_search([{"prompt_token_ids": SCORED}], parameters)
    for beam in found.sequences:
        tokens = beam.tokens[len(SCORED) :]
        rows = transformers_logits(models / "llama", beam.tokens)[len(SCORED) - 1 :].log_softmax(-1)
        chance = sum(float(row[token]) for row, token in zip(rows, tokens, strict=False))
        assert beam.cum_logprob == pytest.approx(chance, abs=1e-3)
    scores = [beam.cum_logprob for beam in found.sequences]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(beam.tokens) for beam in found.sequences}) == 4


@pytest.mark.parametrize("report", ALL, ids=str)
@pytest.mark.parametrize("runner", ["0", "1"])  # changes last: an engine each
def test_report(
    runner: str,
    report: Report,
    engine: Callable[..., Any],
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if reason := OPEN.get((report.number, runner)):
        request.applymarker(pytest.mark.xfail(reason=f"vLLM: {reason}", strict=True))
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    assert discrepancies(engine(), models / "llama", report) == []
