"""The lock around builds of C++ extensions: exclusive, with progress, and not left behind by a killed process."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.file_baton import FileBaton

from isthmus.shim import build_lock

BuildLock = build_lock.improve_lock(FileBaton)


def forked(function: Callable[[], object]) -> int:
    """Run the function in a child process; return its id."""
    child = os.fork()
    if child == 0:
        try:
            function()
        finally:
            os._exit(0)
    return child


def hold(kind: type, path: Path, seconds: float) -> None:
    lock = kind(str(path))
    lock.try_acquire()
    time.sleep(seconds)
    lock.release()


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_the_lock_of_a_killed_process_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lock"
    child = forked(lambda: hold(BuildLock, path, 60))
    wait_for(path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not FileBaton(str(path)).try_acquire()
    hold(BuildLock, path, 0)
    assert not path.exists()
    assert capsys.readouterr().err == f"isthmus: removed {path}, the lock of a build that was killed\n"


@pytest.mark.parametrize("kind", [FileBaton, BuildLock])
def test_the_lock_of_a_running_process_is_respected(kind: type, tmp_path: Path) -> None:
    path, begin = tmp_path / "lock", time.monotonic()
    child = forked(lambda: hold(kind, path, 0.3))
    wait_for(path)
    hold(BuildLock, path, 0)
    assert time.monotonic() - begin > 0.3
    os.waitpid(child, 0)


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_lock, "_LOOK", 0.01)

    def build() -> None:
        lock = BuildLock(str(tmp_path / "lock"))
        lock.try_acquire()
        (tmp_path / "building").mkdir()  # fails if another process is here
        time.sleep(0.02)
        (tmp_path / "building").rmdir()
        (tmp_path / f"{os.getpid()}.done").touch()
        lock.release()

    children = [forked(build) for _ in range(4)]
    for child in children:
        os.waitpid(child, 0)
    assert {int(path.stem) for path in tmp_path.glob("*.done")} == set(children)


def test_a_lock_is_released_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process sees the file of a closed lock, which is that of a killed process."""

    def remove(path: str) -> None:
        folder = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        Path(path).unlink()

    lock = BuildLock(str(tmp_path / "lock"))
    lock.try_acquire()
    monkeypatch.setattr(os, "remove", remove)
    lock.release()
    assert not (tmp_path / "lock").exists()


def test_an_unnamed_lock_is_removed_once_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert build_lock._is_held(path)
    os.utime(path, (0, 0))
    assert not build_lock._is_held(path)


def test_a_long_build_is_reported_by_the_first_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_lock, "_QUIET", 0.05)
    hold(BuildLock, tmp_path / "lock", 0.1)
    action = f"isthmus: compiling {tmp_path.name} in {tmp_path}: "
    lines = [f"{action}0 s so far; it may take minutes", f"{action}ended after 0 s"]
    assert capsys.readouterr().err.splitlines() == lines
    monkeypatch.setenv("LOCAL_RANK", "1")
    hold(BuildLock, tmp_path / "lock", 0.1)
    assert capsys.readouterr().err == ""
