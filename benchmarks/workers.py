"""Processes of a benchmark, for peers that each need one of their own. Imports no torch."""

import json
import os
import subprocess
import sys
from typing import Any


class Worker:
    """A process of a benchmark that answers requests, each a line of JSON.

    Args:
        script: the benchmark.
        lost: message where it has exited; may name its {code}.
        arguments: of the benchmark's command line.
        environment: variables beside those of this process.
    """

    def __init__(self, script: str, lost: str, *arguments: str, **environment: str) -> None:
        self._lost = lost
        self.process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, *request: object) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the oldest request."""
        assert self.process.stdout is not None
        if line := self.process.stdout.readline():
            return json.loads(line)
        raise SystemExit(self._lost.format(code=self.process.wait()))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
