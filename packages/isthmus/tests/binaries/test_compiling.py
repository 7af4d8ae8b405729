"""`isthmus build`: where it compiles, and what it says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus import binaries
from isthmus.binaries import compiling

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
