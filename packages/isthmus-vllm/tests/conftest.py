"""Engines of vLLM over tiny models. Without vLLM only the tests that need none are collected."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Tests of the plugin without an engine.
_ALONE = {"test_check.py"}

if find_spec("vllm"):  # elsewhere these would reach the tests of other packages
    os.environ.update(
        HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="WARNING"
    )
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("ISTHMUS_STRICT", "1")
    os.environ.setdefault("ISTHMUS_HOST_RNG", "philox")  # seeds of chunked requests


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect the tests of engines only where vLLM is installed: in the environment of ``make vllm``."""
    if (
        collection_path.name.startswith("test_")
        and collection_path.name not in _ALONE
        and not find_spec("vllm")
    ):
        return True
    return None


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny models; ``VLLM_TEST_MODELS`` keeps it between runs."""
    from tools.vllm.models import make

    return make(Path(os.environ.get("VLLM_TEST_MODELS") or tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="session")
def engine(models: Path) -> Iterator[Callable[..., Any]]:
    """Make engines in this process, one at a time; arguments are those of ``vllm.LLM``.

    A second request for the same model and arguments returns the existing engine.
    """
    from vllm import LLM
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    made: dict[str, Any] = {}

    def close() -> None:
        while made:
            made.popitem()[1].llm_engine.engine_core.shutdown()
        gc.collect()
        cleanup_dist_env_and_memory()

    def make(model: str = "llama", **options: Any) -> Any:
        key = repr((model, options, os.environ.get("VLLM_USE_V2_MODEL_RUNNER")))
        if key not in made:
            close()
            defaults = {
                "dtype": "float32", "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 512,
                "kv_cache_memory_bytes": 32 << 20, "disable_log_stats": False, "enforce_eager": True,
            }  # fmt: skip
            path = models / model
            made[key] = LLM(str(path) if path.is_dir() else model, **defaults | options)
        return made[key]

    yield make
    close()
