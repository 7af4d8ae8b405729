"""Expected tokens and distributions of sampling parameters, computed from transformers' logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tools.vllm.generation import transformers_greedy, transformers_logits

_EOS = 2
# Parameters that can change the greedy choice.
_PROCESSED = {
    "allowed_token_ids", "logit_bias", "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "stop_token_ids",
}  # fmt: skip


def stop_tokens(parameters: dict[str, Any]) -> set[int]:
    """Tokens that end the output."""
    ends = set() if parameters.get("ignore_eos") else {_EOS}
    return ends | set(parameters.get("stop_token_ids", ()))


def process_logits(
    logits: torch.Tensor, prompt: list[int], output: list[int], parameters: dict[str, Any]
) -> torch.Tensor:
    """Logits, [vocabulary], after allowed tokens, bias, minimum length and penalties, in vLLM's order."""
    logits = logits.clone()
    if allowed := parameters.get("allowed_token_ids"):
        banned = torch.ones_like(logits, dtype=torch.bool)
        banned[allowed] = False
        logits[banned] = -torch.inf
    for token, bias in parameters.get("logit_bias", {}).items():
        logits[token] += bias
    if len(output) < parameters.get("min_tokens", 0):
        logits[[_EOS, *parameters.get("stop_token_ids", ())]] = -torch.inf
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[prompt + output] = True
    repetition = parameters.get("repetition_penalty", 1.0)
    logits = torch.where(seen, torch.where(logits > 0, logits / repetition, logits * repetition), logits)
    counts = torch.bincount(torch.tensor(output, dtype=torch.int64), minlength=len(logits))
    frequency, presence = (parameters.get(f"{kind}_penalty", 0.0) for kind in ("frequency", "presence"))
    return logits - frequency * counts - presence * (counts > 0)


def probabilities(
    logits: torch.Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> torch.Tensor:
    """The distribution that vLLM documents: temperature, min-p, top-k, then top-p, float64."""
    found = (logits.double() / temperature).softmax(-1)
    found[found < min_p * found.max()] = 0
    found, order = (found / found.sum()).sort(descending=True)
    if top_k:
        found[top_k:] = 0
        found /= found.sum()
    found[found.cumsum(0) - found >= top_p] = 0
    return torch.zeros_like(found).scatter_(0, order, found / found.sum())


def decode(folder: Path, prompt: list[int], parameters: dict[str, Any]) -> list[int]:
    """Greedy tokens under the sampling parameters, which name ``max_tokens``."""
    if parameters.get("ignore_eos") and not parameters.keys() & _PROCESSED:
        return transformers_greedy(folder, [prompt], parameters["max_tokens"])[0]
    ends, found = stop_tokens(parameters), list[int]()
    while len(found) < parameters["max_tokens"] and not (found and found[-1] in ends):
        logits = transformers_logits(folder, prompt + found)[-1]
        found.append(int(process_logits(logits, prompt, found, parameters).argmax()))
    return found
