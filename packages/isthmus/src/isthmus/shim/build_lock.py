"""The lock around a build of ``torch.utils.cpp_extension``: removed if its owner was killed, and with progress.

PyTorch prints nothing while it waits or compiles. Before 2.14, its lock is a file that its owner creates and removes:
if the owner is killed, others wait for it indefinitely.
"""

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus_common.progress import say

_LOOK = 0.5  # seconds between two checks of the lock
_QUIET = 2.0  # seconds before the first line
_AGAIN = 60.0  # seconds between two lines
_FORGOTTEN = 600.0  # seconds; a lock without a name may be that of another machine


def add_progress(original: Any) -> Any:
    """Return the class to use in place of ``torch.utils._filelock.FileLock``."""

    class BuildLock(original):  # type: ignore[misc]
        def __enter__(self) -> Any:
            folder = Path(self.lock_file).parent
            with _progress(f"waiting for another process that compiles {folder.name} in {folder}"):
                entered = super().__enter__()
            self._isthmus_progress = contextlib.ExitStack()
            self._isthmus_progress.enter_context(_progress(f"compiling {folder.name} in {folder}"))
            return entered

        def __exit__(self, *error: Any) -> None:
            self._isthmus_progress.close()
            super().__exit__(*error)

    return BuildLock


def improve_lock(original: Any) -> Any:
    """Return the class to use in place of ``torch.utils.file_baton.FileBaton``."""
    if hasattr(original, "_isthmus_progress"):
        return original

    class BuildLock(original):  # type: ignore[misc]
        _isthmus_progress: contextlib.ExitStack

        def try_acquire(self) -> bool:
            """Wait for the lock; True. The caller builds what is missing, which may be nothing."""
            path = Path(self.lock_file_path)
            self._isthmus_progress = contextlib.ExitStack()
            with _progress(f"waiting for another process that compiles {path.parent.name} in {path.parent}"):
                while not self._take(path):
                    time.sleep(_LOOK)
            self._isthmus_progress.enter_context(_progress(f"compiling {path.parent.name} in {path.parent}"))
            return True

        def _take(self, path: Path) -> bool:
            with _exclude_others(path.parent):
                if not original.try_acquire(self):
                    if _is_held(path):
                        return False
                    say(f"removed {path}, the lock of a build that was killed")
                    path.unlink(missing_ok=True)
                    original.try_acquire(self)
                path.write_text(f"{socket.gethostname()} {os.getpid()}")
                return True

        def release(self) -> None:
            self._isthmus_progress.close()
            with _exclude_others(Path(self.lock_file_path).parent):  # closed and removed in one step
                original.release(self)

    return BuildLock


@contextlib.contextmanager
def _exclude_others(folder: Path) -> Iterator[None]:
    """Exclude the other processes that look at the lock in this folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_held(path: Path) -> bool:
    """Whether the process that created the lock may still run: it keeps the file open."""
    try:
        lock, host = path.stat(), path.read_text().partition(" ")[0]
    except OSError:
        return path.exists()
    is_of_this_machine = host == socket.gethostname() if host else time.time() - lock.st_mtime > _FORGOTTEN
    return not is_of_this_machine or lock.st_uid != os.getuid() or _is_open(lock)


def _is_open(file: os.stat_result) -> bool:
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed, or belongs to another user
            if os.path.samestat(descriptor.stat(), file):
                return True
    return False


@contextlib.contextmanager
def _progress(action: str) -> Iterator[None]:
    """Print the action once it takes long, with the seconds; on the first rank of a machine only."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        yield
        return
    begin, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        pause = _QUIET
        while not ended.wait(pause):
            say(f"{action}: {time.monotonic() - begin:.0f} s so far; it may take minutes")
            pause = _AGAIN

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if (seconds := time.monotonic() - begin) > _QUIET:
            say(f"{action}: ended after {seconds:.0f} s")
