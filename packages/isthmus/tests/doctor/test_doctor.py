"""``isthmus doctor`` in environments that are broken on purpose."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus import doctor, drivers
from isthmus.doctor import (
    chip,
    environment,
    imports,
    libraries,
    permissions,
    plugins,
    report,
    requirements,
    versions,
)
from isthmus_common import children, folders, hardening, limits
from isthmus_common.finding import State, describe, fail, ok, run_check, warning
from tests.helpers.native import compile_text

Report = list[dict[str, str]]


def full(**variables: str) -> tuple[int, Report]:
    """Run doctor; return status and findings, all with a remedy unless ok."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS_")}
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.doctor", "--json"],
        env={**kept, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    findings: Report = json.loads(done.stdout)
    assert all(finding["remedy"] for finding in findings if finding["state"] != "ok")
    return done.returncode, findings


def failures(findings: Report) -> dict[str, str]:
    return {finding["subject"]: finding["text"] for finding in findings if finding["state"] == "fail"}


def in_shell(command: str, check: str) -> Report:
    """Return the findings of a check in a process started by a shell command."""
    module = check.partition(".")[0]
    package = "isthmus_common" if module == "limits" else "isthmus.doctor"
    code = f"import json\nfrom {package} import {module}\nprint(json.dumps([f._asdict() for f in {check}()]))"
    words = ["sh", "-c", f'{command} "$@"', "sh", sys.executable, "-c", code]
    found: Report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return found


def install(folder: Path, name: str, version: str, record: str = "", **files: str) -> Path:
    """The metadata of a distribution, as pip leaves it."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{files.pop('requires', '')}"
    for file, text in {"METADATA": metadata, "RECORD": record, **files}.items():
        (place / file).write_text(text)
    return place


# ---- the report


def test_only_a_failure_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [ok("a", "sound"), warning("b", "odd", "look")]
    monkeypatch.setattr(report, "examine", lambda: findings)
    assert report.main(False) == 0
    assert capsys.readouterr().out == "ok    a            sound\nwarn  b            odd; look\n"
    findings.append(fail("c", "broken", "fix it"))
    assert report.main(True) == 1
    assert json.loads(capsys.readouterr().out)[2] == {
        "subject": "c", "state": "fail", "text": "broken", "remedy": "fix it",
    }  # fmt: skip


def test_a_check_that_raises_keeps_what_it_found() -> None:
    def check() -> Any:
        yield ok("x", "first")
        raise OSError("no such thing\nmore") from ValueError("the cause")

    first, second = run_check(check, "x")
    assert first == ok("x", "first")
    assert second.state is State.FAIL and second.text == "OSError: no such thing <- ValueError: the cause"
    assert describe(KeyError()) == "KeyError"
    assert run_check(check, "x", "look there")[1].remedy == "look there"


def test_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    monkeypatch.setattr(doctor, "_checks", lambda: {"x": lambda: iter([ok("x", "seen")])})
    assert doctor.examine() == [ok("x", "seen")]


# ---- children


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a module with a function of the given body; return its name for children.run()."""

    def write(body: str) -> str:
        (tmp_path / "doctor_target.py").write_text(
            f"import os, signal, sys, time\ndef run(*words):\n{body}\n"
        )
        return "doctor_target:run"

    monkeypatch.syspath_prepend(tmp_path)
    return write


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        ("print('noise')", ""),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("time.sleep(600)", "timed out after 2 s"),
        ("sys.exit('stopped')", "status 1: stopped"),
        ("os._exit(3)", "status 3: noise"),
        ("raise OSError('no memory')", "status 1: OSError: no memory"),
    ],
)
def test_how_a_child_ends(target: Any, last: str, problem: str) -> None:
    name = target(f"    print('noise')\n    yield {{'words': words}}\n    {last}\n")
    assert children.run(name, "a", "b", limit_s=2) == children.Outcome([{"words": ["a", "b"]}], problem)


