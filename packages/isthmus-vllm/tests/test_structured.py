"""Structured output: what is generated always parses; 200 cases over two backends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tools.vllm.generation import as_inputs, random_prompts

CASES = 25
SCHEMA = {
    "type": "object",
    "properties": {
        "done": {"type": "boolean"},
        "color": {"enum": ["red", "green", "blue"]},
        "code": {"type": "string", "pattern": "^[a-z]{1,6}$"},
        "flags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["done", "color", "code", "flags"],
    "additionalProperties": False,
}
CHOICES = ["quick", "lazy", "brown fox"]
REGEX = r"[0-9]{1,3}\.[0-9]{1,3}"
# Sums of at most three one-digit numbers.
GRAMMAR = """
root ::= "(" term ("+" term)? ")"
term ::= digit | digit "*" digit
digit ::= [0-9]
"""


def is_json(text: str) -> bool:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return False
    return (
        set(found) == set(SCHEMA["required"])
        and isinstance(found["done"], bool)
        and found["color"] in ("red", "green", "blue")
        and bool(re.fullmatch("[a-z]{1,6}", found["code"]))
        and 1 <= len(found["flags"]) <= 3
        and all(isinstance(each, bool) for each in found["flags"])
    )


KINDS: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "json": ({"json": SCHEMA}, is_json),
    "choice": ({"choice": CHOICES}, lambda text: text in CHOICES),
    "regex": ({"regex": REGEX}, lambda text: bool(re.fullmatch(REGEX, text))),
    "grammar": (
        {"grammar": GRAMMAR},
        lambda text: bool(re.fullmatch(r"\([0-9](\*[0-9])?(\+[0-9](\*[0-9])?)?\)", text)),
    ),
}


@pytest.mark.parametrize("backend", ["xgrammar", "guidance"])
def test_what_is_generated_parses(backend: str, engine: Callable[..., Any]) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    made = engine(structured_outputs_config={"backend": backend, "disable_any_whitespace": True})
    names = [name for name in KINDS for _ in range(CASES)]
    parameters = [
        SamplingParams(
            temperature=1.0,
            seed=seed,
            max_tokens=300,
            structured_outputs=StructuredOutputsParams(**KINDS[name][0]),
        )
        for seed, name in enumerate(names)
    ]
    prompts = as_inputs(random_prompts([1 + seed % 20 for seed in range(len(names))]))
    outputs = made.generate(prompts, parameters, use_tqdm=False)
    found = [(name, each.outputs[0]) for name, each in zip(names, outputs, strict=True)]
    wrong = [
        (name, each.text)
        for name, each in found
        if each.finish_reason != "stop" or not KINDS[name][1](each.text)
    ]
    assert wrong == []
    assert len({each.text for name, each in found if name == "json"}) > CASES // 2
