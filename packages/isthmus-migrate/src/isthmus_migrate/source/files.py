"""The files of a project, read and decoded; unreadable files become findings."""

import codecs
import enum
import errno
import io
import os
import re
import stat
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.source.findings import Finding, Severity

LARGEST = 10 << 20  # bytes
_LARGEST_SETTINGS = 1 << 20  # bytes; what is larger is data
_LEFT_OUT = frozenset(
    "__pycache__ node_modules site-packages .git .hg .svn .venv .tox .nox .eggs .cache .ipynb_checkpoints".split()
)
_MARKS_OF_TOOLS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")  # files in environments and caches
_REQUIREMENTS = re.compile(
    r"(.*requirements.*|constraints.*)\.(txt|in)|(environment|conda).*\.ya?ml|pyproject\.toml|setup\.cfg"
)
_CONTAINERS = re.compile(r"(Dockerfile|Containerfile)(\..+)?|.+\.[Dd]ockerfile|(docker-)?compose.*\.ya?ml")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Kind(enum.Enum):
    """Kind of a file."""

    PYTHON = "python"
    NOTEBOOK = "notebook"
    SHELL = "shell"  # and files that build or start containers
    REQUIREMENTS = "requirements"
    NATIVE = "native"  # C++ and CUDA
    SETTINGS = "settings"


_KINDS = {
    **dict.fromkeys((".py", ".pyw"), Kind.PYTHON),
    ".ipynb": Kind.NOTEBOOK,
    **dict.fromkeys((".sh", ".bash", ".zsh", ".slurm", ".sbatch"), Kind.SHELL),
    **dict.fromkeys((".yaml", ".yml", ".toml", ".json"), Kind.SETTINGS),
    **dict.fromkeys((".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hh", ".hpp"), Kind.NATIVE),
}


class File(NamedTuple):
    """A file of the project.

    Attributes:
        path: its path.
        name: path relative to the analysed folder, with ``/``.
        kind: its kind.
    """

    path: Path
    name: str
    kind: Kind


class Source(NamedTuple):
    """A file with its content.

    Attributes:
        path: its path.
        name: path relative to the analysed folder, with ``/``.
        kind: its kind.
        data: its bytes.
        text: the bytes decoded; line ends as they are.
        encoding: encoding that restores the same bytes.
    """

    path: Path
    name: str
    kind: Kind
    data: bytes
    text: str
    encoding: str


def walk(root: Path) -> Iterator[Source | Finding]:
    """Yield every source under a folder, or one file, sorted by name.

    Version control, environments and caches are skipped. Symbolic links below the root are not followed: their
    targets are read under their own names. A circular link or one out of the tree is a finding (IM004), as is a
    file that cannot be decoded, is too large or not readable (IM002, IM003, IM005).

    Raises:
        FileNotFoundError: root does not exist.
    """
    for found in files(root):
        yield read(found) if isinstance(found, File) else found


class Tree(NamedTuple):
    """The files of a project.

    Attributes:
        folder: the folder that names are relative to.
        files: its sources, in the order of the roots.
        problems: findings of links and folders that cannot be read.
    """

    folder: Path
    files: list[File]
    problems: list[Finding]


def tree(roots: Sequence[Path]) -> Tree:
    """Return the files under one or more roots as one project.

    Names are relative to the root, or to the folder that all roots have in common. A file under two roots counts
    once.

    Args:
        roots: folders or files.

    Raises:
        FileNotFoundError: a root does not exist.
    """
    folder = folder_of(roots)
    found: dict[str, File | Finding] = {}
    for root in roots:
        for each in files(root):
            name = each.name if isinstance(each, File) else each.path
            if len(roots) > 1:
                inside = _printable(os.path.relpath(root if root.is_dir() else root.parent, folder))
                name = name if inside == "." else f"{Path(inside).as_posix()}/{name}"
            renamed = each._replace(name=name) if isinstance(each, File) else each._replace(path=name)
            found.setdefault(name, renamed)
    present = [each for each in found.values() if isinstance(each, File)]
    return Tree(folder, present, [each for each in found.values() if isinstance(each, Finding)])


