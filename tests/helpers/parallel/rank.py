"""One rank of a subject: ``python -m tests.helpers.parallel.rank SUBJECT RANK SIZE FOLDER STORE [CHECK...]``.

Runs the checks of ``tests/parallel/test_<subject>.py``, or those named, in order, and prints one line of JSON for
each: ``{"check": name, "difference": from one process, "error": traceback or null}``. The first error ends the run,
because the ranks are then no longer at the same collective.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True)
class Rank:
    """Process and device of a check.

    Attributes:
        number: of this rank.
        size: how many ranks there are.
        folder: one for all ranks, which stays for the next job.
    """

    number: int
    size: int
    folder: Path

    @property
    def device(self) -> torch.device:
        return torch.device("chip", self.number)


Check = Callable[[Rank], float]


def tolerance(tolerance: float) -> Callable[[Check], Check]:
    """Mark a check with the largest difference that it may return; 0 is bit-equal."""

    def mark(function: Check) -> Check:
        vars(function)["tolerance"] = tolerance
        return function

    return mark


def checks(members: Mapping[str, Any]) -> dict[str, Check]:
    """Return the marked functions of a module, in order."""
    return {name: value for name, value in members.items() if hasattr(value, "tolerance")}


def difference(found: Iterable[Tensor], expected: Iterable[Tensor]) -> float:
    """Largest difference of two lists of tensors, each relative to the largest element expected."""
    return max((_difference(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def _difference(found: Tensor, expected: Tensor) -> float:
    a, b = found.detach().cpu(), expected.detach().cpu()
    assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{a.shape} {a.dtype}, expected {b.shape} {b.dtype}"
    if torch.equal(a, b):
        return 0.0
    assert a.isfinite().all(), "not finite"
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def run(function: Check, rank: Rank) -> bool:
    found, error = None, None
    try:
        found = function(rank)
        tolerance = vars(function)["tolerance"]
        assert found <= tolerance, f"differs by {found:.2g} from one process, more than {tolerance:.2g}"
    except Exception:
        error = traceback.format_exc()
    print(json.dumps({"check": function.__name__, "difference": found, "error": error}), flush=True)
    return error is None


def main(arguments: Sequence[str]) -> int:
    subject, number, size, folder, store, *names = arguments
    rank = Rank(int(number), int(size), Path(folder))
    torch.set_num_threads(1)
    torch.chip.set_device(rank.device)
    dist.init_process_group(
        init_method=f"file://{store}", rank=rank.number, world_size=rank.size, timeout=TIMEOUT
    )
    found = checks(vars(importlib.import_module(f"tests.parallel.test_{subject}")))
    if not all(run(found[name], rank) for name in names or found):
        return 1
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    # Checks import this module by name and must get this instance.
    sys.exit(importlib.import_module("tests.helpers.parallel.rank").main(sys.argv[1:]))
