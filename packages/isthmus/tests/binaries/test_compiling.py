"""`isthmus build`: where it compiles, and what it says when it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from isthmus import binaries
from isthmus.binaries import compiling
from isthmus_common.pytorch import folder_name

# A build that needs no compiler: it records that it ran, or fails.
SETUP = """\
import os, pathlib, sys
assert os.environ["ISTHMUS_BUILD"] == "binaries" and sys.argv[1:] == ["build_ext", "--inplace"]
print("building 'isthmus.binaries.torch_9_9._C' extension")
print("[1/1] c++ -c /tmp/csrc/core.cpp -o core.o")
if pathlib.Path("csrc/broken").exists():
    sys.exit("core.cpp:1:1: error: no such thing")
folder = pathlib.Path("src/isthmus/binaries/torch_9_9")
folder.mkdir(parents=True)
(folder / "build.json").write_text('{"torch": "9.9.1", "kernels": "DEFAULT"}')
(folder / "_C.so").write_text("new")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with sources and with older binaries."""
    folder = tmp_path / "site" / "lib" / "isthmus"
    (folder / "source" / "csrc").mkdir(parents=True)
    (folder / "source" / "setup.py").write_text(SETUP)
    (folder / "binaries" / "torch_9_9").mkdir(parents=True)
    (folder / "binaries" / "torch_9_9" / "_C.so").write_text("old")
    monkeypatch.setattr(compiling, "_PACKAGE", folder)
    monkeypatch.setattr(binaries, "__file__", str(folder / "binaries" / "__init__.py"))
    monkeypatch.setattr("torch.__version__", "9.9.0")
    return folder


def test_an_installed_package_gets_the_binaries(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compiling.compile_for_installed_torch().torch == "9.9.1"
    assert (package / "binaries" / "torch_9_9" / "_C.so").read_text() == "new"
    assert capsys.readouterr().out == "isthmus: building isthmus.binaries.torch_9_9._C 1/1 core.cpp\n"
    assert [path.name for path in (package / "binaries").iterdir()] == ["torch_9_9"]


def test_a_failed_build_leaves_what_was_there(package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (package / "source" / "csrc" / "broken").touch()
    with pytest.raises(compiling.CannotCompile, match="the build failed"):
        compiling.compile_for_installed_torch()
    assert "core.cpp:1:1: error: no such thing" in capfd.readouterr().err
    assert (package / "binaries" / "torch_9_9" / "_C.so").read_text() == "old"


def test_missing_tools_are_named(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        compiling, "find_spec", lambda name: None if name in ("ninja", "tvm_ffi") else object()
    )
    with pytest.raises(
        compiling.CannotCompile, match="ninja, apache-tvm-ffi: not installed; run `pip install ninja apache"
    ):
        compiling.compile_for_installed_torch()


def test_a_missing_compiler_is_named(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(compiling.CannotCompile, match="no-such-compiler -m64: no such compiler; install g"):
        compiling.compile_for_installed_torch()


@pytest.mark.parametrize("compiler", ["", " "])
def test_an_empty_name_of_the_compiler_is_none(
    package: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert compiling.compile_for_installed_torch().torch == "9.9.1"


def test_a_folder_without_pytorch_is_refused_before_the_build(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_TORCH", "/nonexistent")
    with pytest.raises(compiling.CannotCompile, match="ISTHMUS_TORCH=/nonexistent: /nonexistent: no PyTorch"):
        compiling.compile_for_installed_torch()


def test_binaries_for_another_pytorch_are_no_traceback(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.__version__", "9.8.0")
    with pytest.raises(
        compiling.CannotCompile, match=r"built for PyTorch 9\.9; found 9\.8\.0; is ISTHMUS_TORCH"
    ):
        compiling.compile_for_installed_torch()


def test_who_may_read_the_package_may_read_the_binaries(package: Path) -> None:
    (package / "binaries").chmod(0o755)
    former = os.umask(0o077)
    try:
        compiling.compile_for_installed_torch()
    finally:
        os.umask(former)
    made = package / "binaries" / "torch_9_9"
    assert [oct(path.stat().st_mode & 0o777) for path in (made, made / "_C.so")] == ["0o755", "0o644"]


def test_builds_at_once_wait_for_each_other(package: Path, tmp_path: Path) -> None:
    target = package / "binaries" / "torch_9_9"
    for name in "abcd":
        (tmp_path / name).mkdir()
        for each in range(20):
            (tmp_path / name / str(each)).write_text(name)
    threads = [threading.Thread(target=compiling._move, args=(tmp_path / name, target)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path.read_text() for path in target.iterdir()}) == 1 and len(list(target.iterdir())) == 20
    assert [path.name for path in target.parent.iterdir()] == ["torch_9_9"]


IN_PLACE = """\
import setuptools
from distutils.core import run_setup
command = run_setup("setup.py", ["build_ext", "--inplace"], stop_after="commandline").get_command_obj("build_ext")
command.ensure_finalized()
print(*(command.get_ext_fullpath(each.name) for each in command.extensions), sep="\\n")
"""


def test_the_sources_in_a_wheel_are_compiled_where_the_result_is_looked_for(tmp_path: Path) -> None:
    """They have setup.py and csrc alone, and no pyproject.toml that says where packages are."""
    package = Path(binaries.__file__).parents[3]
    shutil.copy(package / "setup.py", tmp_path)
    (tmp_path / "csrc").symlink_to(package / "csrc")
    found = subprocess.run(
        [sys.executable, "-c", IN_PLACE],
        cwd=tmp_path,
        env={**os.environ, "ISTHMUS_BUILD": "binaries"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-2:]
    folder = tmp_path / "src" / "isthmus" / "binaries" / folder_name(torch.__version__)
    assert [Path(tmp_path / path).parent for path in found] == [folder, folder]
