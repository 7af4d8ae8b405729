"""isthmus ascend run, env and info."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from isthmus_ascend.affected import AFFECTED
from isthmus_ascend.coverage import describe_missing, implemented_functions
from isthmus_ascend.environment import HOME, LIBRARIES
from isthmus_ascend.environment import operators as operators_folder
from isthmus_ascend.info import Npu, table
from tests.helpers import children
from tests.helpers.children import ROOT
from tools.ascend.affected import callers, operators


def isthmus(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return children.command("ascend", *arguments, timeout=60, **{"PYTHONPATH": str(ROOT), **environment})


def test_environment_of_a_shell() -> None:
    script = 'eval "$("$@")"; echo "$ASCEND_HOME_PATH:$LD_LIBRARY_PATH"'
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "isthmus", "ascend", "env"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": "/a:/b"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    pytorch = Path(torch.__file__).parent / "lib"
    assert printed == f"{HOME}:{LIBRARIES}:{operators_folder()}:{pytorch}:/a:/b\n"


def test_run_passes_options_and_status_on(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys; print(sys.argv[1:], os.environ['ISTHMUS_ASCEND_DEVICES']); sys.exit(3)"
    )
    ended = isthmus("run", "--devices", "5", str(script), "--nproc", "9", "-m")
    assert (ended.stdout, ended.returncode) == ("['--nproc', '9', '-m'] 5\n", 3)


def test_run_starts_a_module_code_or_a_command() -> None:
    assert isthmus("run", "-m", "platform", "--terse").stdout
    assert isthmus("run", "-c", "import sys; print(sys.argv)", "-x").stdout == "['-c', '-x']\n"
    assert isthmus("run", "printenv", "ASCEND_HOME_PATH").stdout == f"{HOME}\n"


def test_run_refuses_what_it_cannot_start() -> None:
    ended = isthmus("run", "no-such-command")
    assert (ended.returncode, ended.stderr) == (2, "isthmus: no such command or script: no-such-command\n")
    assert (
        isthmus("run", "--nproc", "2", "printenv").stderr
        == "isthmus: --nproc runs a script.py or -m module\n"
    )


def test_errors_of_the_system_take_one_line(tmp_path: Path) -> None:
    program = tmp_path / "with space"
    program.write_text("no program\n")
    program.chmod(0o755)
    for arguments, shell in ((("run", str(program)), "/bin/sh"), (("shell",), "/no/such/shell")):
        ended = isthmus(*arguments, SHELL=shell)
        last = ended.stderr.splitlines()[-1]
        assert ended.returncode == 2 and last.startswith("isthmus: cannot start /"), ended.stderr
    for option in (("--devices", "-1"), ("--nproc", "-1")):
        assert isthmus("run", *option, "-c", "0").returncode == 2
    assert "no such option: --flood; options stand first" in isthmus("run", "--flood", "x.py").stderr


def test_fault_sets_the_variable() -> None:
    code = "import os; print(os.environ['ISTHMUS_ASCEND_FAULT'])"
    arguments = ("--call", "7", "--function", "aclrtMemcpy", "ecc", "-c", code)
    assert isthmus("fault", *arguments).stdout == "ecc:7:aclrtMemcpy\n"
    assert isthmus("fault", "oom", "-c", code).stdout == "oom:1\n"
    assert isthmus("fault", "flood", "-c", code).returncode == 2


def test_a_shell_has_npu_smi() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "isthmus", "ascend", "shell"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHELL": "/bin/sh", "ISTHMUS_ASCEND_DEVICES": "1"},
        input="npu-smi info && npu-smi flood",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "910B2" in ended.stdout
    assert "npu-smi: unknown arguments: flood" in ended.stderr


def test_coverage_needs_torch_npu() -> None:
    ended = isthmus("coverage")
    assert (ended.returncode, "torch_npu is not installed" in ended.stderr) == (1, True)


def test_missing_functions_name_the_operators_that_call_them() -> None:
    assert (
        describe_missing("SparseFlashAttention")
        == "aclnnSparseFlashAttention  npu::npu_sparse_flash_attention"
    )
    assert describe_missing("Nothing") == "aclnnNothing"
    present = implemented_functions()
    assert [name for name in AFFECTED if name in present] == []


def test_calls_are_found_by_way_of_functions_of_the_file() -> None:
    yaml = """official:
  - func: lstm.input(Tensor input) -> Tensor
  - func: lstm.data(Tensor data) -> Tensor
custom:
  - func: npu_a(Tensor x) -> Tensor
    gen_opapi:
      exec: aclnnA, x, out
"""
    known, direct = operators(yaml)
    assert known == {"lstm": "aten::lstm", "npu_a": "npu::npu_a"} and direct == {"A": {"npu::npu_a"}}
    source = """namespace op_api {
at::Tensor helper(
    const at::Tensor& x) {
  EXEC_NPU_CMD(aclnnB, x);
}
at::Tensor lstm(const at::Tensor& x) { return helper(x); }
at::Tensor other(const at::Tensor& x) { EXEC_NPU_CMD(aclnnC, x); }
}
"""
    assert callers(source, known) == {"B": {"aten::lstm"}}


def test_info_has_a_row_for_each_npu() -> None:
    ended = isthmus("info", ISTHMUS_ASCEND_DEVICES="3", ISTHMUS_ASCEND_MEMORY="2GiB")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert [line[2] for line in lines if "910B2" in line] == ["0", "1", "2"]
    assert len(re.findall(r"\d+ +/ 2048 ", ended.stdout)) == 3  # other processes may use the devices
    assert len({len(line) for line in lines}) == 1


def test_table_is_laid_out_as_npu_smi() -> None:
    lines = table([Npu(7, "910B1", 68, 64114 << 20, 65536 << 20)], "1").splitlines()
    assert lines[6:] == [
        "| 7     910B1               | OK            | -           -                 0    / 0             |",
        "| 0                         | -             | 68          0    / 0          64114/ 65536         |",
        "+===========================+===============+====================================================+",
    ]
