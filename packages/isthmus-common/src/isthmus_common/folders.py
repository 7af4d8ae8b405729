"""Check the folders of compiled code, caches and reports: writable, and by this user only."""

import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from isthmus_common.finding import Finding, fail, ok, warning

_SUBJECT = "permissions"
_REPORTS = ("ISTHMUS_DEBUG_FOLDER", "ISTHMUS_FLIGHT_RECORDER_FOLDER")


def folders() -> Iterator[Finding]:
    """Check the folders of compiled code, caches and reports."""
    try:
        home = Path.home()
    except RuntimeError:
        text = f"no home folder: HOME is not set, and user {os.geteuid()} is not in the user database"
        yield fail(_SUBJECT, text, "set HOME to a writable folder")
        return
    places = _places(dict(os.environ), home)
    by_folder: dict[tuple[Path, bool], list[str]] = defaultdict(list)
    for name, path in places.items():
        there = _nearest_existing(path.absolute())
        by_folder[there, there == path.absolute()].append(name)
    troubles = [
        trouble
        for (there, itself), names in by_folder.items()
        for trouble in _find_problems(", ".join(names), there, itself)
    ]
    yield from troubles
    if not troubles:
        yield ok(_SUBJECT, f"{len(places)} folders of caches and reports are writable, by this user only")


def _places(environment: dict[str, str], home: Path) -> dict[str, Path]:
    """Return folders by what sets or owns them."""
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    temporary = Path(tempfile.gettempdir())
    by_variable = {
        "TORCH_EXTENSIONS_DIR": cache / "torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": temporary / f"torchinductor_{os.getuid()}",
        "TRITON_CACHE_DIR": home / ".triton" / "cache",
        "TORCH_HOME": cache / "torch",
        "HF_HOME": cache / "huggingface",
    }
    places = {name: Path(environment.get(name) or path) for name, path in by_variable.items()}
    asked = {name: Path(environment[name]) for name in _REPORTS if environment.get(name)}
    return {"TMPDIR": temporary, "XDG_CACHE_HOME": cache / "isthmus", **places, **asked}


def _nearest_existing(path: Path) -> Path:
    """Return the path, or its nearest existing parent that this user can see."""
    return next(folder for folder in (path, *path.parents) if os.access(folder, os.F_OK))


def _find_problems(name: str, there: Path, itself: bool) -> Iterator[Finding]:
    """Yield problems of a folder or its nearest existing parent."""
    if not there.is_dir():
        yield fail(_SUBJECT, f"{name}: {there} is not a folder", f"remove it, or set {name} to a folder")
    elif not os.access(there, os.W_OK | os.X_OK):
        each_one = "each of them" if ", " in name else name
        remedy = f"`chown` it to user {os.geteuid()}, or set {each_one} to a writable folder"
        yield warning(_SUBJECT, f"{name}: {there} is not writable", remedy)
    elif itself and _is_open(there):
        text = f"{name}: others can write to {there} and inject code or data into your jobs"
        yield warning(_SUBJECT, text, f"`chmod go-w {there}`")


def _is_open(folder: Path) -> bool:
    """Whether others may create and delete files in it; the sticky bit forbids deletion."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
