"""The driver cases catch every broken driver and pass correct ones."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from isthmus.conformance.driver_cases import cases
from isthmus.drivers import interface
from tests.helpers.children import output
from tools.repository import CORE, ROOT

HOST = CORE / "src/isthmus/drivers/host/libisthmus_host.so"
SOURCE = ROOT / "tests" / "helpers" / "mutant_driver.c"
GROUPS = SOURCE.with_name("mutant_groups.h")
ASYNC = SOURCE.with_name("async_driver.cpp")
PATTERN = r"^(?:DEFECT|BEFORE|AFTER|RECORDS)\((\w+), (\w+)[,)]"
DEFECTS = dict(re.findall(PATTERN, SOURCE.read_text() + GROUPS.read_text(), re.MULTILINE))
ASYNC_DEFECTS = sorted(set(re.findall(r"BROKEN\((\w+)\)", ASYNC.read_text())) - {"name"})
# Other changes needed to isolate the defect.
COMPANIONS = {
    "allocate_unaligned": "table.memory_free = free_unaligned;",
    "pinned_unaligned": "table.host_free = free_pinned_unaligned;",
    "device_of_process": "table.device_get = get_device_of_process;",
    "message_of_process": "table.memory_allocate = allocate_with_message_of_process;"
    "table.last_error = last_message;",
    **dict.fromkeys(
        ("copy_in_late", "copy_out_late", "copy_within_late"),
        "table.stream_synchronize = synchronize_side_too;",
    ),
    "no_records": "table.activity_stop = stop_nothing;",
    "memory_doubled": "table.device_properties = total_doubled;",
    "one_stream": "table.stream_destroy = destroy_nothing;",
    "attributes_of_freed": "table.memory_free = free_noted;",
    "idle_while_the_last_runs": "table.stream_host_function = queue_host_function;",
    "default_stream_of_first_device": "table.stream_host_function = host_function_on_first_device;",
    "synchronize_own_streams": "table.stream_create = create_noted; table.stream_destroy = destroy_noted;",
    "wait_for_a_later_record": "table.event_destroy = keep_event;",
}
# The only case that notices it.
TELEMETRY = {
    **dict.fromkeys(
        "temperature_in_millidegrees power_in_milliwatts clock_in_hertz clock_in_gigahertz counts_are_rates "
        "health_is_failed".split(),
        "ranges",
    ),
    "counts_fall": "counts_do_not_fall",
    "compute_stays_zero": "moves_with_work",
    "memory_in_percent": "moves_with_work",
    "telemetry_of_first_device": "of_each_device",
    "telemetry_waits": "while_busy",
    "telemetry_is_slow": "cheap",
    "telemetry_of_full_size": "older_caller",
    "telemetry_of_any_device": "out_of_range",
}
# Runs the cases of a group, or all until one fails, and prints those that fail.
JUDGE = """
import os
group = os.environ.get("GROUP", "")
from isthmus.conformance.device import Device
from isthmus.conformance.driver_cases import cases
from isthmus.drivers import Candidate
device = Device.open(Candidate("mutant", os.environ["LIBRARY"], "test"))
for case in cases():
    try:
        if case.name.startswith(group):
            case.check(device)
    except Exception as error:
        print(case.name, "|", error, flush=True)
        if not group:
            break
