"""Latency, throughput and memory of a loaded model."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isthmus.infer.model import InferError, Model, wait


class Measured(NamedTuple):
    """The time and memory that a series of runs took.

    Attributes:
        iterations: timed runs, each waited for.
        batch: first dimension of the first input; 1 without one.
        p50_ms: median latency; p90_ms and p99_ms likewise.
        runs_per_s: iterations / their total time.
        samples_per_s: runs_per_s * batch.
        peak_memory: bytes: allocated on the device; on the CPU the resident set of the process.
    """

    iterations: int
    batch: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs_per_s: float
    samples_per_s: float
    peak_memory: int


def measure(
    model: Model, inputs: list[Tensor], warmup: int, iterations: int
) -> tuple[Measured, list[Tensor]]:
    """Run a model repeatedly; return the measurement and the outputs of the first run.

    Args:
        model: as loaded.
        inputs: on their devices; copied before each run, which may write to them.
        warmup: runs before the timed ones.
        iterations: timed runs, at least 1.

    Raises:
        InferError: the model fails, or an output is too large to be copied.
    """
    outputs = [_copy(tensor) for tensor in model.run([tensor.clone() for tensor in inputs])]
    for _ in range(warmup):
        _time_run(model, inputs)
    times = [_time_run(model, inputs) for _ in range(iterations)]
    p50, p90, p99 = (float(ms) for ms in np.percentile(times, [50, 90, 99]) * 1e3)
    batch = inputs[0].shape[0] if inputs and inputs[0].dim() else 1
    rate = iterations / sum(times)
    return Measured(iterations, batch, p50, p90, p99, rate, rate * batch, _peak_memory(model.device)), outputs


def _copy(output: Tensor) -> Tensor:
    try:
        return output.clone()
    except RuntimeError as error:
        raise InferError.from_error(f"output {list(output.shape)}", error) from error


def _time_run(model: Model, inputs: list[Tensor]) -> float:
    copies = [tensor.clone() for tensor in inputs]
    wait(model.device)
    start = time.perf_counter()
    model.run(copies)  # waits for the device
    return time.perf_counter() - start


def _peak_memory(device: torch.device) -> int:
    if device.type == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return torch.accelerator.max_memory_allocated(device)
