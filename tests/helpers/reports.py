"""Run scripts that print their findings as a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.helpers import command


def report(*arguments: object, **environment: str) -> dict[str, Any]:
    """Run Python with arguments and return its last line of JSON; an error of the job fails the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS_")}
    settings = {"ISTHMUS_HOST_MEMORY": "1GiB", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**kept, **settings},
        check=False,
    )
    return last_report(done)


def run_forked(*program: object, ranks: int = 1, **environment: str) -> dict[str, Any]:
    """Run a program with the shim in children that have PyTorch imported; return its last line of JSON."""
    return last_report(command.run_forked(*program, ranks=ranks, HF_HUB_OFFLINE="1", **environment))


def last_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the last line of JSON that a job printed; an error of the job fails the test."""
    assert done.returncode == 0, done.stderr[-8000:]
    found: dict[str, Any] = json.loads(
        [line for line in done.stdout.splitlines() if line.startswith("{")][-1]
    )
    return found
