"""Run scripts that print their findings as a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


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
    assert done.returncode == 0, done.stderr[-8000:]
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
