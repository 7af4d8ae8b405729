"""``python -m isthmus_cluster.node``: runs a command on a host until it ends or its supervisor is gone.

The supervisor holds the other end of standard input, over ssh too. Each line of it names a signal to pass on. Its end
ends the command, so that nothing is left when the supervisor or the connection dies. Imports no torch, no pydantic.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable

from isthmus_common.parent import end_with_parent

_PATIENCE = 45.0  # seconds from SIGTERM to SIGKILL; the launcher gives its ranks 30


def main(arguments: list[str]) -> int:
    """Run a command; return its exit status, 128 + N if a signal N ended it."""
    parser = argparse.ArgumentParser(prog="isthmus cluster run")
    parser.add_argument("--directory", default="")
    split = arguments.index("--")
    options = parser.parse_args(arguments[:split])
    try:
        process = subprocess.Popen(
            arguments[split + 1 :],
            stdin=subprocess.DEVNULL,
            cwd=options.directory or None,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(signal.SIGTERM),  # noqa: PLW1509 - no thread yet
        )
    except OSError as error:
        print(f"isthmus: {error.filename}: {error.strerror}", file=sys.stderr)
        return 127
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: _send(process, received))
    threading.Thread(target=_follow_orders, args=(process, sys.stdin), daemon=True).start()
    status = process.wait()
    with contextlib.suppress(ProcessLookupError):  # kills what the command has left in its group
        os.killpg(process.pid, signal.SIGKILL)
    return 128 - status if status < 0 else status


def _follow_orders(process: subprocess.Popen[bytes], lines: Iterable[str]) -> None:
    """Pass signals on, and end the process at the end of the lines."""
    for line in lines:
        with contextlib.suppress(ValueError, KeyError):
            _send(process, signal.Signals[line.strip()])
    _send(process, signal.SIGTERM)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
