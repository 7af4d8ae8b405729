"""Sleep mode, and weights replaced while the engine lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.vllm.generation import expected, greedy, random_prompts, transformers_greedy, transformers_model
from tools.vllm.models import CONFIGURATIONS, make_one

TOKENS = 16
PROMPTS = random_prompts([7, 16, 33, 1])
UNPACKED = {"additional_config": {"pack_weights": False}}
GRAPHS = {"enforce_eager": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with other weights."""
    folder = tmp_path_factory.mktemp("trained")
    make_one(folder, *CONFIGURATIONS["llama"], seed=2)
    return folder


@pytest.mark.parametrize("options", [{}, GRAPHS | UNPACKED], ids=["packed", "graphs"])
def test_weights_from_a_state_and_from_a_folder(
    options: dict[str, Any], engine: Callable[..., Any], models: Path, trained: Path
) -> None:
    made = engine("llama", seed=1, **options)
    first = transformers_greedy(models / "llama", PROMPTS, TOKENS)
    second = transformers_greedy(trained, PROMPTS, TOKENS)
    assert first != second
    assert greedy(made, PROMPTS, TOKENS) == first
    state = transformers_model(trained).state_dict()
    made.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(state.items())})
    made.reset_prefix_cache()
    assert greedy(made, PROMPTS, TOKENS) == second
    made.collective_rpc("reload_weights", kwargs={"weights_path": str(models / "llama")})
    made.reset_prefix_cache()
    assert greedy(made, PROMPTS, TOKENS) == first


def test_weights_loaded_into_the_model_as_trainers_do(
    engine: Callable[..., Any], models: Path, trained: Path
) -> None:
    made = engine("llama", seed=1, **UNPACKED)
    assert greedy(made, PROMPTS, TOKENS) == transformers_greedy(models / "llama", PROMPTS, TOKENS)
    for each in transformers_model(trained).state_dict().items():
        made.collective_rpc(_load, args=(each,))
    made.reset_prefix_cache()
    assert greedy(made, PROMPTS, TOKENS) == transformers_greedy(trained, PROMPTS, TOKENS)


def test_packed_weights_in_graphs_are_not_loaded_again(
    engine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.ops.packed_weights._ALWAYS", 0)  # small weights are packed if that is faster
    made = engine("llama", seed=1, **GRAPHS)
    with pytest.raises(RuntimeError, match="isthmus: graphs keep the packed weights"):
        made.collective_rpc("reload_weights")


def test_a_packed_output_layer_is_packed_again_after_it_was_loaded(
    engine: Callable[..., Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.ops.packed_weights._ALWAYS", 0)
    made = engine("llama", seed=3)
    assert greedy(made, PROMPTS, TOKENS) == transformers_greedy(models / "llama", PROMPTS, TOKENS)
    assert made.collective_rpc(_is_head_packed) == [True]
    head = transformers_model(models / "llama").lm_head.weight.detach()
    made.collective_rpc(
        _load, args=(("lm_head.weight", torch.zeros_like(head).index_fill_(0, torch.tensor(9), 1)),)
    )
    made.reset_prefix_cache()
    assert {token for tokens in greedy(made, PROMPTS, TOKENS) for token in tokens} <= {0, 9}


def _is_head_packed(worker: Any) -> bool:
    return worker.get_model().lm_head.packed is not None


def _load(worker: Any, weight: tuple[str, torch.Tensor]) -> None:
    worker.get_model().load_weights([weight])


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_frees_memory_and_waking_brings_it_back(
    level: int, engine: Callable[..., Any], models: Path
) -> None:
    made = engine("llama", enable_sleep_mode=True)
    assert greedy(made) == expected(models / "llama")
    used = torch.accelerator.memory_allocated()
    made.sleep(level)
    # The cache is 32 MiB, the weights 12 MiB.
    assert used - torch.accelerator.memory_allocated() >= 40 << 20
    made.wake_up()
    if level == 2:
        made.collective_rpc("reload_weights")
    assert torch.accelerator.memory_allocated() >= used - (1 << 20)
    assert greedy(made) == expected(models / "llama")


def test_sleep_refuses_graphs(engine: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"isthmus: sleep mode moves weights.*--enforce-eager"):
        engine("llama", enable_sleep_mode=True, enforce_eager=False)
