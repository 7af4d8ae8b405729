"""File modes, and atomic writes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus_common.files import make_file, make_folder, private_folder, write_file


@pytest.fixture(params=[0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: None) -> None:
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    make_file(folder / "empty")
    write_file(folder / "full", b"text")
    assert [mode(each) for each in (folder.parent, folder)] == [0o750, 0o750]
    assert [mode(each) for each in sorted(folder.iterdir())] == [0o640, 0o640]


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    make_folder(tmp_path)
    assert mode(tmp_path) == 0o700
    file = tmp_path / "file"
    file.write_bytes(b"text")
    file.chmod(0o600)
    make_file(file)
    assert (mode(file), file.read_bytes()) == (0o600, b"text")


def test_the_digest_of_the_written_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"abc", [b"a", memoryview(b"bc")]):
        assert write_file(path, data) == hashlib.sha256(b"abc").hexdigest()
        assert path.read_bytes() == b"abc"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    """Likewise a device: ``-o /dev/null`` as root would otherwise replace it by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert write_file(pipe, b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert os.read(reader, 10) == b"abc"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and mode(pipe) == 0o600


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    path = tmp_path / "file"
    write_file(path, b"old")
    with pytest.raises(ValueError, match="no more"):
        write_file(path, chunks())
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("has_runtime", [False, True])
def test_without_a_private_folder_the_error_names_the_first_temporary_one(
    tmp_path: Path, has_runtime: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As packages/isthmus/csrc/drivers/host/ledger.cpp does."""
    (tmp_path / "isthmus").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path) if has_runtime else "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    first = tmp_path / f"isthmus-{os.geteuid()}"
    first.touch()
    for number in range(1, 100):
        first.with_name(f"{first.name}-{number}").touch()
    with pytest.raises(OSError, match="not a folder that you own with mode 0700") as caught:
        private_folder()
    assert caught.value.filename == str(first)
    first.with_name(f"{first.name}-99").unlink()
    assert private_folder().name == f"{first.name}-99"
