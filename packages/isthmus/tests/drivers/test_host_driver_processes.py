"""The host chip among processes: shared capacity, kill -9, fork, environment, strict mode, exit."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from tests.helpers.host_driver import run_script, start_script

ALLOCATE_AND_REPORT = """
import sys
driver = Driver(); driver.initialize()
for line in sys.stdin:
    try:
        driver.allocate(int(line) * MIB)
        print("ok", driver.memory()[0] // MIB, flush=True)
    except DriverError as error:
        print(error.status, error, flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o700)
    return {"XDG_RUNTIME_DIR": str(tmp_path), "ISTHMUS_HOST_MEMORY": "64MiB", "ISTHMUS_HOST_DEVICES": "1"}


class Holder:
    """A process that allocates requested MiB and replies with the free MiB."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = start_script(ALLOCATE_AND_REPORT, **environment)

    def allocate(self, megabytes: int) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{megabytes}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


def test_capacity_is_shared_and_survives_kill_9(environment: dict[str, str]) -> None:
    with Holder(environment) as first, Holder(environment) as second:
        assert first.allocate(40) == "ok 24"
        assert second.allocate(16) == "ok 8"
        refusal = second.allocate(16)
        assert refusal.startswith(
            "3 memory_allocate: chip 0 is out of memory: asked 16.0 MiB, 8.0 MiB free of 64.0 MiB"
        )
        assert "(this process holds 16.0 MiB, other processes 40.0 MiB)" in refusal
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(60)
        assert second.allocate(48) == "ok 0"
        with Holder(environment) as third:
            assert third.allocate(1).startswith("3 memory_allocate: chip 0 is out of memory")


def test_devices_of_other_capacity_are_other_devices(environment: dict[str, str]) -> None:
    with Holder(environment) as first, Holder(environment | {"ISTHMUS_HOST_MEMORY": "32MiB"}) as second:
        assert first.allocate(64) == "ok 0"
        assert second.allocate(32) == "ok 0"


def test_a_device_has_no_more_memory_than_the_machine(environment: dict[str, str]) -> None:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    with Holder(environment | {"ISTHMUS_HOST_MEMORY": "64TiB"}) as first:
        free = int(first.allocate(1).removeprefix("ok "))
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:"))
        assert 0 < free <= available * 1.1 and free < machine  # other programs run meanwhile
        assert first.allocate(machine + 1).startswith("3 memory_allocate: chip 0 is out of memory")


def test_account_is_private_to_the_user(environment: dict[str, str]) -> None:
    with Holder(environment) as holder:
        assert holder.allocate(2) == "ok 62"
        folder = Path(environment["XDG_RUNTIME_DIR"]) / "isthmus"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = list(folder.iterdir())
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o640]


def test_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    runtime, temporary = tmp_path / "runtime", tmp_path / "temporary"
    for folder in runtime / "isthmus", temporary:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    code = "import os; d = Driver(); d.initialize(); d.memory(); print(os.listdir(os.environ['TMPDIR']))"
    done = run_script(code, XDG_RUNTIME_DIR=str(runtime), TMPDIR=str(temporary))
    assert done.stdout.startswith("['isthmus-"), done.stderr
    (first,) = temporary.iterdir()
    first.chmod(0o777)
    second, third = (first.with_name(f"{first.name}-{number}") for number in (1, 2))
    second.symlink_to(runtime)
    done = run_script(code, XDG_RUNTIME_DIR=str(runtime), TMPDIR=str(temporary))
    assert done.returncode == 0 and f"'{third.name}'" in done.stdout, done.stderr
    assert [len(list(folder.iterdir())) for folder in (runtime / "isthmus", first, third)] == [0, 1, 1]
    assert stat.S_IMODE(third.stat().st_mode) == 0o700


def test_without_a_folder_that_others_cannot_write_one_line_says_so(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / (f"isthmus-{os.geteuid()}" + f"-{number}" * bool(number))).touch()
    done = run_script("d = Driver(); d.initialize(); d.memory()", XDG_RUNTIME_DIR="", TMPDIR=str(tmp_path))
    assert (
        f"cannot keep the device accounts in {tmp_path}/isthmus-{os.geteuid()}: not a folder that you own with mode "
        "0700; set XDG_RUNTIME_DIR to a folder that only you can write" in done.stderr
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "ISTHMUS_HOST_MEMORY",
            "lots",
            "ISTHMUS_HOST_MEMORY=lots: not a size; set it to bytes or a number with KiB",
        ),
        ("ISTHMUS_HOST_MEMORY", "8GB", "ISTHMUS_HOST_MEMORY=8GB: "),
        ("ISTHMUS_HOST_MEMORY", "-1GiB", "ISTHMUS_HOST_MEMORY=-1GiB: "),
        ("ISTHMUS_HOST_MEMORY", "1024", "from 2MiB to 64TiB"),
        ("ISTHMUS_HOST_DEVICES", "two", "ISTHMUS_HOST_DEVICES=two: not a whole number from 0 to 64"),
        ("ISTHMUS_HOST_DEVICES", "65", "from 0 to 64"),
        ("ISTHMUS_HOST_STRICT", "yes", "ISTHMUS_HOST_STRICT=yes: not a switch; set it to 0 or 1"),
        ("ISTHMUS_HOST_DELEGATE", "cpu", "ISTHMUS_HOST_DELEGATE=cpu: not a switch"),
    ],
)
def test_malformed_environment(environment: dict[str, str], name: str, value: str, words: str) -> None:
    done = run_script("Driver().initialize()", **(environment | {name: value}))
    assert words in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "1 8589934592"),
        ({"LOCAL_WORLD_SIZE": "3", "ISTHMUS_HOST_MEMORY": "1.5GiB"}, "3 1610612736"),
        (
            {"LOCAL_WORLD_SIZE": "3", "ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "4194304"},
            "2 4194304",
        ),
    ],
)
def test_environment(tmp_path: Path, settings: dict[str, str], expected: str) -> None:
    code = """
count = ctypes.c_int32()
driver = Driver(); driver.initialize(); driver.device_count(ctypes.byref(count))
print(count.value, driver.memory()[1])
"""
    unset = dict.fromkeys(["ISTHMUS_HOST_DEVICES", "ISTHMUS_HOST_MEMORY"], "")
    done = run_script(code, **(unset | {"XDG_RUNTIME_DIR": str(tmp_path)} | settings))
    assert done.stdout.strip() == expected, done.stderr


def test_no_device_is_not_an_error(environment: dict[str, str]) -> None:
    code = """
count = ctypes.c_int32(7)
driver = Driver(); driver.initialize(); driver.device_count(ctypes.byref(count))
print(count.value)
driver.allocate(1)
"""
    done = run_script(code, **(environment | {"ISTHMUS_HOST_DEVICES": "0"}))
    assert done.stdout == "0\n"
    assert "device 0 does not exist: 0 available" in done.stderr


def test_without_delegate(environment: dict[str, str]) -> None:
    code = "t = Driver().table; print(t.delegate, bool(t.host_window), bool(t.copy), t.dlpack_device)"
    done = run_script(code, **(environment | {"ISTHMUS_HOST_DELEGATE": "0"}))
    assert done.stdout == "0 False True 12\n", done.stderr


def test_calls_before_initialize_are_refused(environment: dict[str, str]) -> None:
    done = run_script("Driver().allocate(1)", **environment)
    assert "the host driver is not initialised; call initialize() first" in done.stderr


def test_get_and_initialize_start_no_thread_and_open_nothing(environment: dict[str, str]) -> None:
    code = """
import os
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
def state():
    return threads() - before, sorted(os.listdir(os.environ["XDG_RUNTIME_DIR"]))
driver = Driver()
print(state())
driver.initialize(); driver.write(driver.allocate(8), b"12345678"); driver.stream_synchronize(None)
print(state())
"""
    done = run_script(code, **environment)
    assert done.stdout == "(0, [])\n(0, ['isthmus'])\n", done.stderr


def test_forked_child_is_refused_and_parent_goes_on(environment: dict[str, str]) -> None:
    code = """
import os
driver = Driver(); driver.initialize(); address = driver.allocate(8)
driver.enqueue(None, lambda: None)
driver.stream_synchronize(None)
child = os.fork()
if child == 0:
    for call in (lambda: driver.allocate(8), driver.initialize, lambda: driver.memory_free(address)):
        try:
            call()
        except DriverError as error:
            print(error.status, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
driver.write(address, b"parent")
print(driver.read(address, 6))
"""
    lines = run_script(code, **environment).stdout.splitlines()
    assert len(lines) == 4
    for line, function in zip(lines, ("device_set", "initialize", "memory_free"), strict=False):
        assert line.startswith(f"10 {function}: the host driver cannot be used in a forked child"), line
    assert lines[3] == "b'parent'"


def test_fork_before_initialize_is_allowed(environment: dict[str, str]) -> None:
    code = """
import os
driver = Driver()
child = os.fork()
driver.initialize(); driver.allocate(8)
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_script(code, **environment)
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize("access", ["ctypes.string_at(address, 1)", "ctypes.memset(address, 0, 1)"])
def test_strict_mode_faults_on_host_access(environment: dict[str, str], access: str) -> None:
    code = f"""
driver = Driver(); driver.initialize(); address = driver.allocate(8)
driver.write(address, b"chip"); print(driver.read(address, 4), flush=True)
{access}
"""
    done = run_script(code, **(environment | {"ISTHMUS_HOST_STRICT": "1"}))
    assert done.stdout == "b'chip'\n", done.stderr
    assert done.returncode == -signal.SIGSEGV


def test_strict_mode_poisons_fresh_memory_and_keeps_the_window(environment: dict[str, str]) -> None:
    code = """
import struct
driver = Driver(); driver.initialize(); address = driver.allocate(16); window = driver.window()
granule = driver.result_of("virtual_create", 2 * MIB)
virtual = driver.result_of("virtual_reserve", 2 * MIB); driver.virtual_map(virtual, 2 * MIB, granule, 3)
for fresh in address, virtual:
    data = driver.read(fresh, 16)
    print(*struct.unpack("<d", data[:8]), *struct.unpack("<f", data[:4]), *struct.unpack("<e", data[:2]))
driver.write(address, b"window")
print(window.device_base != window.host_base)
print(ctypes.string_at(address - window.device_base + window.host_base, 6))
"""
    done = run_script(code, **(environment | {"ISTHMUS_HOST_STRICT": "1"}))
    assert done.stdout == "nan nan nan\nnan nan nan\nTrue\nb'window'\n", done.stderr


@pytest.mark.parametrize("ending", ["", "driver.finalize()", "sys.exit(3)"])
def test_exit_neither_hangs_nor_crashes(environment: dict[str, str], ending: str) -> None:
    code = f"""
import sys
driver = Driver(); driver.initialize()
for _ in range(4):
    stream = driver.result_of("stream_create", 0)
    pinned, device = driver.result_of("host_allocate", MIB), driver.allocate(MIB)
    for _ in range(20):
        driver.copy_async(device, pinned, MIB, HOST_TO_DEVICE, stream)
{ending}
"""
    done = run_script(code, **environment)
    assert (done.returncode, done.stderr) == (3 if "exit" in ending else 0, "")


def test_finalize_releases_the_capacity(environment: dict[str, str]) -> None:
    code = """
import sys
driver = Driver(); driver.initialize(); driver.allocate(60 * MIB); driver.finalize()
print("finalised", flush=True)
sys.stdin.readline()
driver.memory()
"""
    process = start_script(code, **environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "finalised\n"
    with Holder(environment) as holder:
        assert holder.allocate(64) == "ok 0"
    _, err = process.communicate("\n", timeout=60)
    assert "the host driver was finalised" in err
