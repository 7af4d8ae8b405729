"""Runs launches in Triton's interpreter: ``python -m isthmus_triton.interpret ASKED ANSWERED``, for ``compare``."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch


def _run(module: str, kernel: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> Any:
    """The tensors of a launch, or why there are none."""
    try:
        function = getattr(importlib.import_module(module), kernel)
        while not hasattr(function, "rewriter"):  # autotuned, heuristics
            function = function.fn
        function[grid](**arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return {
        name: value for name, value in arguments.items() if isinstance(value, torch.Tensor) and value.numel()
    }


def main(asked: str, answered: str) -> None:
    """Read launches from a file, and write their results to another."""
    paths, requests = torch.load(asked, weights_only=False)
    sys.path[:] = paths
    torch.save([_run(*each) for each in requests], answered)


if __name__ == "__main__":
    main(*sys.argv[1:])
