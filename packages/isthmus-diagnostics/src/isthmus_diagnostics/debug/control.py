"""Enable and disable tools in a running job from outside, by a signal and two files.

A listening process has a handler for one real-time signal, and a file with its name in its user's folder. It needs
no thread, no socket and no polling. Only its user (or root) can signal it, and it reads requests only from a folder
that its user owns and nobody else can write. The main thread handles a request between two instructions.
"""

import atexit
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from isthmus_common.files import private_folder, write_file
from isthmus_diagnostics.debug.errors import DebugError

SIGNAL = signal.SIGRTMIN + 5
_RETRY = 0.02  # seconds


class Process(NamedTuple):
    """A process that accepts requests.

    Attributes:
        pid: process ID.
        rank: in the distributed job, or "".
        command: command line.
        started: start time in clock ticks since boot; detects a reused process ID.
    """

    pid: int
    rank: str
    command: str
    started: str


def folder() -> Path:
    """Return the user's folder of requests, created if absent.

    Raises:
        DebugError: there is none that only this user can enter.
    """
    try:
        return private_folder()
    except OSError as error:
        raise DebugError(f"{error.filename}: {error.strerror}") from None


# ---- in the job's process


def install() -> None:
    """Start to listen; without effect outside the main thread, or if the program uses the signal itself."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    try:
        place = folder()
    except (DebugError, OSError) as error:
        print(f"isthmus: this process cannot be debugged from outside: {error}", file=sys.stderr)
        return
    signal.signal(SIGNAL, _handle)
    signal.siginterrupt(SIGNAL, False)
    pid = os.getpid()
    me = Process(pid, os.environ.get("RANK", ""), " ".join(sys.argv), _start_time(pid))
    _write(place / f"{pid}.json", json.dumps(me._asdict()))
    atexit.register(_remove, place, pid)


def _remove(place: Path, pid: int) -> None:
    if os.getpid() == pid:
        for ending in ("json", "request", "answer"):
            (place / f"{pid}.{ending}").unlink(missing_ok=True)


def _handle(_number: int, _frame: FrameType | None) -> None:
    from isthmus_diagnostics.debug import intercept

    if intercept.is_changing():
        later = threading.Timer(_RETRY, os.kill, (os.getpid(), SIGNAL))
        later.daemon = True
        later.start()
        return
    try:
        request = folder() / f"{os.getpid()}.request"
        words = json.loads(request.read_text())
        request.unlink()
    except (OSError, ValueError, DebugError):
        return
    try:
        answer = {"ok": True, "text": _carry_out(*words)}
    except (DebugError, TypeError) as error:
        answer = {"ok": False, "text": str(error)}
    _write(request.with_suffix(".answer"), json.dumps(answer))


def _carry_out(action: str, pattern: str = "*") -> str:
    from isthmus_diagnostics import debug
    from isthmus_diagnostics.debug import sessions

    if action == "status":
        return "\n".join(debug.status()) or "all tools are off"
    if action == "off":
        return sessions.stop_all() or "all tools are off"
    session = sessions.make(action, pattern).start()
    return (
        f"{action} {pattern}: on for {len(session.operators)} overloads"
        if session.operators
        else f"{action}: on"
    )


def _write(path: Path, text: str) -> None:
    write_file(path, text.encode())


# ---- in the process of the command


def processes() -> list[Process]:
    """Return the listening processes of this user."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            process = Process(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if _start_time(process.pid) == process.started:
            found.append(process)
        else:
            path.unlink(missing_ok=True)  # left by a process that was killed
    return found


def ask(pid: int, action: str, pattern: str = "*", timeout: float = 30.0) -> str:
    """Send a request to a process and return its answer.

    Args:
        pid: process ID.
        action: a tool to enable, ``off`` or ``status``.
        pattern: operators.
        timeout: seconds. The process answers once the current C call of its main thread returns.

    Raises:
        DebugError: the process does not listen, refuses the request, or times out.
    """
    if pid not in {process.pid for process in processes()}:
        raise DebugError(
            f"process {pid} cannot be debugged; start the job with `isthmus run`, or call "
            "isthmus_diagnostics.debug.listen() in it"
        )
    request, answer = (folder() / f"{pid}.{ending}" for ending in ("request", "answer"))
    answer.unlink(missing_ok=True)
    _write(request, json.dumps([action, pattern]))
    try:
        os.kill(pid, SIGNAL)
        reply = _wait_for(answer, pid, timeout)
    finally:
        request.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    if not reply["ok"]:
        raise DebugError(str(reply["text"]))
    return str(reply["text"])


def _wait_for(answer: Path, pid: int, timeout: float) -> dict[str, object]:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if answer.exists():
            reply: dict[str, object] = json.loads(answer.read_text())
            return reply
        if not _start_time(pid):
            raise DebugError(f"process {pid} has ended")
        time.sleep(_RETRY)
    raise DebugError(
        f"timed out after {timeout:g} s waiting for process {pid}: its main thread is in one long call"
    )


def _start_time(pid: int) -> str:
    """Return the start time of a process; "" if it does not exist."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[19]
