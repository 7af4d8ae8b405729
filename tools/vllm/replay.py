"""Replay of public reports of wrong serving results: requests in the order of the report, each checked by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tools.vllm.generation import as_inputs, metric, random_prompts, transformers_logits
from tools.vllm.oracle import decode, probabilities, process_logits

# float32 logits of size 10, summed in another order than transformers sums them.
_TOLERANCE = 1e-4
# A prompt for drafts by n-gram.
CYCLE = [5, 6, 7] * 16
_RANDOM = ("temperature", "top_k", "top_p", "min_p")


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt of token ids, its sampling parameters, and the regular expression that its text must match."""

    prompt: list[int]
    parameters: dict[str, Any]
    pattern: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """A public report, replayed.

    Attributes:
        number: repository, and number of the issue or pull request.
        wrong: what went wrong there.
        waves: batches of requests; a batch starts when the one before has ended.
        grows: name of a counter of the engine that must grow, so that the situation is known to have occurred.
    """

    number: str
    wrong: str
    waves: list[list[Request]]
    grows: str = ""

    def __str__(self) -> str:
        return self.number


def ask(*lengths: int, prompt: list[int] | None = None, seed: int = 0, **parameters: Any) -> list[Request]:
    """Requests with random prompts of these lengths, or with one prompt; greedy, 16 tokens, unless said otherwise."""
    prompts = [prompt] if prompt else random_prompts(list(lengths), seed=seed)
    return [
        Request(each, {"temperature": 0, "max_tokens": 16, "ignore_eos": True} | parameters)
        for each in prompts
    ]


def ask_cycle(**parameters: Any) -> list[Request]:
    """A request whose output is of three tokens that its prompt repeats: drafts are often right and often wrong."""
    return ask(prompt=CYCLE, **{"allowed_token_ids": CYCLE[:3]} | parameters)


def ask_pattern(prompt: list[int], pattern: str, **parameters: Any) -> Request:
    """A request whose output must match a regular expression to its end."""
    return Request(prompt, {"temperature": 0, "max_tokens": 100, "ignore_eos": False} | parameters, pattern)


def discrepancies(engine: Any, folder: Path, report: Report) -> list[str]:
    """Replay a report; return what differs from transformers, from the request alone, or from its pattern."""
    before = metric(engine, report.grows) if report.grows else 0.0
    found = [
        f"{report.number}, batch {wave}, request {place}: {problem}"
        for wave, requests in enumerate(report.waves)
        for place, (request, output) in enumerate(zip(requests, _generate(engine, requests), strict=True))
        for problem in _problems(engine, folder, request, output)
    ]
    if report.grows and metric(engine, report.grows) <= before:
        found.append(f"{report.number}: {report.grows} did not grow")
    return found


def resolve_draft(options: dict[str, Any], models: Path) -> dict[str, Any]:
    """Options of an engine in which the draft model, if there is one, is named by its folder."""
    config = options.get("speculative_config", {})
    if "model" not in config:
        return options
    return options | {"speculative_config": config | {"model": str(models / config["model"])}}


@cache
def _expected_tokens(folder: Path, request: Request) -> list[int]:
    return decode(folder, request.prompt, request.parameters)


def _generate(engine: Any, requests: list[Request]) -> list[Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    parameters = [
        SamplingParams(
            **request.parameters,
            structured_outputs=StructuredOutputsParams(regex=request.pattern) if request.pattern else None,
        )
        for request in requests
    ]
    return list(engine.generate(as_inputs([each.prompt for each in requests]), parameters, use_tqdm=False))


def _problems(engine: Any, folder: Path, request: Request, output: Any) -> Iterator[str]:
    tokens, parameters = list(output.outputs[0].token_ids), request.parameters
    if request.pattern:
        if not re.fullmatch(request.pattern, output.outputs[0].text):
            yield f"{output.outputs[0].text!r} does not match {request.pattern}"
    elif parameters["temperature"] == 0 or parameters.get("top_k") == 1:
        if tokens != (wanted := _expected_tokens(folder, request)):
            yield f"tokens {tokens}, expected {wanted}"
    elif "seed" in parameters:
        alone = list(_generate(engine, [request])[0].outputs[0].token_ids)
        if tokens != alone:
            yield f"tokens {tokens}, alone {alone}"
    if parameters["temperature"] and not request.pattern:
        logits = transformers_logits(folder, request.prompt + tokens)[len(request.prompt) - 1 :]
        yield from _outside_of_distribution(logits, request, tokens)
    if "logprobs" in parameters:
        logits = transformers_logits(folder, request.prompt + tokens)[len(request.prompt) - 1 :]
        yield from _wrong_logprobs(logits, tokens, output.outputs[0].logprobs, parameters["logprobs"])
    if "prompt_logprobs" in parameters:
        yield from _wrong_logprobs(
            transformers_logits(folder, request.prompt), request.prompt[1:], output.prompt_logprobs[1:],
            parameters["prompt_logprobs"],
        )  # fmt: skip


def _outside_of_distribution(logits: torch.Tensor, request: Request, tokens: list[int]) -> Iterator[str]:
    limits = {key: request.parameters[key] for key in _RANDOM if key in request.parameters}
    for place, token in enumerate(tokens):
        row = process_logits(logits[place], request.prompt, tokens[:place], request.parameters)
        if not probabilities(row, **limits)[token]:
            yield f"token {token} at {place} has probability 0"


def _wrong_logprobs(
    logits: torch.Tensor, tokens: list[int], steps: list[dict[int, Any]], count: int
) -> Iterator[str]:
    """Differences of the reported log-probabilities, which are those before any parameter, and of ranks."""
    if len(steps) != len(tokens):
        yield f"{len(steps)} steps of log-probabilities for {len(tokens)} tokens"
    for place, (row, token, step) in enumerate(zip(logits.log_softmax(-1), tokens, steps, strict=False)):
        if token not in step or len(step) < count:
            yield f"step {place} reports {sorted(step)}, without token {token} or fewer than {count}"
        for each, reported in step.items():
            first, last = (
                1 + int((row > row[each] + _TOLERANCE).sum()),
                int((row > row[each] - _TOLERANCE).sum()),
            )
            if abs(float(row[each]) - reported.logprob) > _TOLERANCE or not first <= reported.rank <= last:
                yield (
                    f"step {place}, token {each}: {reported.logprob} and rank {reported.rank}, expected "
                    f"{float(row[each])} and rank {first} to {last}"
                )
