"""Graphs in tests."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

OF_THE_CORE = pytest.mark.host(
    "a driver's own graphs refuse random numbers, external events and copies to the host, and name no kernels"
)


def capture(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[torch.chip.Graph, Any]:
    """Return a graph of the call and its result."""
    graph = torch.chip.Graph()
    with torch.chip.graph(graph, **options):
        result = function(*args)
    return graph, result
