"""Loading of the chip by `import torch`, and what it must not do."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus
from isthmus import autoload, drivers
from tests.helpers.children import output, output_fresh, run, run_fresh

HOST = drivers.FOLDER / "host" / "libisthmus_host.so"

REPORT = """
import json, sys, torch, isthmus
status = isthmus.status()
print(json.dumps([status.registered, status.reason, status.driver, torch.chip.is_available(),
                  torch.chip.device_count()]))
"""


def report(**environment: str | None) -> tuple[bool, str, str, bool, int]:
    registered, reason, driver, available, count = json.loads(output(REPORT, **environment))
    return registered, reason, driver, available, count


def test_registers_automatically():
    registered, reason, driver, available, count = report(ISTHMUS_DRIVER=None, ISTHMUS_HOST_DEVICES="3")
    assert (registered, driver, available, count) == (True, "host", True, 3)
    assert reason == "no other accelerator available"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("asked", ["host", str(HOST)])
def test_driver_by_name_or_path(asked):
    registered, reason, driver, available, _ = report(ISTHMUS_DRIVER=asked)
    assert (registered, driver, available) == (True, "host", True)
    assert reason == "selected by ISTHMUS_DRIVER"


@functools.cache
def imported(autoload: bool) -> dict[str, list[str]]:
    """Threads, shared memory and modules after the import of PyTorch in a fresh interpreter."""
    code = """
        import json, os, sys
        import torch
        modules = list(sys.modules)
        files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{fd}") or os.path.islink(f"/proc/self/fd/{fd}")]
        used = "isthmus._C" in sys.modules and sys.modules["isthmus._C"].is_initialized()
        found = dict(threads=os.listdir("/proc/self/task"), memory=[file for file in files if "memfd" in file])
        print(json.dumps(dict(found, modules=modules, used=used)))
        """
    return json.loads(output_fresh(code, TORCH_DEVICE_BACKEND_AUTOLOAD=str(int(autoload))))


def test_import_starts_nothing():
    found = imported(True)
    assert "isthmus._C" in found["modules"] and not found["used"]
    assert found["memory"] == []
    assert len(found["threads"]) == len(imported(False)["threads"])


@pytest.mark.host("its operator library is loaded on request")
def test_import_loads_no_heavy_module():
    added = set(imported(True)["modules"]) - set(imported(False)["modules"])
    light = ("isthmus", "isthmus_ascend", "isthmus_common", "torch", "importlib", "tomllib")
    foreign = {name for name in added if name.split(".")[0] not in light}
    assert not foreign
    assert not {name for name in added if name.startswith(("torch._dynamo", "torch._inductor"))}
    not_light = (
        "isthmus_common.application",
        "isthmus_common.shell",
        "isthmus.launch",
        "isthmus_migrate",
        "isthmus.megatron",
        "isthmus.ops",
    )
    assert not {name for name in added if name.startswith(not_light)}


def test_import_of_the_package_does_not_import_torch():
    assert output_fresh("import isthmus, sys; print('torch' in sys.modules)") == "False"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("asked", ["none", "0"])
def test_disabled(asked):
    registered, reason, driver, available, count = report(ISTHMUS_DRIVER=asked)
    assert (registered, driver, available, count) == (False, "", False, 0)
    assert reason == f"disabled by ISTHMUS_DRIVER={asked}"


def test_disabling_keeps_torch_accelerator():
    code = "import torch; print(torch.accelerator.current_accelerator())"
    assert output(code, ISTHMUS_DRIVER="none") == output(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("nosuch", "unknown driver 'nosuch'; expected ascend, host"),
        ("/nowhere/libisthmus_x.so", "/nowhere/libisthmus_x.so is not a file"),
    ],
)
def test_an_invalid_driver_is_reported_once_and_import_continues(asked, words):
    result = run(REPORT, ISTHMUS_DRIVER=asked)
    assert result.returncode == 0
    registered, reason, _, available, count = json.loads(result.stdout)
    assert (registered, available, count) == (False, False, 0)
    assert words in reason
    lines = [line for line in result.stderr.splitlines() if line.startswith("isthmus:")]
    assert lines == [f"isthmus: ISTHMUS_DRIVER={asked} is not used: {reason}"]


def test_a_library_that_is_not_a_driver(tmp_path: Path):
    text = tmp_path / "libisthmus_text.so"
    text.write_text("not a library")
    result = run(REPORT, ISTHMUS_DRIVER=str(text))
    registered, reason, *_ = json.loads(result.stdout)
    assert not registered
    assert str(text) in reason
    assert len(reason.splitlines()) == 1


def test_stub_refuses_by_name():
    result = run("import torch; torch.chip.synchronize()", ISTHMUS_DRIVER="none")
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "AttributeError: torch.chip.synchronize: the chip is not registered: disabled by ISTHMUS_DRIVER=none"
    )


def test_other_torch_version_is_refused_before_a_library_is_opened():
    found = output(
        """
        import sys, torch, isthmus
        torch.__version__ = "2.99.0+cpu"
        torch._import_device_backends()
        print("isthmus._C" in sys.modules, isthmus.status().registered, isthmus.status().reason)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert re.fullmatch(
        r"False False built for PyTorch 2[\d., and]+; found 2.99.0\+cpu; run `isthmus build`", found
    )


