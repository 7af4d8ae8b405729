"""Switching tools in a running job from outside: a signal, a request in a file, an answer in a file.

A process that listens has a handler for one real-time signal and a file with its name in a folder of its user; there
is no thread, no socket and nothing polled. Only its user (or root) can signal it, and requests are read only from a
folder that this user owns and nobody else can write. A request is carried out in the main thread, between two of its
instructions.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from isthmus.debug.errors import DebugError

SIGNAL = signal.SIGRTMIN + 5
_RETRY = 0.02  # seconds


class Process(NamedTuple):
    """A process that listens.

    Attributes:
        pid: its number.
        rank: of the distributed job, or "".
        command: its command line.
        started: clock ticks since boot, by which a reused number is told apart.
    """

    pid: int
    rank: str
    command: str
    started: str


def folder() -> Path:
    """Folder of the requests, this user's own; made if it is not there.

    Raises:
        DebugError: it belongs to someone else or others may write in it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    path = Path(runtime) / "isthmus" if runtime and os.access(runtime, os.W_OK) else _temporary()
    try:
        path.mkdir(mode=0o750)
        path.chmod(0o750)
    except FileExistsError:
        pass
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise DebugError(f"{path}: not a folder that only user {os.getuid()} can write; remove it")
    return path


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}"


# ---- in the job


def install() -> None:
    """Listen. Does nothing in another thread than the main one, or where the program uses the signal itself."""
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
    me = Process(pid, os.environ.get("RANK", ""), " ".join(sys.argv), _started(pid))
    _write(place / f"{pid}.json", json.dumps(me._asdict()))
    atexit.register(_remove, place, pid)


def _remove(place: Path, pid: int) -> None:
    if os.getpid() == pid:
        for ending in ("json", "request", "answer"):
            (place / f"{pid}.{ending}").unlink(missing_ok=True)


def _handle(_number: int, _frame: FrameType | None) -> None:
    from isthmus.debug import intercept

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
    from isthmus import debug
    from isthmus.debug import sessions

    if action == "status":
        return "\n".join(debug.status()) or "everything is off"
    if action == "off":
        return sessions.stop_all() or "everything is off"
    session = sessions.make(action, pattern).start()
    return (
        f"{action} {pattern}: on for {len(session.operators)} overloads"
        if session.operators
        else f"{action}: on"
    )


def _write(path: Path, text: str) -> None:
    from isthmus._support.files import write_file

    write_file(path, text.encode())


# ---- outside of it


def processes() -> list[Process]:
    """Processes of this user that listen."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            process = Process(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue
        if _started(process.pid) == process.started:
            found.append(process)
        else:
            path.unlink(missing_ok=True)  # it has ended without removing it
    return found


def ask(pid: int, action: str, pattern: str = "*", timeout: float = 30.0) -> str:
    """Have a process carry something out.

    Args:
        pid: its number.
        action: a tool to switch on, ``off`` or ``status``.
        pattern: of operators.
        timeout: seconds; the answer comes when the call into C that its main thread is in returns.

    Raises:
        DebugError: it does not listen, refuses or does not answer.
    """
    if pid not in {process.pid for process in processes()}:
        raise DebugError(
            f"process {pid} does not listen; start the job with `isthmus run`, or call isthmus.debug.listen() in it"
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
        if not _started(pid):
            raise DebugError(f"process {pid} has ended")
        time.sleep(_RETRY)
    raise DebugError(f"process {pid} has not answered for {timeout:g} s: its main thread is in one long call")


def _started(pid: int) -> str:
    """Start time of a process; "" if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = text[text.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[19]
