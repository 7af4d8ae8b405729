"""GRPO of TRL, unmodified: vLLM generates in the process that trains, with the same probabilities."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.repository import ROOT


@pytest.mark.timeout(900)
def test_generator_and_trainer_agree_at_every_step(models: Path, tmp_path: Path) -> None:
    command = [
        "-m",
        "isthmus",
        "run",
        "-m",
        "tools.vllm.grpo",
        str((models / "llama").absolute()),
        str(tmp_path),
    ]
    environment = os.environ | {"ISTHMUS_BATCH_INVARIANT": "1", "VLLM_BATCH_INVARIANT": "1"}
    environment["ISTHMUS_HOST_DEVICES"] = "1"  # one device for trainer and generator
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    logs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('[{"loss"')][-1]
    assert len(logs) == 3
    for each in logs:
        assert math.isfinite(each["loss"]) and each["grad_norm"] > 0
        # The logits have the same bits; TRL and vLLM subtract the logarithm of their sum differently.
        assert each["sampling/sampling_logp_difference/max"] < 1e-6
    assert len({each["loss"] for each in logs}) == 3
