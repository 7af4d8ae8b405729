"""Engines of two ranks: tokens equal those of transformers; a killed rank is named within ten seconds."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.repository import ROOT
from tools.vllm.generation import expected
from tools.vllm.parallel import TOKENS

TENSOR = {"tensor_parallel_size": 2}
PIPELINE = {"pipeline_parallel_size": 2}
DATA = {"data_parallel_size": 2}
EXPERTS = {"enable_expert_parallel": True}


def run(
    models: Path, model: str, options: dict[str, Any], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run tools.vllm.parallel on two devices; its last line of output is JSON."""
    environment = os.environ | {"ISTHMUS_HOST_DEVICES": "2", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    command = [
        sys.executable,
        "-m",
        "tools.vllm.parallel",
        str(models / model),
        json.dumps(options),
        *arguments,
    ]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=True
    )


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    """Return the value of the line of JSON: ranks print lines about themselves before and after it."""
    values = []
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):
            values.append(json.loads(line))
    (value,) = values
    return value


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama", TENSOR),
        ("llama", PIPELINE),
        ("llama", DATA),
        ("mixtral", TENSOR | EXPERTS),
        ("qwen3moe", TENSOR | EXPERTS),
        ("qwen3moe", DATA | EXPERTS),
    ],
    ids=["tensor", "pipeline", "data", "experts of mixtral", "experts of qwen3moe", "data and experts"],
)
def test_tokens_equal_those_of_one_rank(model: str, options: dict[str, Any], models: Path) -> None:
    done = run(models, model, options)
    assert printed(done) == [each[:TOKENS] for each in expected(models / model)]
    assert "force killing" not in done.stderr
    assert "exited unexpectedly" not in done.stderr


@pytest.mark.timeout(900)
def test_a_killed_rank_is_named(models: Path) -> None:
    done = run(models, "llama", TENSOR, "kill")
    assert printed(done) < 10
    assert "Worker-1 died unexpectedly" in done.stderr + done.stdout
