"""Sampling: each parameter against transformers' logits, seeds, and draws against the computed distribution."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.vllm.generation import (
    as_inputs,
    random_prompts,
    transformers_greedy,
    transformers_logits,
    transformers_model,
)
from tools.vllm.oracle import decode, probabilities

PROMPTS = random_prompts([7, 16, 33, 1])
TOKENS = 16
LENGTH: dict[str, Any] = {"max_tokens": TOKENS, "ignore_eos": True}
# float32 logits of size 10, summed in another order than transformers sums them.
LOGPROB = {"rtol": 0, "atol": 1e-4}


def sample(made: Any, prompts: Any = PROMPTS, **parameters: Any) -> list[Any]:
    from vllm import SamplingParams

    defaults = {"temperature": 0} | LENGTH
    return list(made.generate(as_inputs(prompts), SamplingParams(**defaults | parameters), use_tqdm=False))


def tokens_of(outputs: list[Any]) -> list[list[int]]:
    return [list(each.token_ids) for output in outputs for each in output.outputs]


@pytest.fixture(scope="module")
def plain(models: Path) -> list[list[int]]:
    """Greedy tokens of transformers."""
    return transformers_greedy(models / "llama", PROMPTS, TOKENS)


@pytest.mark.parametrize("parameters", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 0.9999}], ids=str)
def test_limits_that_leave_one_token_are_greedy(
    parameters: dict[str, Any], engine: Callable[..., Any], plain: list[list[int]]
) -> None:
    assert tokens_of(sample(engine(), temperature=1.0, **parameters)) == plain


def test_penalties(engine: Callable[..., Any], models: Path) -> None:
    penalties = {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    wanted = [decode(models / "llama", prompt, LENGTH | penalties) for prompt in PROMPTS]
    assert tokens_of(sample(engine(), **penalties)) == wanted


def test_logit_bias_allowed_tokens_and_bad_words(
    engine: Callable[..., Any], models: Path, plain: list[list[int]]
) -> None:
    made = engine()
    assert tokens_of(sample(made, logit_bias={17: 1000.0})) == [[17] * TOKENS] * len(PROMPTS)
    allowed = {"allowed_token_ids": [5, 6, 7, 300]}
    wanted = [decode(models / "llama", prompt, LENGTH | allowed) for prompt in PROMPTS]
    assert tokens_of(sample(made, **allowed)) == wanted
    words = [made.get_tokenizer().decode([each[0]]) for each in plain]
    banned = [word for word in words if len(made.get_tokenizer().encode(word)) == 1]
    assert banned
    ids = {made.get_tokenizer().encode(word)[0] for word in banned}
    assert ids & {token for each in plain for token in each}
    found_tokens = tokens_of(sample(made, bad_words=banned))
    assert not ids & {token for each in found_tokens for token in each}


def test_stops(engine: Callable[..., Any], plain: list[list[int]]) -> None:
    made = engine()
    for prompt, tokens in zip(PROMPTS, plain, strict=True):
        (output,) = sample(made, [prompt], stop_token_ids=[tokens[4]])
        first = tokens.index(tokens[4])
        assert tokens_of([output]) == [tokens[: first + 1]]
        assert output.outputs[0].finish_reason == "stop"
        (output,) = sample(made, [prompt], stop_token_ids=[tokens[4]], min_tokens=TOKENS)
        assert len(output.outputs[0].token_ids) == TOKENS
        assert tokens[4] not in output.outputs[0].token_ids[: TOKENS - 1]
        text = sample(made, [prompt])[0].outputs[0].text
        stop = text[len(text) // 2 :][:3]
        (output,) = sample(made, [prompt], stop=[stop])
        assert output.outputs[0].text == text[: text.index(stop)]
        assert output.outputs[0].finish_reason == "stop"


def test_logprobs_of_outputs_and_prompts(
    engine: Callable[..., Any], models: Path, plain: list[list[int]]
) -> None:
    outputs = sample(engine(), logprobs=5, prompt_logprobs=3)
    assert tokens_of(outputs) == plain
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        tokens = list(output.outputs[0].token_ids)
        wanted = transformers_logits(models / "llama", prompt + tokens).log_softmax(-1)
        assert output.prompt_logprobs[0] is None
        steps = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
        counts = [3] * (len(prompt) - 1) + [5] * TOKENS
        for row, step, count, token in zip(wanted, steps, counts, (prompt + tokens)[1:], strict=False):
            assert token in step
            assert len(step) >= count
            chosen = list(step)
            found = torch.tensor([step[each].logprob for each in chosen])
            torch.testing.assert_close(found, row[chosen], **LOGPROB)
            ranked = [each for each in chosen if step[each].rank <= count]
            torch.testing.assert_close(row[ranked].sort(descending=True)[0], row.topk(count)[0], **LOGPROB)


def test_beam_search(engine: Callable[..., Any], models: Path) -> None:
    from vllm.sampling_params import BeamSearchParams

    made = engine()
    found = made.beam_search(
        as_inputs(PROMPTS), BeamSearchParams(beam_width=3, max_tokens=6, ignore_eos=True)
    )
    for prompt, output in zip(PROMPTS, found, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            wanted = transformers_model(models / "llama").generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, num_beams=3,
                num_return_sequences=3, do_sample=False, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip
        assert [each.tokens for each in output.sequences] == wanted.tolist()


def test_several_outputs_of_one_prompt(engine: Callable[..., Any]) -> None:
    outputs = sample(engine(), temperature=1.0, n=5, seed=11)
    for output in outputs:
        assert len({tuple(each.token_ids) for each in output.outputs}) == 5


@pytest.mark.parametrize("runner", ["0", "1"])
def test_seeds_reproduce_in_any_batch(
    runner: str, engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    made = engine()
    parameters = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "seed": 3}
    together = tokens_of(sample(made, **parameters))
    assert tokens_of(sample(made, PROMPTS[::-1], **parameters)) == together[::-1]
    assert [tokens_of(sample(made, [prompt], **parameters))[0] for prompt in PROMPTS] == together
    assert tokens_of(sample(made, **parameters | {"seed": 4})) != together


ONCE = """
import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch
from vllm.v1.sample.ops.topk_topp_triton import apply_top_k_top_p_triton