def test_a_busy_machine_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    limits_s = []
    for load in (0.5, 12.0, 4000.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        limits_s.append(children.limit())
    assert limits_s == [60, 180, 600]


# ---- libraries


def test_half_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole.py").touch()
    install(tmp_path, "halfway", "1.0", "whole.py,,\nhalfway/__init__.py,,\nhalfway/gone.pyc,,\n")
    install(tmp_path, "slimmed", "1.0", "slimmed/tests/data.txt,,\n")
    install(tmp_path, "twice", "1.0")
    install(tmp_path, "twice", "2.0")
    (tmp_path / "broken-3.0.dist-info").mkdir()
    (tmp_path / "~orch").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    found = {finding.text: finding for finding in libraries.examine()}
    assert {text: finding.state.value for text, finding in found.items()} == {
        f"{tmp_path}/~orch is left over from an interrupted installation": "warning",
        f"{tmp_path}/broken-3.0.dist-info has no METADATA: its installation was interrupted": "fail",
        f"halfway 1.0: 1 of 2 files are missing, such as {tmp_path}/halfway/__init__.py": "fail",
        f"slimmed 1.0: 1 of 1 files are missing, such as {tmp_path}/slimmed/tests/data.txt": "warning",
        f"{tmp_path} has several versions of twice: 1.0, 2.0": "fail",
    }
    halfway = next(finding for text, finding in found.items() if text.startswith("halfway"))
    assert halfway.remedy == "`pip install --force-reinstall --no-deps halfway==1.0`"


def test_a_folder_that_hides_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = libraries.examine()
    assert found.state is State.WARNING and found.text.startswith(f"torch in {tmp_path} hides the one in ")


def test_metadata_and_module_of_one_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = (
        libraries.Library("doctor-metadata", "doctor_metadata"),
        libraries.Library("doctor-module", "doctor_module"),
        libraries.Library("doctor-neither", "doctor_neither"),
    )
    install(tmp_path, "doctor-metadata", "1.0")
    (tmp_path / "doctor_module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(libraries, "LIBRARIES", extra)
    first, second = libraries.examine()
    assert first.text == "doctor-metadata 1.0 is installed, but module doctor_metadata does not exist"
    assert first.state is State.FAIL
    assert second.state is State.WARNING and second.text.startswith("doctor_module is at ")


def test_imports_that_fail_and_imports_that_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "doctor_a": "",
        "doctor_b": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ImportError('no libfoo') from e",
        "doctor_c": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "doctor_d": "import sys\nsys.exit(4)",
        "doctor_e": "",
        "doctor_f": "raise ImportError('not to be imported')",
    }
    for module, text in sources.items():
        (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = [libraries.Library(name, name, heavy=name == "doctor_f") for name in sources]
    monkeypatch.setattr(imports, "LIBRARIES", found)
    sound, heavy, *failed = imports.without_torch()
    assert sound.text.startswith("doctor_a, doctor_e (")
    assert heavy.text == "doctor_f: installed; not imported, which takes seconds"
    assert [finding.text for finding in failed] == [
        "`import doctor_b` fails: ImportError: no libfoo <- ZeroDivisionError: division by zero",
        "`import doctor_c` fails: killed by SIGSEGV",
        "`import doctor_d` fails: SystemExit: 4",
    ]


# ---- versions


@pytest.mark.parametrize(
    ("version", "wanted", "within"),
    [
        ("3.7.1", "==3.7.1", True),
        ("3.7", "==3.7.0", True),
        ("3.7.10", "==3.7.1", False),
        ("2.13.0+cpu", ">=2.13", True),
        ("0.16.1", "<0.17,>=0.16.1", True),
        ("0.17.0rc1", "<0.17,>=0.16.1", False),
        ("0.9", ">=0.16", False),
    ],
)
def test_version_bounds(version: str, wanted: str, within: bool) -> None:
    assert versions.is_within(version, wanted) is within


def test_incompatible_versions(tmp_path: Path) -> None:
    install(tmp_path, "accelerate", "0.20.0")
    install(tmp_path, "torch_npu", "2.1.0")
    found = in_shell(f"PYTHONPATH={tmp_path}", "versions.examine")
    texts = {finding["text"]: finding for finding in found}
    assert (
        texts["accelerate 0.20.0; Isthmus was written for >=1.10"]["remedy"]
        == "`pip install 'accelerate>=1.10'`"
    )
    assert any(text.startswith("torch_npu 2.1.0 is for another PyTorch than 2.1") for text in texts)


def test_requirements_that_are_not_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requires = (
        "doctor-no-such-package>=2",
        "pytest (<1)",
        "doctor-only-elsewhere; sys_platform == 'elsewhere'",
        "doctor-extra; extra == 'all'",
        "pytest>=7",
    )
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    install(tmp_path, "doctor_probe", "1.0", requires=lines)
    install(tmp_path, "torch", "2.13.0", requires="Requires-Dist: doctor-no-such-package\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = {finding.text: finding for finding in requirements.examine()}
    mine = [text for text in found if text.startswith("doctor-probe 1.0 ")]
    absent, other = mine
    assert absent == "doctor-probe 1.0 requires doctor-no-such-package, which is not installed"
    assert found[absent].state is State.WARNING
    assert found[absent].remedy == "`pip install 'doctor-no-such-package'`"
    assert other == f"doctor-probe 1.0 has requirement pytest<1, but you have pytest {pytest.__version__}"
    assert found[other].remedy == "`pip install 'pytest<1'`"
    assert found["torch 2.13.0 requires doctor-no-such-package, which is not installed"].state is State.FAIL


def test_requirements_are_not_checked_without_packaging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    (found,) = requirements.examine()
    assert found.state is State.WARNING and found.text.startswith("not checked: ")
    assert found.remedy == "`pip install packaging`"


# ---- environment variables


def test_variables_without_contradiction() -> None:
    assert list(environment.judge({})) == []
    ranks = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "2"}
    sound = {**ranks, "OMP_NUM_THREADS": "1", "http_proxy": "http://proxy:80", "no_proxy": "localhost"}
    assert list(environment.judge(sound)) == []
    divided = "max_split_size_mb:512, roundup_power2_divisions:[256:1,512:2,>:4]"
    alike = {"PYTORCH_ALLOC_CONF": divided, "PYTORCH_CUDA_ALLOC_CONF": divided}
    assert list(environment.judge(alike)) == []


@pytest.mark.parametrize(
    ("variables", "state", "text"),
    [
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, "warning", "`import torch` loads no plugin"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "warning", "CUDA_VISIBLE_DEVICES=0,1 selects chips under"),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, "warning", "NCCL_SOCKET_IFNAME=eth0 is read by NCCL only"),
        (
            {"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "a:2"},
            "warning",
            "the chip's allocator reads PYTORCH_ALLOC_CONF",
        ),
        ({"OMP_NUM_THREADS": "all"}, "fail", "OMP_NUM_THREADS=all is not a number of threads"),
        ({"OMP_NUM_THREADS": "100000"}, "warning", "the threads wait for each other"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "warning", "MASTER_ADDR, MASTER_PORT not: init_process_group()"),
        (
            {"MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": "2", "WORLD_SIZE": "2"},
            "fail",
            "RANK=2 is not below WORLD_SIZE=2",
        ),
        (
            {"MASTER_ADDR": "a", "MASTER_PORT": "http", "RANK": "0", "WORLD_SIZE": "2"},
            "fail",
            "MASTER_PORT=http is not a number",
        ),
        (
            {"MASTER_ADDR": "a", "MASTER_PORT": "99999", "RANK": "0", "WORLD_SIZE": "2"},
            "fail",
            "MASTER_PORT=99999 is not a port number",
        ),
        ({"MASTER_ADDR": "a", "MASTER_PORT": "0"}, "fail", "MASTER_PORT=0 is not a port number"),
        ({"LOCAL_RANK": "abc"}, "fail", "LOCAL_RANK=abc is not a number"),
        ({"LOCAL_RANK": "\xb2"}, "fail", "LOCAL_RANK=\xb2 is not a number"),
        (
            {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"},
            "fail",
            "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2",
        ),
        ({"PYTORCH_ALLOC_CONF": "garbage"}, "fail", "'garbage' is not an allocator option"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "a:1,b:"}, "fail", "'b:' is not an allocator option"),
        ({"TMPDIR": "/no/such"}, "fail", "TMPDIR=/no/such: no such folder"),
        ({"LD_PRELOAD": "/no/such.so libm.so.6"}, "warning", "LD_PRELOAD: /no/such.so: no such file"),
        ({"PYTHONPATH": "/no/such:/usr"}, "warning", "PYTHONPATH: /no/such: no such file"),
        ({"LD_LIBRARY_PATH": "/usr:"}, "warning", "LD_LIBRARY_PATH has an empty entry"),
        ({"https_proxy": "http://proxy:80"}, "warning", "https_proxy without localhost in no_proxy"),
    ],
)
def test_contradictory_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], state: str, text: str
) -> None:
    monkeypatch.setattr(environment, "has_cuda", lambda: False)
    (found,) = environment.judge(variables)
    assert found.state.value == state and text in found.text and found.remedy