def folder_of(roots: Sequence[Path]) -> Path:
    """Return the folder that names of files under roots are relative to."""
    folders = [root if root.is_dir() else root.parent for root in roots]
    return folders[0] if len(folders) == 1 else Path(os.path.commonpath([each.resolve() for each in folders]))


def files(root: Path) -> Iterator[File | Finding]:
    """Yield files as :func:`walk`, without reading them."""
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
                yield from _link(path, name, top, None if kind is Kind.SETTINGS else kind)
            elif path.is_dir():
                if path == root or not _left_out(path):
                    entries += sorted(path.iterdir(), reverse=True)
            elif kind and (kind is not Kind.SETTINGS or path.stat().st_size <= _LARGEST_SETTINGS):
                yield File(path, name, kind)
        except OSError as error:
            yield _unreadable_finding(name, error)


def read(file: File) -> Source | Finding:
    """Read a file; return its text, or a finding."""
    try:
        status = file.path.stat()
        if not stat.S_ISREG(status.st_mode):
            return problem("IM005", file.name, "is not a regular file", "exclude it")
        if status.st_size > LARGEST:
            size = f"{status.st_size / (1 << 20):.0f} MiB"
            return problem(
                "IM003", file.name, f"is larger than 10 MiB ({size})", "check it by hand if it is code"
            )
        data = file.path.read_bytes()
    except OSError as error:
        return _unreadable_finding(file.name, error)
    try:
        encoding = _encoding(file.kind, data)
        text = data.decode(encoding)
        if text.encode(encoding) != data:
            raise ValueError(f"{encoding} does not restore its bytes")
    except (LookupError, SyntaxError, ValueError) as error:
        return problem("IM002", file.name, f"cannot be decoded: {_line(error)}", "save it as UTF-8")
    if "\0" in text:
        return problem("IM002", file.name, "contains NUL characters", "save it as UTF-8 text, or exclude it")
    return Source(*file, data, text, encoding)


def kind_of(name: str) -> Kind | None:
    """Return the kind of a file by its name; None if the migration tools ignore it."""
    if _CONTAINERS.fullmatch(name):
        return Kind.SHELL
    return Kind.REQUIREMENTS if _REQUIREMENTS.fullmatch(name) else _KINDS.get(Path(name).suffix.lower())


def problem(code: str, name: str, message: str, advice: str, line: int = 0) -> Finding:
    """Make the finding of a file that is not analysed (IM001 to IM005).

    Args:
        code: which of them.
        name: path of the file relative to the analysed folder.
        message: what is wrong, a predicate: ``"is not a regular file"``.
        advice: what to do about it.
        line: line from 1; 0 for the whole file.
    """
    severity = Severity.REVIEW if code in {"IM003", "IM004"} else Severity.MANUAL
    said = f"{message}; it is not analysed"
    return Finding(code, severity, name, line, line, Path(name).name, said, advice)


def _left_out(folder: Path) -> bool:
    return folder.name in _LEFT_OUT or any((folder / mark).exists() for mark in _MARKS_OF_TOOLS)


def _link(path: Path, name: str, top: str, kind: Kind | None) -> Iterator[Finding]:
    """Yield the problem of a symbolic link; none if it stays in the tree, where its target is read anyway."""
    try:
        target = os.path.realpath(path, strict=True)
    except OSError as error:
        if kind or error.errno == errno.ELOOP:
            yield problem("IM004", name, f"is a broken symbolic link ({error.strerror})", "remove it")
        return
    if not (kind or Path(target).is_dir()):
        return
    if target != top and not target.startswith(top + os.sep):
        yield problem("IM004", name, "is a symbolic link out of the tree", "analyse its target too")
    elif (os.path.realpath(path.parent) + os.sep).startswith(target + os.sep):
        yield problem("IM004", name, "is a symbolic link to a parent folder", "remove it")


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


def _unreadable_finding(name: str, error: OSError) -> Finding:
    return problem("IM005", name, f"cannot be read: {error.strerror or error}", "fix its permissions")


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _printable(name: str) -> str:
    """Return a file's name as text; bytes that are not UTF-8 as ``\\xff``."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
