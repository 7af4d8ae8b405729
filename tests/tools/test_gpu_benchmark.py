"""benchmarks/llm_operators_gpu.py without a GPU, and its rows with a stopped clock."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.children import run

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.full
def test_without_a_gpu_one_line_and_status_1():
    command = [sys.executable, str(BENCHMARKS / "llm_operators_gpu.py")]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("llm_operators_gpu: no CUDA device available; run it on a machine with one")


ROWS = f"""
    import argparse, sys, types
    sys.path.insert(0, {str(BENCHMARKS)!r})
    import torch
    import llm_operators_gpu as benchmark

    functional = types.ModuleType("liger_kernel.transformers.functional")
    functional.liger_rms_norm = lambda x, w, *rest: torch.nn.functional.rms_norm(x, w.shape, w, rest[0])
    functional.liger_rope = lambda q, k, cos, sin: (q * cos[:, None], k * sin[:, None])
    sys.modules["liger_kernel.transformers"] = types.ModuleType("liger_kernel.transformers")
    sys.modules["liger_kernel.transformers"].functional = functional
    benchmark.find_spec = lambda name: True
    benchmark.timed = lambda function: lambda: (function(), 0.5)[1]
    benchmark.DEVICE, benchmark.PORTION, benchmark.SIDE = "cpu", 1 / 64, 16
    for only in ("rms_norm", "rotary", "adamw", "attention"):
        benchmark.measure(argparse.Namespace(only=only, rounds=1, compile=False))
"""


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    done = run(ROWS)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_rows_of_every_side(rows):
    forward = next(row for row in rows if row[0] == "rms_norm")
    # Sizes take three words. A call takes half a second by the clock, so that all ratios are 1.
    assert forward[4:7] == ["float32", "forward", "500.0"]
    moved = 2 * 64 * 2048 * 4
    assert forward[7:] == ["1.0", "0.25", "None", "0.8", "1.0", str(moved / 0.5 / 1e9), "None", "1.0"]


def test_an_operator_without_a_peer_has_no_ratio(rows):
    step = next(row for row in rows if row[0] == "adamw")
    assert step[-4] == "None"
    attention = next(row for row in rows if row[0] == "attention" and "forward" in row)
    assert attention[-4] == "None" and attention[-3] == "None" and float(attention[-2]) > 0
    assert {row[0] for row in rows} == {"rms_norm", "rotary", "adamw", "attention"}
