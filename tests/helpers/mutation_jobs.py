"""Mutation runs in separate interpreters: `Runner` forks, which is not safe with PyTorch's threads.

``python -m tests.helpers.mutation_jobs JOB GOLDEN`` prints what came of it as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

from isthmus.conformance.golden import Reader
from tests.helpers.planted import PLANTED
from tools.mutation import trial
from tools.mutation.draw import draw
from tools.mutation.kernel import Invocation
from tools.mutation.mutant import Mutant, Wrong
from tools.mutation.run import MutationError, Runner, Selection
from tools.mutation.score import summary

Choice = Callable[[Sequence[Mutant]], list[Mutant]]


def run(golden: Reader, pattern: str = "*", choose: Choice = list) -> dict[str, Any]:
    score = Runner(Selection(golden, pattern), lambda name: None).run(choose)
    return {
        "false_alarms": score.false_alarms,
        "results": [asdict(result) for result in score.results],
        "score": summary(score)["score"],
    }


def some(golden: Reader) -> dict[str, Any]:
    return run(golden, choose=lambda mutants: draw(mutants, [1], per_class=3))


def score_of_planted(golden: Reader) -> dict[str, Any]:
    return run(golden, choose=lambda _: PLANTED)


def crash() -> Wrong:
    return lambda right, call: os.abort()


def raise_error() -> Wrong:
    def wrong(right: Any, call: Invocation) -> None:
        raise RuntimeError("a bug of the kernel")

    return wrong


def change_nothing() -> Wrong:
    return lambda right, call: right(call)


def crashes(golden: Reader) -> dict[str, Any]:
    """Four mutants; the first and the last kill their process."""
    wrongs = {"abort": crash, "raise": raise_error, "nothing": change_nothing, "abort again": crash}

    mutants = [
        Mutant("aten::mul.Tensor", "memory", mutation, "", wrong) for mutation, wrong in wrongs.items()
    ]
    return run(golden, "aten::mul.Tensor", lambda _: mutants)


def broken_bench(golden: Reader) -> dict[str, Any]:
    def broken(self: trial.Bench, name: str) -> str:
        raise KeyError("bench")

    with mock.patch.object(trial.Bench, "false_alarm", broken):
        return run(golden, "aten::mul.Tensor")


def refusing_suite(golden: Reader) -> dict[str, Any]:
    with mock.patch.object(trial.Bench, "false_alarm", lambda self, name: f"{name}: refused"):
        return run(golden, "aten::cat")


def with_pytorch(golden: Reader) -> dict[str, Any]:
    import torch  # noqa: F401

    return run(golden, "aten::cat")


JOBS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    job.__name__: job for job in (some, score_of_planted, crashes, broken_bench, refusing_suite, with_pytorch)
}

if __name__ == "__main__":
    try:
        print(json.dumps(JOBS[sys.argv[1]](Reader(Path(sys.argv[2])))))
    except MutationError as error:
        sys.exit(f"MutationError: {error}")
