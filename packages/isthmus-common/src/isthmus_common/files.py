"""Creation of folders and files: modes 0750 and 0640 whatever the umask, files written atomically."""

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from isthmus_common.text import count


def user_cache() -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/isthmus``, which may not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "isthmus"


_NAMES = 100  # in a temporary folder, where another user may take some of them first


def private_folder() -> Path:
    """Return the folder that this user's processes share while they run, mode 0700, created if absent.

    It has the accounts of the host chip and the requests of `isthmus debug`.
    ``packages/isthmus/csrc/drivers/host/ledger.cpp`` finds it by the same rules.

    Raises:
        OSError: there is none that only this user can enter.
    """
    for folder in _private_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700)
            folder.chmod(0o700)
        if _is_private(folder):
            return folder
    raise OSError(
        errno.EACCES,
        "not a folder that you own with mode 0700; set XDG_RUNTIME_DIR to a folder that only you can write",
        str(_first_temporary()),
    )


def existing_private_folder() -> Path | None:
    """Return the private folder; None if no process has created it."""
    return next(filter(_is_private, _private_folders()), None)


def _private_folders() -> Iterator[Path]:
    """Yield the possible places of the private folder, the preferred one first."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        yield runtime / "isthmus"
    first = _first_temporary()
    yield first
    for number in range(1, _NAMES):
        yield first.with_name(f"{first.name}-{number}")


def _first_temporary() -> Path:
    temporary = Path(os.environ.get("TMPDIR", ""))
    return (temporary if temporary.is_absolute() else Path("/tmp")) / f"isthmus-{os.geteuid()}"


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return is_own and os.access(path, os.W_OK | os.X_OK)


def make_folder(path: Path) -> None:
    """Create a folder and its absent parents; existing folders keep their mode."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(0o750)


def make_file(path: Path) -> None:
    """Create an empty file, to append to; an existing one, such as a device, keeps its mode."""
    with contextlib.suppress(FileExistsError), path.open("xb") as stream:
        os.fchmod(stream.fileno(), 0o640)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read that others may have made, without waiting for a FIFO.

    Raises:
        OSError: it cannot be read, or is a symbolic link, FIFO or device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def write_file(path: Path, data: bytes | Iterable[bytes | memoryview], mode: int = 0o640) -> str:
    """Write a file atomically and return the SHA-256 of its bytes.

    A device, pipe or terminal, such as /dev/null or /dev/stdout, is written to and keeps its mode.
    """
    beside = _temporary_path(path)
    try:
        if _is_device(path):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
                return _write_to(stream, data)
        digest = _write(beside, data, mode)
        beside.replace(path)
    except OSError as error:
        raise _with_path(path, error) from None
    finally:
        beside.unlink(missing_ok=True)
    return digest


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Lock a file or folder during a block; False if another process, or another block, has locked it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def fingerprint(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Return the absolute path, size and modification time of each file, to detect that one has changed."""
    return [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


class Replacement(NamedTuple):
    """A file to write.

    Attributes:
        path: its path.
        data: its new bytes.
        mode: its new mode.
    """

    path: Path
    data: bytes | Iterable[bytes | memoryview]
    mode: int


def replace_files(files: Sequence[Replacement]) -> bool:
    """Replace several files: an error or an interrupt while they are written changes none of them.

    All are written beside the old ones first, then renamed. An interrupt (SIGINT) during the renames waits for the
    last one.

    Returns:
        Whether there was such an interrupt.

    Raises:
        OSError: a file cannot be written; its ``filename`` is that of the file, and its text says what was changed.
        KeyboardInterrupt: before the first rename.
    """
    try:
        for path, data, mode in files:
            try:
                _write(_temporary_path(path), data, mode)
            except OSError as error:
                raise _with_path(path, error, "; no file was changed") from None
        with _interrupts_held() as interrupts:
            for index, (path, _, _) in enumerate(files):
                try:
                    _temporary_path(path).replace(path)
                except OSError as error:
                    raise _with_path(path, error, f"; {count(index, 'file')} changed before it") from None
        return bool(interrupts)
    finally:
        for path, _, _ in files:
            _temporary_path(path).unlink(missing_ok=True)


def _is_device(path: Path) -> bool:
    if not path.exists() or path.is_dir():
        return False
    return not path.is_file() or path.absolute().parent == Path("/dev")


def _temporary_path(path: Path) -> Path:
    """Return the path of a file's new text until it is complete, which no tool takes for a source."""
    return path.with_name(f".{path.name}.{os.getpid()}.isthmus-tmp")


def _write(path: Path, data: bytes | Iterable[bytes | memoryview], mode: int) -> str:
    with path.open("wb") as stream:
        os.fchmod(stream.fileno(), mode)
        return _write_to(stream, data)


def _write_to(stream: BinaryIO, data: bytes | Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in [data] if isinstance(data, bytes) else data:
        digest.update(chunk)
        stream.write(chunk)
    return digest.hexdigest()


def _with_path(path: Path, error: OSError, state: str = "") -> OSError:
    """Return an error with the path of the file that could not be written."""
    return OSError(error.errno, f"{error.strerror}{state}", str(path))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[list[int]]:
    """Collect the interrupts of a block instead of raising them; outside the main thread there are none."""
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
