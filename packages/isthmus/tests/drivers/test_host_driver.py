"""The host chip: what the driver cases of the conformance suite do not ask of its devices, memory and copies.

No torch: the driver must stand alone.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import pytest

from tests.helpers import host_driver as hd
from tests.helpers.host_driver import MIB, Driver, check_refused

CAPACITY = 64 * MIB


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with hd.open_driver(tmp_path_factory.mktemp("host")) as driver:
        yield driver
        assert driver.memory(0)[0] == CAPACITY, "a test left memory allocated"


def test_library_stands_alone() -> None:
    content = hd.LIBRARY.read_bytes()
    assert b"isthmus_driver_get" in content
    assert b"libtorch" not in content
    assert b"libc10" not in content


def test_table(driver: Driver) -> None:
    table = driver.table
    assert table.struct_size == ctypes.sizeof(hd.Table)
    assert (table.version, table.name) == (hd.VERSION, b"host")
    assert (table.delegate, table.dlpack_device) == (hd.DELEGATE_CPU, 1)


def test_other_major_version_gets_no_table() -> None:
    get = ctypes.CDLL(str(hd.LIBRARY)).isthmus_driver_get
    get.restype = ctypes.c_void_p
    assert get(2 << 16) is None


def test_devices(driver: Driver) -> None:
    count, index = ctypes.c_int32(), ctypes.c_int32()
    driver.device_count(ctypes.byref(count))
    assert count.value == 2
    driver.device_set(1)
    driver.device_get(ctypes.byref(index))
    assert index.value == 1
    check_refused(driver, hd.NO_DEVICE, "device 2 does not exist: 2 available", "device_set", 2)
    check_refused(driver, hd.NO_DEVICE, "device -1 does not exist", "device_set", -1)


def test_properties(driver: Driver) -> None:
    found = [hd.Properties(), hd.Properties()]
    for index, properties in enumerate(found):
        driver.device_properties(index, ctypes.byref(properties))
        assert properties.total_memory == CAPACITY
        assert properties.memory_alignment == 512
        assert properties.multi_processor_count >= 1
    assert found[0].uuid == b"" or found[0].uuid != found[1].uuid


def test_out_of_memory_names_the_sizes_and_is_not_sticky(driver: Driver) -> None:
    most = driver.allocate(60 * MIB)
    words = r"chip 0 is out of memory: asked 8.0 MiB, 4.0 MiB free of 64.0 MiB.*ISTHMUS_HOST_MEMORY"
    out = ctypes.c_void_p(42)
    check_refused(driver, hd.OUT_OF_MEMORY, words, "memory_allocate", 8 * MIB, ctypes.byref(out))
    check_refused(driver, hd.OUT_OF_MEMORY, "asked", "memory_allocate", 2**64 - 1, ctypes.byref(out))
    assert out.value == 42
    other = driver.allocate(8 * MIB, device=1)
    driver.memory_free(most)
    driver.memory_free(other)
    driver.memory_free(driver.allocate(64 * MIB))


def test_fragmentation_does_not_exhaust_a_device(driver: Driver) -> None:
    pieces = [driver.allocate(2 * MIB) for _ in range(32)]
    for piece in pieces[::2]:
        driver.memory_free(piece)
    large = driver.allocate(32 * MIB)
    for piece in [large, *pieces[1::2]]:
        driver.memory_free(piece)


def test_freed_memory_is_returned_to_the_system(driver: Driver) -> None:
    address = driver.allocate(4 * MIB)
    driver.write(address, b"\1" * (4 * MIB))
    driver.memory_free(address)
    again = driver.allocate(4 * MIB)
    assert again == address
    assert driver.read(again, 4 * MIB) == bytes(4 * MIB), "the old pages are still there"
    driver.memory_free(again)


def test_free_refuses_unknown_addresses(driver: Driver) -> None:
    address = driver.allocate(1024)
    check_refused(driver, hd.INVALID_ARGUMENT, "not the start", "memory_free", address + 512)
    driver.memory_free(address)
    check_refused(driver, hd.INVALID_ARGUMENT, "not the start", "memory_free", address)
    check_refused(driver, hd.INVALID_ARGUMENT, "is not memory of a device", "memory_free", 4096)
    driver.memory_free(None)


def test_pinned_memory_is_freed_once(driver: Driver) -> None:
    pinned = driver.result_of("host_allocate", 1000)
    driver.host_free(pinned)
    check_refused(driver, hd.INVALID_ARGUMENT, "not the start of pinned memory", "host_free", pinned)


def test_copies_refuse_wrong_ranges_and_kinds(driver: Driver) -> None:
    first, second = driver.allocate(1024), driver.allocate(1024, device=1)
    driver.device_set(0)
    host = ctypes.create_string_buffer(2048)
    invalid = hd.INVALID_ARGUMENT
    outside = rf"copy: the 1025 bytes at to={hex(first)} are not inside an allocation"
    check_refused(driver, invalid, outside, "copy", first, host, 1025, hd.HOST_TO_DEVICE)
    check_refused(driver, invalid, "at from=", "copy", host, first + 1000, 25, hd.DEVICE_TO_HOST)
    check_refused(driver, invalid, "not inside", "copy", host, host, 8, hd.DEVICE_TO_HOST)
    check_refused(driver, invalid, "memory of chip 0", "copy", first, first, 8, hd.HOST_TO_DEVICE)
    check_refused(driver, invalid, "use copy_peer_async", "copy", first, second, 8, hd.DEVICE_TO_DEVICE)
    check_refused(driver, invalid, "9 is not a copy kind", "copy", first, host, 8, 9)
    check_refused(driver, invalid, "from is null", "copy", first, None, 8, hd.HOST_TO_DEVICE)
    check_refused(
        driver, invalid, "use a stream of chip 1", "copy_async", second, host, 8, hd.HOST_TO_DEVICE, None
    )
    check_refused(driver, invalid, "own devices", "copy_peer_async", first, 1, second, 0, 8, None)
    check_refused(driver, invalid, "not inside", "set_async", first, 0, 1025, None)
    driver.copy(None, None, 0, hd.HOST_TO_DEVICE)
    driver.memory_free(first)
    driver.memory_free(second)


def test_null_outputs_and_zero_sizes(driver: Driver) -> None:
    invalid = hd.INVALID_ARGUMENT
    check_refused(driver, invalid, "device_count: count is null", "device_count", None)
    check_refused(driver, invalid, "memory_allocate: pointer is null", "memory_allocate", 8, None)
    check_refused(driver, invalid, "0 bytes requested", "memory_allocate", 0, ctypes.byref(ctypes.c_void_p()))
    check_refused(driver, invalid, "event is null", "event_record", None, None)


def test_virtual_memory(driver: Driver) -> None:
    granularity = ctypes.c_size_t()
    driver.virtual_granularity(ctypes.byref(granularity))
    unit = granularity.value
    driver.device_set(0)
    free = driver.memory()[0]
    address = driver.result_of("virtual_reserve", 4 * unit)
    handles = [driver.result_of("virtual_create", unit) for _ in range(2)]
    assert free - driver.memory()[0] == 2 * unit
    for number, handle in enumerate(handles):
        driver.virtual_map(address + (1 + number) * unit, unit, handle, 3)
    assert driver.attributes(address) == (hd.MEMORY_UNKNOWN, -1)
    assert driver.attributes(address + unit) == (hd.MEMORY_DEVICE, 0)

    across = address + 2 * unit - 3
    driver.write(across, b"across")
    assert driver.read(across, 6) == b"across"
    check_refused(driver, hd.INVALID_ARGUMENT, "not inside", "set_async", address + 3 * unit - 1, 0, 2, None)
    check_refused(
        driver, hd.INVALID_ARGUMENT, "already mapped", "virtual_map", address + unit, unit, handles[0], 3
    )
    check_refused(driver, hd.INVALID_ARGUMENT, "still mapped", "virtual_release", address, 4 * unit)

    driver.virtual_unmap(address + unit, 2 * unit)
    driver.virtual_map(address, unit, handles[1], 3)
    assert driver.read(address, 3) == b"oss", "the bytes belong to the memory, not to the address"
    for handle in handles:
        driver.virtual_destroy(handle)
    assert free - driver.memory()[0] == unit, "mapped memory lives until it is unmapped"
    driver.virtual_unmap(address, unit)
    assert driver.memory()[0] == free
    check_refused(driver, hd.INVALID_ARGUMENT, "not a memory handle", "virtual_destroy", handles[0])
    driver.virtual_release(address, 4 * unit)


def test_virtual_memory_counts_against_the_capacity(driver: Driver) -> None:
    driver.device_set(0)
    out = ctypes.c_void_p()
    check_refused(driver, hd.OUT_OF_MEMORY, "physical memory", "virtual_create", 66 * MIB, ctypes.byref(out))
    check_refused(driver, hd.INVALID_ARGUMENT, "multiple", "virtual_create", 1000, ctypes.byref(out))


def test_telemetry(driver: Driver) -> None:
    half = driver.allocate(CAPACITY // 2)
    telemetry = hd.Telemetry(struct_size=ctypes.sizeof(hd.Telemetry), health=-1)
    driver.telemetry(0, ctypes.byref(telemetry))
    assert (telemetry.health, telemetry.memory_utilization, telemetry.temperature_c) == (0, 0.5, -1.0)
    driver.memory_free(half)
    older = hd.Telemetry(struct_size=hd.Telemetry.power_w.offset, power_w=123.0)
    driver.telemetry(0, ctypes.byref(older))
    assert (older.temperature_c, older.power_w) == (-1.0, 123.0), "it wrote past the caller's structure"


def test_no_torch_was_needed() -> None:
    done = hd.run_script(
        "import sys; d = Driver(); d.initialize(); d.memory(); print('torch' in sys.modules)"
    )
    assert done.stdout == "False\n", done.stderr
    assert sys.modules["tests.helpers.host_driver"] is hd
