"""Running Python in a child process, for what depends on a fresh interpreter or on the environment."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, outside the checkout.

    Args:
        code: dedented before it is run.
        environment: changes to this process's environment; None removes a variable.
    """
    env = {**os.environ, **{k: v for k, v in environment.items() if v is not None}}
    for name in (name for name, value in environment.items() if value is None):
        env.pop(name, None)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False, cwd="/")


def output(code: str, **environment: str | None) -> str:
    """What the code prints; an error of the child fails the test with its message."""
    result = run(code, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