logits = torch.randn(5, 1000)
k, p = torch.tensor([1000, 20, 1000, 7, 1000], dtype=torch.int32), torch.tensor([0.7, 0.5, 1, 1, 0.3])
found = apply_top_k_top_p_triton(*(each.cuda() for each in (logits, k, p)))
print((found.cpu() == apply_top_k_top_p_pytorch(logits, k, p)).all().item())
"""


def test_top_p_is_applied_once_where_the_device_is_called_cuda(tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(ONCE)
    command = [sys.executable, "-m", "isthmus", "run", str(script)]
    assert "True" in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


CASES = [
    {"temperature": 1.0},
    {"temperature": 0.5},
    {"temperature": 1.5, "top_k": 20},
    {"temperature": 1.2, "top_p": 0.8},
    {"temperature": 1.3, "min_p": 0.05},
    {"temperature": 1.4, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
]


def draws_fit(made: Any, folder: Path, parameters: dict[str, Any], count: int) -> None:
    """Draw one token ``count`` times; compare with the distribution by the chi-square test."""
    from scipy.stats import chisquare

    prompt = PROMPTS[3]  # the shortest: each draw computes it
    wanted = probabilities(transformers_logits(folder, prompt)[-1], **parameters) * count
    outputs = sample(made, [prompt] * (count // 500), n=500, max_tokens=1, detokenize=False, **parameters)
    drawn = torch.tensor([tokens[0] for tokens in tokens_of(outputs)])
    found = torch.bincount(drawn, minlength=len(wanted)).double()
    assert found.sum() == count
    assert not found[wanted == 0].any()
    common = wanted >= 5
    rare = (wanted > 0) & ~common
    cells = torch.stack([torch.cat([each[common], each[rare].sum().view(1)]) for each in (found, wanted)])
    cells = cells[:, cells[1] > 0]
    assert cells.shape[1] > 3
    assert chisquare(cells[0].numpy(), cells[1].numpy()).pvalue > 1e-3


@pytest.mark.parametrize("parameters", CASES, ids=str)
def test_draws_follow_the_distribution(
    parameters: dict[str, Any], engine: Callable[..., Any], models: Path
) -> None:
    draws_fit(engine(max_num_seqs=250), models / "llama", parameters, 2_000)


@pytest.mark.full
@pytest.mark.parametrize("parameters", CASES, ids=str)
def test_many_draws_follow_the_distribution(
    parameters: dict[str, Any], engine: Callable[..., Any], models: Path
) -> None:
    draws_fit(engine(max_num_seqs=250), models / "llama", parameters, 100_000)
