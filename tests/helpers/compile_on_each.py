"""Run a compiled function on the CPU and the chip and require equal outcomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._dynamo.utils import counters

DEVICES = ("cpu", "chip")


class Counts(NamedTuple):
    """Counters of Dynamo and Inductor."""

    graphs: int
    breaks: int
    compiled: int


def counts() -> Counts:
    inductor = counters["inductor"]
    compiled = sum(inductor[f"fxgraph_cache_{kind}"] for kind in ("hit", "miss", "bypass"))
    return Counts(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), compiled)


def on_each(function: Callable[[str], Any]) -> Any:
    """Run on both devices, require equal outcomes and counters, and return the outcome."""
    outcomes = []
    for device in DEVICES:
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        outcomes.append((lists(function(device)), counts()))
    assert outcomes[1] == outcomes[0]
    assert outcomes[1][1].compiled > 0
    return outcomes[1][0]


def lists(value: Any) -> Any:
    """Tensors as lists of numbers, exactly."""
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    return [lists(item) for item in value] if isinstance(value, list | tuple) else value