def test_cuda_variables_where_cuda_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_cuda", lambda: True)
    assert list(environment.judge({"CUDA_VISIBLE_DEVICES": "0", "NCCL_SOCKET_IFNAME": "eth0"})) == []
    (found,) = environment.judge({"CUDA_VISIBLE_DEVICES": ""})
    assert "every CUDA device is hidden" in found.text


def test_libraries_of_another_installation(tmp_path: Path) -> None:
    for folder, library in (
        ("old", "libascendcl.so"),
        ("other", "libtorch_cpu.so"),
        ("torch/lib", "libtorch.so"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / library).touch()
    path = ":".join(str(tmp_path / folder) for folder in ("old", "other", "torch/lib"))
    torch, ascend = environment.judge({"LD_LIBRARY_PATH": path, "ASCEND_HOME_PATH": str(tmp_path / "new")})
    assert torch.state is State.FAIL and f"libtorch_cpu.so in {tmp_path}/other" in torch.text
    assert ascend.state is State.WARNING and f"in {tmp_path}/old, but ASCEND_HOME_PATH is" in ascend.text


def test_a_cuda_runtime_that_pytorch_is_not_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda: Optional[str] = '12.8'\n")
    monkeypatch.syspath_prepend(tmp_path)
    for version in ("11.8", "12.4"):
        folder = tmp_path / version
        folder.mkdir()
        (folder / f"libcudart.so.{version}").touch()
    (found,) = environment.judge({"LD_LIBRARY_PATH": f"{tmp_path}/11.8:{tmp_path}/12.4"})
    text = f"LD_LIBRARY_PATH: {tmp_path}/11.8 has a libcudart.so.11.8, PyTorch is built for CUDA 12"
    assert (found.state, found.text) == (State.WARNING, text)


# ---- drivers


def test_a_device_whose_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "driver npu: a device /dev/npu0 exists, but libnpu.so is in no folder of LD_LIBRARY_PATH; run `source x`"
    monkeypatch.setattr(drivers, "unready_drivers", lambda: [line])
    (found,) = chip._unready_drivers()
    assert (found.state, found.remedy) == (State.WARNING, "run `source x`")
    assert found.text == line.partition("; ")[0]


# ---- limits


def test_limits_of_a_shell() -> None:
    found = in_shell("ulimit -n 256; ulimit -v 8388608;", "limits.examine")
    warned = {f["text"].partition(" (")[0]: f["remedy"] for f in found if "may not be enough" in f["text"]}
    administrator = "in /etc/security/limits.conf, or with the container's --ulimit"
    assert warned == {
        "256 open files": f"allow 4096 {administrator}",
        "8388608 KiB of address space": f"allow 268435456 {administrator}",
    }


def test_a_limit_that_may_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    found = limits._limit(limits._LIMITS[1])
    assert found.state is State.WARNING and found.remedy == "`ulimit -n 4096` before the job"


def test_addresses_that_are_not_randomised(tmp_path: Path) -> None:
    if shutil.which("setarch"):
        (found,) = [f for f in in_shell("setarch -R", "limits.examine") if f["subject"] == "aslr"]
        assert found["state"] == "warning" and "of this process are not randomised" in found["text"]
    switch = tmp_path / "proc/sys/kernel/randomize_va_space"
    switch.parent.mkdir(parents=True)
    switch.write_text("1\n")
    assert "kernel.randomize_va_space is 1" in next(hardening.random_addresses(tmp_path)).text


def write_group(root: Path, group: str, **files: str) -> None:
    (root / "sys/fs/cgroup" / group).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / "sys/fs/cgroup" / group / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system of 16 CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def test_control_groups_of_version_2(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/job/step\n")
    write_group(system, "job", memory__max="1073741824", pids__max="512", cpu__max="250000 100000")
    write_group(system, "job/step", memory__max="max", pids__max="max", cpu__max="max 100000")
    memory, processes, cpus = limits._control_group(system)
    assert memory.state is State.WARNING and "allows 1.0 GiB of memory" in memory.text
    assert "allows 512 processes and threads" in processes.text
    assert cpus.text.startswith("16 CPUs; the control group allows 2.5: PyTorch starts 16 threads")
    assert cpus.remedy == "OMP_NUM_THREADS=2"


def test_control_groups_of_version_1(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("4:memory:/job\n1:cpu:/job\n0::/\n")
    write_group(system, "memory/job", memory__limit_in_bytes="8589934592")
    write_group(system, "memory", memory__limit_in_bytes="9223372036854771712")
    write_group(system, "cpu/job", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    memory, cpus = limits._control_group(system)
    assert memory == ok("limits", "the control group allows 8.0 GiB of memory")
    assert cpus == ok("limits", "16 CPUs")


def test_missing_shared_memory(tmp_path: Path) -> None:
    found = limits._shared_memory(tmp_path / "shm")
    assert found.state is State.WARNING and "--shm-size" in found.remedy


# ---- permissions


@pytest.mark.parametrize(
    ("mask", "state"), [("000", "warning"), ("002", "warning"), ("022", "ok"), ("027", "ok")]
)
def test_umask(mask: str, state: str) -> None:
    found = in_shell(f"umask {mask};", "permissions.examine")
    (line,) = [finding for finding in found if finding["text"].startswith("umask ")]
    assert line["state"] == state and line["text"].startswith(f"umask {mask}")


def test_folders_of_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o777 | stat.S_ISVTX)
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "open"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "sticky"))
    monkeypatch.setenv("ISTHMUS_DEBUG_FOLDER", str(tmp_path / "file"))
    found = {finding.text: finding.state.value for finding in folders.folders()}
    assert found == {
        f"TRITON_CACHE_DIR: others can write to {tmp_path}/open and inject code or data into your jobs": "warning",
        f"ISTHMUS_DEBUG_FOLDER: {tmp_path}/file is not a folder": "fail",
    }


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TORCH_HOME", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: may(path, mode) and (Path(path) != tmp_path or mode == os.F_OK)
    )
    (found,) = folders.folders()
    names = "XDG_CACHE_HOME, TORCH_EXTENSIONS_DIR, TRITON_CACHE_DIR, TORCH_HOME, HF_HOME"
    assert (found.state, found.text) == (State.WARNING, f"{names}: {tmp_path} is not writable")
    assert found.remedy.endswith(", or set each of them to a writable folder")


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", refuse)
    (found,) = folders.folders()
    assert found.state is State.FAIL and found.text.startswith("no home folder: HOME is not set")