def test_unbuilt_core_is_a_reason_not_an_error():
    found = output(
        """
        import torch, isthmus, isthmus.binaries
        isthmus.binaries.RECORD = "absent.json"
        torch._import_device_backends()
        print(isthmus.status().reason)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert found.startswith("the C++ core is not built")


ANOTHER_PLUGIN = """
import importlib.metadata as metadata
real = metadata.entry_points
fake = metadata.EntryPoint(name="torch_other", value="os:getcwd", group="torch.backends")

def entry_points(**wanted):
    found = real(**wanted)
    if wanted.get("group") == "torch.backends":
        return [*found, fake]
    return metadata.EntryPoints([*(e for e in metadata.distribution("isthmus").entry_points), fake])

metadata.entry_points = entry_points
import torch
torch._import_device_backends()
"""


def test_another_plugin_takes_precedence_unless_selected():
    later = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    registered, reason, *_ = json.loads(output(ANOTHER_PLUGIN + REPORT, ISTHMUS_DRIVER=None, **later))
    assert not registered
    assert reason == "torch.accelerator is plugin torch_other; set ISTHMUS_DRIVER=host to replace it"
    registered, *_ = json.loads(output(ANOTHER_PLUGIN + REPORT, ISTHMUS_DRIVER="host", **later))
    assert registered


def test_renamed_privateuse1_is_not_changed():
    found = output(
        """
        import torch, isthmus
        from isthmus import autoload
        torch.utils.rename_privateuse1_backend("other")
        autoload.load()
        print(isthmus.status().registered, isthmus.status().reason)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        ISTHMUS_DRIVER="host",
    )
    assert found == "False another plugin has registered PyTorch's PrivateUse1 device as 'other'"


def test_second_load_does_nothing():
    import torch  # noqa: F401 - the first load

    before = isthmus.status()
    autoload.load()
    assert isthmus.status() == before


def test_find_by_folder():
    search = drivers.find("host")
    assert [candidate.path for candidate in search.candidates] == [str(HOST)]
    assert search.candidates[0].origin == "folder"


def test_entry_point_comes_before_the_embedded_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library = tmp_path / "stranger.so"
    shutil.copy(HOST, library)
    (tmp_path / "stranger_driver.py").write_text(f"def library():\n    return {str(library)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = drivers.EntryPoint(name="stranger", value="stranger_driver:library", group="isthmus.drivers")
    monkeypatch.setattr(drivers, "installed_entry_points", lambda group: [entry])
    assert [candidate.name for candidate in drivers.find().candidates] == ["stranger", "host"]
    assert [candidate.path for candidate in drivers.find("stranger").candidates] == [str(library)]


def test_a_broken_entry_point_is_reported_and_skipped(monkeypatch: pytest.MonkeyPatch):
    entry = drivers.EntryPoint(name="broken", value="no_such_module:library", group="isthmus.drivers")
    monkeypatch.setattr(drivers, "installed_entry_points", lambda group: [entry])
    search = drivers.find()
    assert [candidate.name for candidate in search.candidates] == ["host"]
    assert any("ModuleNotFoundError" in place for place in search.searched)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("ISTHMUS_LEAK_REPORT", "yes", "not a switch; set it to 0 or 1"),
        ("ISTHMUS_STREAM_CHECK", "2", "unknown value; expected 0, 1 or warn"),
        ("ISTHMUS_COLLECTIVES", "nccl", "unknown value; expected driver or gloo"),
        ("ISTHMUS_FLIGHT_RECORDER", "-1", "not a whole number of at least 0"),
    ],
)
def test_a_wrong_option_is_one_line_and_ends_the_process(variable: str, value: str, problem: str):
    done = run("import torch; print('not reached')", **{variable: value})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"isthmus: {variable}={value}: {problem}\n"


@pytest.mark.full
def test_a_wrong_option_ends_the_import_of_torch_but_not_where_the_chip_is_not_used():
    program = "import torch; print('reached')"
    done = run_fresh(program, ISTHMUS_BLOCKING_WAIT="yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "isthmus: ISTHMUS_BLOCKING_WAIT=yes: not a switch; set it to 0 or 1\n"
    assert output(program, ISTHMUS_BLOCKING_WAIT="yes", ISTHMUS_DRIVER="none") == "reached"


@pytest.mark.host("its process has no other environment")
def test_a_folder_of_that_name_beside_a_script(tmp_path):
    (tmp_path / "isthmus").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.ones(2, device='chip').sum().item())\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


def test_a_package_that_cannot_be_imported_does_not_break_the_import_of_torch():
    code = "import sys; sys.modules['isthmus'] = None; import torch; print(torch.ones(2).sum().item())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2.0\n")
    assert done.stderr.startswith("isthmus: the chip is not available: ModuleNotFoundError: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["isthmus.chip", "isthmus.chip.streams", "isthmus.ops", "isthmus.shim"])
def test_a_module_may_be_imported_before_pytorch(module: str) -> None:
    done = run_fresh(
        f"import {module}, torch; print(torch.chip.device_count() > 0, torch.ones(2).chip().sum().item())"
    )
    assert done.stdout.split() == ["True", "2.0"] and done.stderr == "", done
