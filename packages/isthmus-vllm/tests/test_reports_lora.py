"""Public reports of wrong tokens from LoRA adapters, replayed under graphs: each equals transformers with peft."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.vllm.generation import generate, greedy, random_prompts, transformers_greedy
from tools.vllm.models import make_adapter

TOKENS = 16
ENGINE = {
    "enable_lora": True, "max_loras": 2, "max_lora_rank": 8, "enable_prefix_caching": True, "enforce_eager": False,
}  # fmt: skip
LONG, SHORT, ONE = random_prompts([100, 20, 1], seed=3)
# Name and number of an adapter, its weights, and whether they replace those loaded under that number.
A, B, C = (("a", 1, 0, False), ("b", 2, 1, False), ("c", 3, 2, False))
BASE = None
# Number of the report, what went wrong there, and batches of prompts with an adapter each.
REPORTS = [
    ("vllm-ascend#3668", "outputs with an adapter were those without it", [[(SHORT, A)], [(SHORT, BASE)]]),
    ("vllm-ascend#5031", "the model itself was no longer right once adapters were loaded",
     [[(LONG, A)], [(LONG, BASE)], [(SHORT, BASE), (SHORT, A)]]),
    ("vllm-ascend#2672", "a size read at random spoilt the products of adapters",
     [[(ONE, A), (LONG, A), (SHORT, A)], [(ONE, B)]]),
    ("vllm-ascend#4141", "products of adapters read inputs of another precision",
     [[(LONG, B), (SHORT, B), (ONE, B)]]),
    ("vllm-ascend#6958", "graphs were chosen by another number of adapters than the batch had",
     [[(SHORT, A), (SHORT, B), (SHORT, BASE), (LONG, B), (LONG, BASE), (LONG, A)]]),
    ("vllm#2688", "the adapters of a batch were counted with the cached tokens",
     [[(LONG, A)], [(LONG + SHORT, A), (LONG + ONE, A), (SHORT, B)]]),
    ("vllm-ascend#12610", "outputs of an adapter drifted when many requests ran",
     [[(SHORT, A)] * 5 + [(SHORT, B)] * 5 + [(ONE, A)] * 4]),
    ("vllm#47725", "an adapter whose slot another had taken used that one's weights",
     [[(SHORT, A), (ONE, B)], [(SHORT, C)], [(SHORT, A), (ONE, B)], [(SHORT, A), (SHORT, B), (SHORT, C)]]),
    ("vllm#30931", "adapters of one name shared the cache of prompts",
     [[(LONG, ("same", 11, 0, False))], [(LONG, ("same", 12, 1, False))], [(LONG, ("same", 11, 0, False))]]),
    ("vllm#42125", "an adapter that was loaded again under its name found the cache of the old weights",
     [[(LONG, ("again", 21, 0, False))], [(LONG, ("again", 21, 2, True))]]),
]  # fmt: skip


@pytest.fixture(scope="module")
def adapters(models: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [make_adapter(models / "llama", folder / str(seed), seed) for seed in (1, 2, 3)]


@cache
def with_peft(model: Path, adapter: Path) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    return PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(model, dtype="float32").eval(), adapter
    ).eval()


@pytest.mark.parametrize(("number", "wrong", "waves"), REPORTS, ids=[each[0] for each in REPORTS])
@pytest.mark.parametrize("runner", ["0", "1"])  # changes last: an engine each
def test_report(
    number: str,
    wrong: str,
    waves: list[list[tuple[list[int], tuple[str, int, int, bool] | None]]],
    runner: str,
    engine: Callable[..., Any],
    models: Path,
    adapters: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.lora.request import LoRARequest

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    made = engine("llama", **ENGINE)
    for wave in waves:
        requests = [
            use and LoRARequest(use[0], use[1], str(adapters[use[2]]), load_inplace=use[3]) for _, use in wave
        ]
        wanted = [
            generate(with_peft(models / "llama", adapters[use[2]]), prompt, TOKENS)
            if use
            else transformers_greedy(models / "llama", [prompt], TOKENS)[0]
            for prompt, use in wave
        ]
        found = greedy(made, [prompt for prompt, _ in wave], TOKENS, lora_request=requests)
        assert found == wanted, f"{number}: {wrong}"
