"""Cases of devices: count, current device, properties, errors."""

import ctypes

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import Cases, allocated, each_device, on_thread, require, require_status
from isthmus.drivers import interface
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import MemoryKind, Status

CASES = Cases()
POISON = 0x5A


def current_device(driver: Driver) -> int:
    """Return the thread's current device."""
    found = ctypes.c_int32(-7)
    driver.device_get(ctypes.byref(found))
    return found.value


@CASES.case("device_count")
def count_is_steady(device: Device) -> None:
    """device_count() returns the devices of this process and does not change."""
    first, second = device.driver.count(), device.driver.count()
    require(first == second, f"it returned {first}, then {second}")
    require(first > device.index, f"it returned {first}, but device {device.index} is open")


@CASES.case("initialize")
def initialize_again(device: Device) -> None:
    """A second call of initialize() has no effect."""
    driver = device.driver
    last = driver.count() - 1
    with allocated(device, 64) as address:
        device.write(address, b"kept" * 16)
        driver.device_set(last)
        driver.initialize()
        found = current_device(driver)
        driver.device_set(device.index)
        require(found == last, f"with device {last} current it made {found} current")
        require(device.read(address, 64) == b"kept" * 16, "it changed memory")


@CASES.case("initialize")
def table_is_constant(device: Device) -> None:
    """The table after initialize() is the one that was read before."""
    kind, again = interface.structure("driver"), Driver(device.driver.path).table
    for name, _ in kind._fields_:
        place = getattr(kind, name)
        part = slice(place.offset, place.offset + place.size)
        is_function = place.offset >= kind.initialize.offset
        require(not is_function or bytes(device.table)[part] == bytes(again)[part], f"{name} has changed")


@CASES.case("device_set")
def set_and_get(device: Device) -> None:
    """device_get() returns the device last set by device_set() on the thread."""
    for index in reversed(range(device.driver.count())):
        device.driver.device_set(index)
        found = current_device(device.driver)
        require(found == index, f"set {index}, got {found}")


@CASES.case("device_get")
def first_device_of_a_thread(device: Device) -> None:
    """The current device of a thread is 0 before its first device_set()."""
    device.driver.device_set(device.driver.count() - 1)
    found = on_thread(lambda: current_device(device.driver))
    require(found == 0, f"a new thread began with device {found}")


@CASES.case("device_set", devices=2)
def current_device_is_per_thread(device: Device) -> None:
    """Each thread has its own current device."""
    device.driver.device_set(0)
    on_thread(lambda: device.driver.device_set(1))
    found = current_device(device.driver)
    require(found == 0, f"another thread's device_set(1) made {found} current here")


@CASES.case("memory_allocate", devices=2)
def memory_of_the_current_device(device: Device) -> None:
    """memory_allocate() uses the calling thread's device, whichever another thread has set since."""
    driver = device.driver
    for mine, other in ((0, 1), (1, 0)):
        driver.device_set(mine)
        on_thread(lambda other=other: driver.device_set(other))  # type: ignore[misc]
        address = driver.result_of("memory_allocate", 64)
        found = driver.attributes(address)
        driver.memory_free(address)
        expected = (MemoryKind.DEVICE, mine)
        require(found == expected, f"with device {mine} here and {other} on another thread, it is of {found}")


@CASES.case("device_set")
def set_out_of_range(device: Device) -> None:
    """An index out of range returns ISTHMUS_NO_DEVICE and changes nothing."""
    driver = device.driver
    for before in each_device(driver):
        for index in (driver.count(), 1000, -1):
            require_status(driver, Status.NO_DEVICE, "device_set", index)
            found = current_device(driver)
            require(found == before, f"after device_set({index}) failed, {found} was current, not {before}")


@CASES.case("device_properties")
def properties(device: Device) -> None:
    """Properties are set: a name, memory, an alignment that is a power of two."""
    found = device.driver.properties(device.index)
    require(found.name.decode() != "", "the name is empty")
    require(found.total_memory > 0, "total_memory is 0")
    alignment = found.memory_alignment
    require(alignment > 0 and alignment & (alignment - 1) == 0, f"memory_alignment is {alignment}")
    require(found.multi_processor_count > 0, f"multi_processor_count is {found.multi_processor_count}")


@CASES.case("device_properties", devices=2)
def properties_of_every_device(device: Device) -> None:
    """No two devices have the same uuid or the same place on the PCI bus, where they have one."""
    rows = [device.driver.properties(index) for index in range(device.driver.count())]
    places = [(row.pci_domain, row.pci_bus, row.pci_device) for row in rows if row.pci_bus >= 0]
    for what, found in (("uuid", [row.uuid for row in rows if row.uuid]), ("PCI place", places)):
        require(len(set(found)) == len(found), f"devices share a {what}: {found}")


@CASES.case("device_properties")
def properties_out_of_range(device: Device) -> None:
    """An index out of range returns ISTHMUS_NO_DEVICE and leaves the output unchanged."""
    found = interface.structure("device_properties")()
    size = ctypes.sizeof(found)
    ctypes.memset(ctypes.byref(found), POISON, size)
    index = device.driver.count()
    require_status(device.driver, Status.NO_DEVICE, "device_properties", index, ctypes.byref(found))
    require(bytes(found) == bytes([POISON]) * size, "it wrote to the output")


@CASES.case("device_memory")
def memory_is_plausible(device: Device) -> None:
    """Free is at most total, and total at most the properties' total_memory."""
    free, total = device.driver.memory()
    most = device.driver.properties(device.index).total_memory
    require(0 < free <= total <= most, f"free {free}, total {total}, total_memory {most}")


@CASES.case("last_error")
def message_of_a_new_thread(device: Device) -> None:
    """last_error() is never null."""
    message = on_thread(device.table.last_error)
    require(message is not None, "on a thread without a failure it is null")


@CASES.case("last_error")
def message_is_per_thread(device: Device) -> None:
    """last_error() returns the message of the calling thread."""
    driver = device.driver
    require_status(driver, Status.NO_DEVICE, "device_set", 1000)
    mine = driver.last_error()

    def fail_otherwise() -> str:
        require_status(
            driver, Status.OUT_OF_MEMORY, "memory_allocate", 1 << 60, ctypes.byref(ctypes.c_void_p())
        )
        return driver.last_error()

    other = on_thread(fail_otherwise)
    require(driver.last_error() == mine, f"a failure on another thread changed it to {driver.last_error()!r}")
    require(other != mine, f"two different failures have the same message: {mine!r}")
