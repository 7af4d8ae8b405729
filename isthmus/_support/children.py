"""Trying a thing in a child process, so that a crash, a hang or an exit of it is one more finding.

The child calls a generator function; what it yields comes back line by line, so what it had done before it ended
is known. Whatever else the child prints is dropped, but for the last line of an error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

LIMIT_S = 60.0
_PATIENCE = 10  # times the limit at most, on a busy machine


class Outcome(NamedTuple):
    """What came back.

    Attributes:
        records: what the function yielded, in order.
        problem: how the child ended, in one line; "" where it ended by itself and with 0.
    """

    records: list[dict[str, Any]]
    problem: str = ""


def run(
    target: str, *arguments: str, environment: Mapping[str, str] | None = None, limit_s: float | None = None
) -> Outcome:
    """Call a generator function in a fresh interpreter with this one's search path.

    Args:
        target: ``"module:function"``; the function yields dictionaries that JSON can carry.
        arguments: of the function.
        environment: added to this process's.
        limit_s: seconds after which the child and what it started are ended; None: see :func:`limit`.
    """
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from isthmus._support import children; children.serve({target!r}, {arguments!r})"
    )
    return _decoded(*command([sys.executable, "-P", "-c", code], environment, limit_s))


def limit() -> float:
    """Seconds that tell a hang from a slow start: a minute, and more where others wait for the CPUs as well."""
    share = os.getloadavg()[0] / (os.cpu_count() or 1)
    return LIMIT_S * min(_PATIENCE, max(1.0, share))


def command(
    words: list[str], environment: Mapping[str, str] | None = None, limit_s: float | None = None
) -> tuple[str, str]:
    """What a command prints, and how it ended: one line, or "" where it ended with 0."""
    limit_s = limit() if limit_s is None else limit_s
    process = subprocess.Popen(
        words,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # its group is ended as a whole
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return process.communicate()[0], f"it had not ended after {limit_s:.0f} s"
    except BaseException:
        _end(process)
        raise
    return output, _ending(process.returncode, errors)


def _end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(status: int, errors: str) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    lines = errors.strip().splitlines()
    return f"status {status}: {lines[-1].strip()}" if lines else f"status {status}"


def _decoded(output: str, problem: str) -> Outcome:
    records = []
    for line in output.splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:  # the line during which the child was ended
            break
    return Outcome(records, problem)


def serve(target: str, arguments: tuple[str, ...]) -> None:
    """In the child: send what the function yields; everything else that is printed goes to stderr."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module, _, name = target.partition(":")
    for record in getattr(import_module(module), name)(*arguments):
        print(json.dumps(record), file=stream)
