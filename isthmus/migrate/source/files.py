"""The files of a project, read and decoded; unreadable files become findings."""

import codecs
import enum
import errno
import io
import os
import re
import stat
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from isthmus.migrate.source.findings import Finding, Severity

LARGEST = 10 << 20  # bytes
_CACHES = frozenset({"__pycache__", "node_modules", "site-packages"})
_REQUIREMENTS = re.compile(
    r"(.*requirements.*|constraints.*)\.(txt|in)|(environment|conda).*\.ya?ml|pyproject\.toml|setup\.cfg"
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Kind(enum.Enum):
    """What a file holds."""

    PYTHON = "python"
    NOTEBOOK = "notebook"
    SHELL = "shell"
    REQUIREMENTS = "requirements"
    NATIVE = "native"  # C++ and CUDA


_KINDS = {
    **dict.fromkeys((".py", ".pyw"), Kind.PYTHON),
    ".ipynb": Kind.NOTEBOOK,
    **dict.fromkeys((".sh", ".bash", ".zsh", ".slurm", ".sbatch"), Kind.SHELL),
    **dict.fromkeys((".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hh", ".hpp"), Kind.NATIVE),
}


class File(NamedTuple):
    """A file that was found.

    Attributes:
        path: where it is.
        name: from the folder on that was asked for, with ``/``.
        kind: what it holds.
    """

    path: Path
    name: str
    kind: Kind


class Source(NamedTuple):
    """A file that was read.

    Attributes:
        path: where it is.
        name: from the folder on that was asked for, with ``/``.
        kind: what it holds.
        data: its bytes.
        text: the bytes decoded; line ends as they are.
        encoding: that encodes the text to the same bytes again.
    """

    path: Path
    name: str
    kind: Kind
    data: bytes
    text: str
    encoding: str


def walk(root: Path) -> Iterator[Source | Finding]:
    """Every source under a folder, or the one file; in the order of their names.

    Hidden folders, environments and caches are left out. Below the root, a symbolic link is not followed: what it
    leads to is read under its own name, and a link that leads in a circle or out of the tree is a finding (IM004),
    as is a file too large, not decodable or not readable (IM002, IM003, IM005).

    Raises:
        FileNotFoundError: there is nothing at root.
    """
    for found in files(root):
        yield read(found) if isinstance(found, File) else found


def files(root: Path) -> Iterator[File | Finding]:
    """As :func:`walk`, without reading."""
    if not root.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(root))
    if not root.is_dir():
        yield File(root, _printable(root.name), kind_of(root.name) or Kind.PYTHON)
        return
    top = os.path.realpath(root)
    entries = [root]
    while entries:
        path = entries.pop()
        name = _printable(path.relative_to(root).as_posix())
        kind = kind_of(path.name)
        try:
            if path.is_symlink() and path != root:
                yield from _link(path, name, top, kind)
            elif path.is_dir():
                if path == root or not _left_out(path):
                    entries += sorted(path.iterdir(), reverse=True)
            elif kind:
                yield File(path, name, kind)
        except OSError as error:
            yield _unreadable(name, error)


def read(file: File) -> Source | Finding:
    """A file's text, or what is wrong with it."""
    try:
        status = file.path.stat()
        if not stat.S_ISREG(status.st_mode):
            return problem("IM005", file.name, "is not a regular file", "leave it out")
        if status.st_size > LARGEST:
            size = f"{status.st_size / (1 << 20):.0f} MiB"
            return problem(
                "IM003", file.name, f"is larger than 10 MiB ({size})", "look at it by hand if it is code"
            )
        data = file.path.read_bytes()
    except OSError as error:
        return _unreadable(file.name, error)
    try:
        encoding = _encoding(file.kind, data)
        text = data.decode(encoding)
        if text.encode(encoding) != data:
            raise ValueError(f"{encoding} does not give its bytes back")
    except (LookupError, SyntaxError, ValueError) as error:
        return problem("IM002", file.name, f"cannot be decoded: {_line(error)}", "save it as UTF-8")
    if "\0" in text:
        return problem("IM002", file.name, "holds NUL characters", "save it as UTF-8 text, or leave it out")
    return Source(*file, data, text, encoding)


def kind_of(name: str) -> Kind | None:
    """What a file of this name holds; None: nothing for the migration tools."""
    return Kind.REQUIREMENTS if _REQUIREMENTS.fullmatch(name) else _KINDS.get(Path(name).suffix.lower())


def problem(code: str, name: str, message: str, advice: str, line: int = 0) -> Finding:
    """The finding that a file is not looked at (IM001 to IM005).

    Args:
        code: which of them.
        name: of the file, from the folder on that was asked for.
        message: what is wrong, a predicate: ``"is not a regular file"``.
        advice: what to do about it.
        line: where, from 1 on; 0 is the file as a whole.
    """
    severity = Severity.REVIEW if code in {"IM003", "IM004"} else Severity.MANUAL
    said = f"{message}; it is not analysed"
    return Finding(code, severity, name, line, line, Path(name).name, said, advice)


def _left_out(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _CACHES or (folder / "pyvenv.cfg").exists()


def _link(path: Path, name: str, top: str, kind: Kind | None) -> Iterator[Finding]:
    """What is wrong with a symbolic link; nothing if it stays in the tree, where its target is read anyway."""
    try:
        target = os.path.realpath(path, strict=True)
    except OSError as error:
        if kind or error.errno == errno.ELOOP:
            yield problem(
                "IM004", name, f"is a symbolic link that leads nowhere ({error.strerror})", "remove it"
            )
        return
    if not (kind or Path(target).is_dir()):
        return
    if target != top and not target.startswith(top + os.sep):
        yield problem("IM004", name, "is a symbolic link out of the tree", "name its target too")
    elif (os.path.realpath(path.parent) + os.sep).startswith(target + os.sep):
        yield problem("IM004", name, "is a symbolic link to a folder around it", "remove it")


def _encoding(kind: Kind, data: bytes) -> str:
    if kind is Kind.PYTHON:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    if kind is Kind.NOTEBOOK:
        return "utf-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1"  # comments of old C++ sources
    return "utf-8"


def _unreadable(name: str, error: OSError) -> Finding:
    return problem("IM005", name, f"cannot be read: {error.strerror or error}", "fix its permissions")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _printable(name: str) -> str:
    """A file's name as text: bytes that are no UTF-8 as ``\\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
