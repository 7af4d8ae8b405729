"""Creation of folders and files: modes 0750 and 0640 whatever the umask, files written atomically."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def user_cache() -> Path:
    """Return the cache folder, ``$XDG_CACHE_HOME/isthmus``, which may not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "isthmus"


def make_folder(path: Path) -> None:
    """Create a folder and its absent parents; existing folders keep their mode."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(0o750)


def make_file(path: Path) -> None:
    """Create an empty file, to append to."""
    path.touch(mode=0o640)
    path.chmod(0o640)


def write_file(path: Path, data: bytes | Iterable[bytes | memoryview], mode: int = 0o640) -> str:
    """Write a file atomically and return the SHA-256 of its bytes."""
    digest = hashlib.sha256()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as stream:
            os.fchmod(stream.fileno(), mode)
            for chunk in [data] if isinstance(data, bytes) else data:
                digest.update(chunk)
                stream.write(chunk)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return digest.hexdigest()