def test_files_that_options_name(tmp_path: Path) -> None:
    library = tmp_path / "operators.py"
    library.touch()
    (found,) = permissions._asked_files(
        {"ISTHMUS_LIBRARIES": f"{library}:/no/such.so", "ISTHMUS_ROUTE": "aten::mm=kernel"}
    )
    assert found.state is State.FAIL and found.text == "ISTHMUS_LIBRARIES: /no/such.so: no such file"
    (found,) = permissions._asked_files({"ISTHMUS_ROUTE": "@/no/such"})
    assert found.text == "ISTHMUS_ROUTE: /no/such: no such file"


# ---- what `import torch` loads

PLUGINS = """
import os, signal, torch

def first():
    torch.utils.rename_privateuse1_backend("first")

def second():
    torch.utils.rename_privateuse1_backend("second")

def bad():
    raise RuntimeError("no such library: libmaker.so")

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def add_plugins(folder: Path, *names: str) -> None:
    (folder / "doctor_plugins.py").write_text(PLUGINS)
    points = "".join(f"{name} = doctor_plugins:{name}\n" for name in names)
    install(folder, "doctor-plugins", "1.0", **{"entry_points.txt": f"[torch.backends]\n{points}"})


@pytest.mark.full
def test_plugins_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_plugins(tmp_path, "first", "second", "bad", "crash")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_SLOW_S", 60.0)
    bad, crash, first, isthmus, second, both = plugins.examine()
    name = "(doctor-plugins 1.0)"
    assert bad.text == f"bad {name} breaks `import torch`: RuntimeError: no such library: libmaker.so"
    assert bad.remedy == "`pip install --force-reinstall doctor-plugins` or `pip uninstall doctor-plugins`"
    assert crash.text == f"crash {name} breaks `import torch`: killed by SIGSEGV"
    assert first.text.endswith("registers the device 'first'") and second.state is State.OK
    assert isthmus.text.endswith("registers no device")  # it leaves the device to another plugin
    assert both.state is State.FAIL and both.text.startswith("first and second each register a device")


# ---- whole runs


@pytest.mark.full
def test_a_plugin_that_breaks_pytorch_and_a_missing_package(tmp_path: Path) -> None:
    """The report needs neither PyTorch in its process nor the packages of the command."""
    add_plugins(tmp_path, "bad")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['typer'] = None\n")
    status, findings = full(PYTHONPATH=str(tmp_path))
    found = failures(findings)
    assert status == 1
    assert found["plugins"].startswith("bad (doctor-plugins 1.0) breaks `import torch`")
    assert found["torch"].startswith(
        "`import torch` fails: RuntimeError: Failed to load the backend extension: bad"
    )
    assert "libmaker.so" in found["torch"]
    assert found["imports"].startswith("`import typer` fails: ")
    assert "options" not in found and "torch" not in found["imports"]


@pytest.mark.full
def test_options_of_an_allocator_that_it_refuses() -> None:
    """An exception of the core is a finding about the chip, not a defect of the report."""
    status, findings = full(
        PYTORCH_ALLOC_CONF="max_split_size_mb:lots", PYTHONIOENCODING="ascii", OMP_NUM_THREADS="\xe9"
    )
    found = failures(findings)
    assert status == 1 and "OMP_NUM_THREADS=\xe9 is not a number" in found["environment"]
    assert "allocator option 'max_split_size_mb:lots'" in found["computation"]
    assert not any("defect of `isthmus doctor`" in finding["remedy"] for finding in findings)


def test_characters_missing_in_the_terminal_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    monkeypatch.setattr(report, "examine", lambda: [ok("a", "caf\xe9")])
    assert report.main(False) == 0
    sys.stdout.flush()
    assert written.getvalue() == b"ok    a            caf\\xe9\n"


@pytest.mark.full
def test_a_driver_that_crashes(tmp_path: Path) -> None:
    library = tmp_path / "libcrash.so"
    text = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n"
    assert compile_text(text, library).returncode == 0
    status, findings = full(ISTHMUS_DRIVER=str(library))
    found = failures(findings)
    assert status == 1 and found["chip"] == "while checking the import of torch: killed by SIGABRT"
    assert found["plugins"].endswith("breaks `import torch`: killed by SIGABRT")
    assert "imports" not in found


def test_what_is_off_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.doctor import chip
    from isthmus_common import patches

    moved = patches.Skipped("torch.nn.DataParallel on the chip", "cannot patch torch._C._scatter: gone")
    monkeypatch.setattr(patches, "_skipped", [moved])
    off = [finding for finding in chip._registration() if finding.state is State.WARNING]
    assert [finding.text for finding in off] == [f"off: {moved.loss}: {moved.reason}"]


def test_the_core_that_was_opened_is_named() -> None:
    from isthmus import binaries
    from isthmus.doctor import chip

    found = binaries.find(torch.__version__)
    (finding,) = chip._core()
    assert finding.text == (
        f"{torch.__version__}; core binaries/{found.folder.name}, built with {found.torch}; kernels {found.kernels}"
    )