os._exit(0)  # resources of a broken driver need not be freed
"""


def build(folder: Path, edit: str) -> Path:
    library = folder / "libmutant.so"
    flags = ["-shared", "-fPIC", "-w", f"-I{CORE / 'csrc'}", f'-DHOST="{HOST}"', f"-DEDIT={edit}", "-ldl"]
    subprocess.run(["cc", str(SOURCE), "-o", str(library), *flags], check=True)
    return library


def failures(library: Path, **variables: str | None) -> str:
    chip = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "256MiB", "LIBRARY": str(library)}
    return output(JUDGE, **{**chip, **variables})


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("strict", "delegate"), [("0", "0"), ("1", "0"), ("1", "1"), ("0", "1")])
def test_the_host_chip_passes(strict: str, delegate: str) -> None:
    assert failures(HOST, ISTHMUS_HOST_STRICT=strict, ISTHMUS_HOST_DELEGATE=delegate) == ""


@pytest.mark.full
def test_forwarding_alone_is_not_a_defect(tmp_path: Path) -> None:
    assert failures(build(tmp_path, "")) == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_function_is_caught(defect: str, tmp_path: Path) -> None:
    edit = f"table.{DEFECTS[defect]} = {defect}; {COMPANIONS.get(defect, '')}"
    assert failures(build(tmp_path, edit)), f"no case noticed {defect}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mistake", TELEMETRY)
def test_a_mistake_in_telemetry_is_noticed_by_its_case_alone(mistake: str, tmp_path: Path) -> None:
    found = failures(build(tmp_path, f"table.telemetry = {mistake};"), GROUP="telemetry.")
    assert [line.partition(" | ")[0] for line in found.splitlines()] == [f"telemetry.{TELEMETRY[mistake]}"]


WITHOUT_HOST_FUNCTIONS = (
    "copy_async_default_stream fill_default_stream synchronize_nothing synchronize_default_stream wait_for_nothing "
    "wait_in_the_host event_always_done event_synchronize_nothing stream_always_idle elapsed_in_microseconds "
    "elapsed_without_sign"
).split()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("defect", WITHOUT_HOST_FUNCTIONS)
def test_a_broken_order_is_caught_without_host_functions(defect: str, tmp_path: Path) -> None:
    edit = f"table.{DEFECTS[defect]} = {defect}; table.stream_host_function = 0;"
    assert failures(build(tmp_path, edit)), f"no case noticed {defect}"


@pytest.fixture(scope="module")
def async_chip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("async") / "libasync.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", f"-I{CORE / 'csrc'}"]
    subprocess.run(["c++", str(ASYNC), "-o", str(library), *flags], check=True)
    return library


@pytest.mark.sampled(1)
@pytest.mark.parametrize("without", [None, "1"])
def test_an_asynchronous_chip_passes(without: str | None, async_chip: Path) -> None:
    assert failures(async_chip, ASYNC_WITHOUT_HOST_FUNCTIONS=without) == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("defect", ASYNC_DEFECTS)
def test_a_defect_of_an_asynchronous_chip_is_caught(defect: str, async_chip: Path) -> None:
    assert failures(async_chip, ASYNC_DEFECT=defect), f"no case noticed {defect}"


# Defects that show reliably only while a host function holds a stream.
HELD_ONLY = set(
    "copy_peer_starts_early copy_waits default_stream_of_first_device destroyed_stream_drops_host_functions "
    "few_pinned_bytes_read_at_once host_function_before_earlier_work host_function_beside_later_work "
    "host_function_data_by_reference host_functions_in_64_slots host_functions_last_first "
    "priority_shares_the_default_stream "
    "record_ignores_running_work wait_across_devices_in_the_caller wait_for_the_last_record".split()
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("defect", sorted(set(ASYNC_DEFECTS) - HELD_ONLY))
def test_a_defect_of_an_asynchronous_chip_is_caught_without_host_functions(
    defect: str, async_chip: Path
) -> None:
    found = failures(async_chip, ASYNC_DEFECT=defect, ASYNC_WITHOUT_HOST_FUNCTIONS="1")
    assert found, f"no case noticed {defect}"


def test_every_mandatory_function_has_a_case() -> None:
    judged = {case.function for case in cases()}
    text = (CORE / "csrc/driver.h").read_text()
    mandatory = set(re.findall(r"\[M\][^;]*?\(\*(\w+)\)", text))
    # Tested by every other case, which needs them.
    implied = {"event_create", "finalize", "host_free"}
    assert mandatory - judged - implied == set()
    members = {name for name, _ in interface.structure("driver")._fields_}
    assert judged <= members


def test_names_are_unique_and_rules_are_documented() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    assert all(case.text for case in cases())
