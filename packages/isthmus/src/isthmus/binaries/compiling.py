"""Compiling of the core and the kernels for the PyTorch of this environment: ``isthmus build``.

The sources are those of the checkout, or those that an installed wheel carries in ``source/``.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import isthmus
from isthmus import binaries, options
from isthmus.binaries import Binaries, progress

_PACKAGE = Path(__file__).resolve().parents[1]
_NEEDED = {"torch": "torch", "setuptools": "setuptools", "ninja": "ninja", "tvm_ffi": "apache-tvm-ffi"}
_SHOWN = 20  # last lines of a failed build


class CannotCompile(Exception):
    """The core was not compiled; the message says why, and the remedy."""


def compile_for_installed_torch() -> Binaries:
    """Compile against the installed PyTorch, with progress on standard output.

    Raises:
        CannotCompile: a tool is missing, the compiler failed, or the package is not writable.
    """
    _check_tools()
    _check_torches()
    checkout = _PACKAGE.parents[1]
    if (checkout / "setup.py").is_file():
        _run_setup(checkout, checkout / "build" / "isthmus-build.log")
        return _made()
    if not os.access(_PACKAGE / "binaries", os.W_OK):
        raise CannotCompile(f"{_PACKAGE}: not writable; run as the user who installed isthmus")
    with tempfile.TemporaryDirectory(prefix="isthmus-build-") as name:
        folder = Path(name)
        shutil.copytree(_PACKAGE / "source", folder, dirs_exist_ok=True)
        _run_setup(folder, folder / "build.log")
        for made in (folder / "src" / "isthmus" / "binaries").glob("torch_*"):
            record = json.loads((made / binaries.RECORD).read_text(encoding="utf-8"))
            record[binaries.MADE_BY] = isthmus.__version__
            (made / binaries.RECORD).write_text(json.dumps(record) + "\n", encoding="utf-8")
            _move(made, _PACKAGE / "binaries" / made.name)
    return _made()


def _check_tools() -> None:
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise CannotCompile(f"{', '.join(missing)}: not installed; run `pip install {' '.join(missing)}`")
    compiler = os.environ.get("CXX", "").strip() or "c++"
    if shutil.which(compiler.split()[0]) is None:
        raise CannotCompile(f"{compiler}: no such compiler; install g++ >= 11, or set CXX")


def _check_torches() -> None:
    if named := options.text("torch"):
        for folder in named.split(":"):
            if not (Path(folder) / "version.py").is_file():
                raise CannotCompile(
                    f"ISTHMUS_TORCH={named}: {folder}: no PyTorch there; name folders `torch`"
                )


def _run_setup(folder: Path, log: Path) -> None:
    """Compile in place, showing each file; the log keeps all that the tools print."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "ISTHMUS_BUILD": "binaries"}
    if not environment.get("CXX", "").strip():
        environment.pop("CXX", None)
    command = [sys.executable, "-u", "setup.py", "build_ext", "--inplace"]
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # compilers end with it
        )
        assert child.stdout is not None
        try:
            progress.follow(child.stdout, file, sys.stdout)
            status = child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
    if status:
        lines = log.read_text(encoding="utf-8").splitlines()[-_SHOWN:]
        print(*lines, sep="\n", file=sys.stderr)
        raise CannotCompile("the build failed; the last lines of its output are above")


def _move(made: Path, target: Path) -> None:
    """Put a folder in the place of another, which stays whole until then; other builds wait.

    Who may read the package may read its binaries, whatever the umask.
    """
    beside, former = (target.with_name(f".{target.name}{end}") for end in ("", "-former"))
    lock = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for rest in (beside, former):
            shutil.rmtree(rest, ignore_errors=True)
        shutil.copytree(made, beside)
        for path in (beside, *beside.rglob("*")):
            path.chmod(target.parent.stat().st_mode & (0o777 if path.is_dir() else 0o666))
        if target.exists():
            target.rename(former)
        beside.rename(target)
        shutil.rmtree(former, ignore_errors=True)
    finally:
        os.close(lock)


def _made() -> Binaries:
    import torch

    try:
        return binaries.find(torch.__version__)
    except binaries.NotBuilt as error:
        raise CannotCompile(f"{error.problem}; is ISTHMUS_TORCH set to another one?") from None
