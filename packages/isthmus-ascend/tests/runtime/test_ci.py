"""The workflow of docs/guides/ascend-ci.md, run in a project with NPU tests."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from tests.helpers.children import ROOT
from tests.runtime.test_torch_npu import FOLDER, needs_torch_npu
from tools.repository import ASCEND, CORE

PAGE = (ROOT / "docs/guides/ascend-ci.md").read_text()
STEPS = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])["jobs"]["npu"]["steps"]
COMMANDS = [step["run"] for step in STEPS if "run" in step]
PROJECT = {
    "tests/npu/conftest.py": re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0],
    "tests/npu/test_model.py": """
import torch, torch_npu

def test_add():
    assert (torch.ones(3, device="npu") + 1).tolist() == [2.0] * 3

def test_not_implemented():
    x, factor = torch.rand(4, 16, 16, device="npu").half(), torch.rand(16, 16, device="npu").half()
    torch_npu.npu_kronecker_quant(x, factor, factor)
""",
    "tests/npu_ranks/test_reduce.py": """
import torch, torch_npu
import torch.distributed as dist

def test_all_reduce():
    dist.init_process_group("hccl")
    torch.npu.set_device(dist.get_rank())
    one = torch.ones(3, device="npu")
    dist.all_reduce(one)
    assert one.tolist() == [2.0] * 3
    dist.destroy_process_group()
""",
}


def test_what_is_installed_is_what_the_extra_wants() -> None:
    core, ascend = (
        tomllib.loads((package / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for package in (CORE, ASCEND)
    )
    words = [word for command in COMMANDS if command.startswith("pip ") for word in shlex.split(command)]
    (torch,) = map(Requirement, core["torch"])
    (version,) = {word.removeprefix("torch==") for word in words if word.startswith("torch==")}
    assert torch.specifier.contains(version) and "isthmus-ascend[torch-npu]" in words
    (plugin,) = map(Requirement, ascend["torch-npu"])
    assert plugin.name == "torch-npu" and plugin.specifier.contains(version)


@needs_torch_npu
def test_the_workflow_runs_the_tests_of_a_project(tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("isthmus", "pytest"):  # executables of this checkout
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), str(ROOT)]),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
    }
    printed = ""
    for command in COMMANDS:
        if not command.startswith("pip "):
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command],
                env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stdout + ended.stderr
            printed += ended.stdout
    assert printed.count("1 passed, 1 skipped") == 1, printed
    # A pass on each rank; Python warns of the wheel's strings where it has not compiled its modules before.
    assert len(re.findall(r"1 passed(?:, \d+ warnings?)? in", printed)) == 2
