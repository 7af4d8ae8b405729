"""Functions and commands in a child process, so that a crash, hang or exit becomes a result.

The child calls a generator function and sends each yielded value as a line, so the values before a crash are kept.
Other output of the child is dropped, except for the last line of an error.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from isthmus_common.text import signal_name

LIMIT_S = 60.0
_PATIENCE = 10  # factor of the limit at most, on a busy machine


class Outcome(NamedTuple):
    """The result of a child process.

    Attributes:
        records: values yielded by the function, in order.
        problem: how the child failed, in one line; "" if it exited with status 0.
    """

    records: list[dict[str, Any]]
    problem: str = ""


def run(
    target: str, *arguments: str, environment: Mapping[str, str] | None = None, limit_s: float | None = None
) -> Outcome:
    """Call a generator function in a fresh interpreter with this one's search path.

    Args:
        target: ``"module:function"``; the function yields dictionaries for JSON.
        arguments: arguments of the function.
        environment: variables added to this process's environment.
        limit_s: seconds after which the child's process group is killed; None: see :func:`limit`.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from isthmus_common import children; children.serve({target!r}, {arguments!r})"
    )
    return _decode_outcome(*run_command([sys.executable, "-P", "-c", code], environment, limit_s))


def limit() -> float:
    """Return the default time limit in seconds: a minute, and more on a busy machine."""
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    return LIMIT_S * min(_PATIENCE, max(1.0, share))


def run_command(
    words: list[str], environment: Mapping[str, str] | None = None, limit_s: float | None = None
) -> tuple[str, str]:
    """Run a command; return its output, and how it failed in one line, or "" if it exited with status 0."""
    limit_s = limit() if limit_s is None else limit_s
    process = subprocess.Popen(
        words,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that its process group can be killed
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return process.communicate()[0], f"timed out after {limit_s:.0f} s"
    except BaseException:
        _end(process)
        raise
    return output, _describe_ending(process.returncode, errors)


def _end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _describe_ending(status: int, errors: str) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"killed by {signal_name(-status)}"
    lines = errors.strip().splitlines()
    return f"status {status}: {lines[-1].strip()}" if lines else f"status {status}"


def _decode_outcome(output: str, problem: str) -> Outcome:
    records = []
    for line in output.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:  # a line cut by the end of the child
            break
    return Outcome(records, problem)


def serve(target: str, arguments: tuple[str, ...]) -> None:
    """Send the values of the function, in the child; redirect other output to stderr."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module, _, name = target.partition(":")
    for record in getattr(import_module(module), name)(*arguments):
        print(json.dumps(record), file=stream)
