"""`import torch` where torch_npu is installed, outside of ``isthmus ascend run``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.doctor import environment
from isthmus_ascend.environment import LIBRARIES, variables
from tests.helpers.children import ROOT
from tests.runtime.test_torch_npu import FOLDER, needs_torch_npu
from tools.repository import ASCEND


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where torch_npu is installed."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FOLDER)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@needs_torch_npu
@pytest.mark.parametrize("first", ["torch", "torch_npu"])
def test_import_with_what_a_wheel_runs_at_start(first: str, tmp_path: Path) -> None:
    (line,) = [line for line in (ASCEND / "setup.py").read_text().splitlines() if "preload.install()" in line]
    (tmp_path / "isthmus-ascend.pth").write_text(line.split('"')[1].removesuffix("\\n") + "\n")
    start = f"import site; site.addsitedir({str(tmp_path)!r})"
    code = "print((torch.ones(3, device='npu') + 1).tolist(), acl.rt.get_device())"
    ended = python("-c", f"{start}\nimport {first}, torch, acl; {code}")
    assert ended.stdout == "[2.0, 2.0, 2.0] (0, 0)\n", ended.stderr


@needs_torch_npu
def test_doctor_says_that_import_torch_fails() -> None:
    code = "from isthmus.doctor import plugins; print(*plugins.examine(), sep='\\n')"
    ended = python("-c", code)
    (failure,) = [line for line in ended.stdout.splitlines() if "State.FAIL" in line]
    assert "breaks `import torch`: ImportError: libhccl.so" in failure and "`isthmus ascend run`" in failure


def test_doctor_knows_the_variables_of_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for release in ({}, {"ISTHMUS_ASCEND_CANN_VERSION": "8.5.0"}):
        assert list(environment.judge(variables(release))) == []


def test_preloaded_libraries_find_the_functions_that_they_wrap() -> None:
    # dlsym(RTLD_NEXT) of a preloaded library searches what CDLL(None) does.
    code = f"import ctypes; ctypes.CDLL({str(LIBRARIES / 'libascendcl.so')!r}); ctypes.CDLL(None).aclrtMallocAlign32"
    ended = python("-c", code)
    assert ended.returncode == 0, ended.stderr
