"""Wheels: for which PyTorch, which machine and which Linux. Building and installing them is `make wheel`'s."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import cross, emulation, torches, wheel
from tools.repository import ASCEND, CORE, ROOT

# Newest versions of manylinux_2_28.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0)}
LIBRARIES = sorted(path for package in (CORE, ASCEND) for path in (package / "src").rglob("*.so"))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="without binutils")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_what_is_compiled_runs_on_glibc_2_28(library: Path) -> None:
    listed = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"\*UND\*.*?\(?\b([A-Z]+)_(\d[\d.]*)\)?\s+(\S+)$", listed, flags=re.MULTILINE)
    assert found
    newer = [
        f"{name}@{family}_{version}"
        for family, version, name in found
        if tuple(map(int, version.split("."))) > NEWEST.get(family, (99,))
    ]
    assert not newer


def test_constraints_of_the_default_are_those_of_the_repository() -> None:
    assert wheel.constraints(wheel.TORCH) == (ROOT / "constraints.txt").read_text()


def test_constraints_of_another_version_pin_it_and_leave_triton_to_it() -> None:
    lines = wheel.constraints("2.15.0").splitlines()
    assert [line for line in lines if re.match("(torch|triton)==", line)] == ["torch==2.15.0"]
    assert any(line.startswith("numpy==") for line in lines)


def test_the_command_line() -> None:
    options = wheel.parse(["--torch", "2.13.0", "--torch", "2.15.0", "python3.11", "python3.12"])
    assert options.torches == ["2.13.0", "2.15.0"]
    assert options.pythons == ["python3.11", "python3.12"]
    assert options.machine == wheel.MACHINE


def test_a_fetched_torch_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torches, "FOLDER", tmp_path)
    folder = tmp_path / "2.15.0-3.12-aarch64"
    assert not torches.has_torch(folder)
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text("__version__ = '2.15.0'\n")
    assert torches.fetch("2.15.0", "3.12", "aarch64") == folder


def test_pip_is_asked_for_another_python_and_machine() -> None:
    words = torches.pip_options("3.12", "aarch64")
    assert words[words.index("--python-version") + 1] == "3.12"
    assert {"manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"} < set(words)
    assert "manylinux_2_35_aarch64" not in words


def test_a_python_builds_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross, "programs", lambda machine: {"CC": "cc", "CXX": "c++"})
    variables = cross.variables(Path(sys.executable), tmp_path, "aarch64")
    code = (
        "import json, sysconfig;"
        "print(json.dumps([sysconfig.get_platform(), *map(sysconfig.get_config_var, ('EXT_SUFFIX', 'LDSHARED'))]))"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env=variables, check=True, capture_output=True, text=True).stdout
    platform, suffix, linker = json.loads(said)
    assert platform == "linux-aarch64"
    assert suffix.endswith("-aarch64-linux-gnu.so")
    assert linker.startswith("aarch64-linux-gnu-g")


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SystemExit, match=r"aarch64-linux-gnu-g\+\+: .* `apt-get install g\+\+-aarch64-linux-gnu`"
    ):
        cross.programs("aarch64")
    with pytest.raises(
        SystemExit, match=r"qemu-aarch64-static .* `apt-get install qemu-user-static apt dpkg`"
    ):
        emulation.check_programs("aarch64")


def test_wheels_of_a_python_that_debian_lacks_are_not_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "isthmus-0.1.0-cp312-cp312-manylinux_2_28_aarch64.whl"
    made.write_bytes(b"")
    emulation.check([made], ["2.13.0"], "aarch64")
    assert "not tested" in capsys.readouterr().out
