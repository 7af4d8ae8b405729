"""isthmus ascend run, exec, env and info."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isthmus_ascend.affected import AFFECTED
from isthmus_ascend.cann_version import DEFAULT, version_files
from isthmus_ascend.coverage import describe_missing, implemented_functions
from isthmus_ascend.environment import COMMANDS, HOME, LIBRARIES, PYTHON
from isthmus_ascend.environment import operators as operators_folder
from tests.helpers import children
from tests.helpers.children import ROOT
from tools.ascend.affected import callers, operators


def isthmus(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return children.command("ascend", *arguments, timeout=60, **{"PYTHONPATH": str(ROOT), **environment})


def shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which `env` prints the path of set_env.sh."""
    command = [sys.executable, "-m", "isthmus", "ascend", "env"]
    text = f"set -eu; env() {{ {shlex.join(command)}; }}; {script}"
    return subprocess.run(
        ["bash", "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_environment_of_a_shell(tmp_path: Path) -> None:
    found = shell(
        'source "$(env)"; echo "$ASCEND_HOME_PATH:$LD_LIBRARY_PATH"; echo "$PYTHONPATH"; command -v npu-smi',
        LD_LIBRARY_PATH="/a:/b",
        XDG_CACHE_HOME=str(tmp_path),
    )
    pytorch = Path(torch.__file__).parent / "lib"
    assert found.stdout.splitlines() == [
        f"{HOME}:{LIBRARIES}:{operators_folder()}:{pytorch}:/a:/b",
        f"{PYTHON}:{ROOT}",
        str(COMMANDS / "npu-smi"),
    ], found.stderr


def test_set_env_is_sourced_not_executed(tmp_path: Path) -> None:
    ended = shell('sh -euc ". $(env)" && "$(env)"', XDG_CACHE_HOME=str(tmp_path))
    assert ended.returncode == 2 and "set_env.sh sets variables of the shell: source /" in ended.stderr


def test_version_of_cann_is_an_option(tmp_path: Path) -> None:
    environment = {"ISTHMUS_ASCEND_CANN_VERSION": "8.5.0", "XDG_CACHE_HOME": str(tmp_path)}
    code = """
import ctypes, os, pathlib, re
home = pathlib.Path(os.environ["ASCEND_HOME_PATH"])
print(re.findall(r"toolkit_installed_version=\\[([^:]+):", (home / "version.cfg").read_text()))
print((home / f"{os.uname().machine}-linux/ascend_toolkit_install.info").read_text().splitlines()[1])
print((home / "opp/version.info").read_text().splitlines()[0], (home / "lib64/libascendcl.so").exists())
version = ctypes.create_string_buffer(512)
ctypes.CDLL("libascendcl.so").aclsysGetCANNVersion(0, version)
print(version.value.decode())
"""
    found = isthmus("run", "-c", code, **environment).stdout.splitlines()
    assert found == ["['8.5.0']", "version=8.5.0", "Version=8.5.0 True", "8.5.0"]
    wrong = isthmus("run", "-c", "0", ISTHMUS_ASCEND_CANN_VERSION="latest")
    assert wrong.returncode == 1 and wrong.stderr.startswith(
        "isthmus: ISTHMUS_ASCEND_CANN_VERSION=latest: not a release of CANN; expected a number such as"
    )


def test_files_name_the_default_version() -> None:
    for name, text in version_files(DEFAULT).items():
        assert (HOME / name).read_text() == text


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_programs_are_linked_with_the_library(tmp_path: Path) -> None:
    (tmp_path / "soc.c").write_text(
        "#include <stdio.h>\nconst char* aclrtGetSocName(void);\nint main() { puts(aclrtGetSocName()); }\n"
    )
    script = f"cc {tmp_path}/soc.c -lascendcl -o {tmp_path}/soc && {tmp_path}/soc"
    assert isthmus("exec", "--", "sh", "-c", script).stdout == "Ascend910B2\n"
    script = f"cc {tmp_path}/soc.c -L$ASCEND_HOME_PATH/lib64 -lascendcl -o {tmp_path}/soc"  # as MindSpeed
    assert isthmus("exec", "sh", "-c", script).returncode == 0


def test_run_passes_options_and_status_on(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys; print(sys.argv[1:], os.environ['ISTHMUS_ASCEND_DEVICES']); sys.exit(3)"
    )
    ended = isthmus("run", "--devices", "5", str(script), "--nproc", "9", "-m")
    assert (ended.stdout, ended.returncode) == ("['--nproc', '9', '-m'] 5\n", 3)


def test_run_starts_a_module_or_code() -> None:
    assert isthmus("run", "-m", "platform", "--terse").stdout
    assert isthmus("run", "-c", "import sys; print(sys.argv)", "-x").stdout == "['-c', '-x']\n"


def test_exec_starts_a_command() -> None:
    assert isthmus("exec", "--", "printenv", "ASCEND_HOME_PATH").stdout == f"{HOME}\n"
    assert isthmus("exec", "--devices", "3", "printenv", "ISTHMUS_ASCEND_DEVICES").stdout == "3\n"
    assert isthmus("exec", "msprof", "--help").stdout.startswith("Usage: msprof --export=on")


def test_what_cannot_be_started_is_refused() -> None:
    ended = isthmus("exec", "no-such-command")
    assert (ended.returncode, ended.stderr) == (2, "isthmus: no such command: no-such-command\n")
    ended = isthmus("run", "pytest", "tests")
    assert ended.returncode == 2
    assert ended.stderr == (
        "isthmus: not a script.py, -m module or -c code: pytest; for a command use "
        "`isthmus ascend exec -- pytest tests`\n"
    )
    assert (
        isthmus("run", "--nproc", "2", "-c", "0").stderr == "isthmus: --nproc runs a script.py or -m module\n"
    )


def test_errors_of_the_system_take_one_line(tmp_path: Path) -> None:
    program = tmp_path / "with space"
    program.write_text("no program\n")
    program.chmod(0o755)
    for arguments, shell in ((("exec", str(program)), "/bin/sh"), (("shell",), "/no/such/shell")):
        ended = isthmus(*arguments, SHELL=shell)
        last = ended.stderr.splitlines()[-1]
        assert ended.returncode == 2 and last.startswith("isthmus: cannot start /"), ended.stderr
    for option in (("--devices", "-1"), ("--nproc", "-1")):
        assert isthmus("run", *option, "-c", "0").returncode == 2
    for name in ("run", "exec"):
        assert "no such option: --flood; options stand first" in isthmus(name, "--flood", "x.py").stderr


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
    assert "npu-smi: unknown command: flood" in ended.stderr


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
