"""Cases of telemetry: units, ranges, figures that move with work, calls while the device is busy."""

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

from isthmus.conformance.device import Device
from isthmus.conformance.driver.case import (
    HOST_FUNCTIONS,
    MIB,
    Cases,
    gate,
    require,
    require_status,
    stream_of,
)
from isthmus.conformance.driver.order import FILLS
from isthmus.drivers import interface
from isthmus.drivers.interface import Status

CASES = Cases()
UNKNOWN = -1.0  # ISTHMUS_TELEMETRY_UNKNOWN
# Possible values in the unit of the figure, as opposed to thousandths or multiples of it.
RANGES = {"temperature_c": (-40, 150), "power_w": (0, 10_000), "clock_mhz": (10, 20_000)}
COUNTS = ("link_errors", "ecc_corrected", "ecc_uncorrected")
UTILIZATIONS = ("compute_utilization", "memory_utilization")
BUSY_SECONDS = 5.0  # more than a sampling period
CHEAP_SECONDS = 0.1  # limit for a call that is made once a second
CALLS = 9
UNTOUCHED = 99


def read(device: Device, index: int) -> Any:
    """Return the telemetry of a device."""
    kind = interface.structure("telemetry")
    found = kind(struct_size=ctypes.sizeof(kind), health=UNTOUCHED)
    device.driver.telemetry(index, ctypes.byref(found))
    return found


def require_in(found: Any, name: str, lowest: float, highest: float) -> None:
    """Raise Violation unless a figure is unknown or in a range."""
    value = getattr(found, name)
    require(
        value == UNKNOWN or lowest <= value <= highest,
        f"{name} is {value}, expected {lowest} to {highest}, or {UNKNOWN:g} where it is not measured",
    )


def fill_until(holds: Callable[[], bool], device: Device, index: int) -> bool:
    """Fill memory of a device until a condition holds, at least for a moment; return whether it does."""
    driver = device.driver
    driver.device_set(index)
    nbytes = min(driver.memory()[0] // 8, 64 * MIB)
    address, stream = driver.result_of("memory_allocate", nbytes), driver.result_of("stream_create", 0)
    end = time.monotonic() + BUSY_SECONDS
    try:
        while True:
            for value in range(FILLS):
                driver.set_async(address, value, nbytes, stream)
            driver.stream_synchronize(stream)
            if (held := holds()) or time.monotonic() >= end:
                return held
    finally:
        driver.device_synchronize()
        driver.stream_destroy(stream)
        driver.memory_free(address)


@CASES.case("telemetry")
def ranges(device: Device) -> None:
    """Figures are in range in their unit, or ISTHMUS_TELEMETRY_UNKNOWN; the health is that of a device that works."""
    for index in range(device.driver.count()):
        found = read(device, index)
        for name, limits in RANGES.items():
            require_in(found, name, *limits)
        for name in COUNTS:
            require_in(found, name, 0, float("inf"))
            require(getattr(found, name) % 1 == 0, f"{name} is {getattr(found, name)}, not a count")
        require(found.health in (0, 1), f"health is {found.health}")


@CASES.case("telemetry")
def counts_do_not_fall(device: Device) -> None:
    """Counts of errors are those since the driver was loaded: they do not fall."""
    first, second = read(device, device.index), read(device, device.index)
    for name in COUNTS:
        before, after = getattr(first, name), getattr(second, name)
        require(after >= before, f"{name} was {before}, then {after}")


@CASES.case("telemetry")
def moves_with_work(device: Device) -> str | None:
    """While the device works, the utilizations that are measured are above 0, and at most 1."""
    found = read(device, device.index)  # starts a period

    def moves() -> bool:
        nonlocal found
        found = read(device, device.index)
        for name in UTILIZATIONS:
            require_in(found, name, 0, 1)
        return all(getattr(found, name) != 0 for name in UTILIZATIONS)

    if not fill_until(moves, device, device.index):
        stuck = " and ".join(name for name in UTILIZATIONS if getattr(found, name) == 0)
        require(False, f"{stuck} stayed 0 while fills ran for {BUSY_SECONDS:g} s")
    measured = any(getattr(found, name) != UNKNOWN for name in UTILIZATIONS)
    return None if measured else "the driver measures no utilization"


@CASES.case("telemetry", devices=2)
def of_each_device(device: Device) -> str | None:
    """The memory_utilization of a device that works rises above that of one that does not."""
    if read(device, 0).memory_utilization == UNKNOWN:
        return "the driver does not measure memory_utilization"

    def lead(index: int) -> float:
        return float(read(device, index).memory_utilization - read(device, 1 - index).memory_utilization)

    for index in (0, 1):
        before = min(lead(index), 0.0)  # other processes may use the other device
        require(
            fill_until(lambda index=index, before=before: lead(index) > before, device, index),  # type: ignore[misc]
            f"device {index} worked for {BUSY_SECONDS:g} s, but its figure did not rise above device {1 - index}'s",
        )
    return None


@CASES.case("telemetry", HOST_FUNCTIONS)
def while_busy(device: Device) -> None:
    """telemetry() does not wait for work."""
    with stream_of(device) as stream, gate(device.driver, stream, "telemetry()"):
        read(device, device.index)


@CASES.case("telemetry")
def cheap(device: Device) -> None:
    """A call takes little of a second."""
    taken = []
    for _ in range(CALLS):
        began = time.monotonic()
        read(device, device.index)
        taken.append(time.monotonic() - began)
    found = statistics.median(taken)
    require(found <= CHEAP_SECONDS, f"the median of {CALLS} calls took {found:.3g} s")


@CASES.case("telemetry")
def older_caller(device: Device) -> None:
    """telemetry() does not write beyond the caller's struct_size."""
    kind = interface.structure("telemetry")
    found = kind(struct_size=kind.clock_mhz.offset, clock_mhz=123.0, health=UNTOUCHED)
    device.driver.telemetry(device.index, ctypes.byref(found))
    require((found.clock_mhz, found.health) == (123.0, UNTOUCHED), "members beyond it were written")


@CASES.case("telemetry")
def out_of_range(device: Device) -> None:
    """An index out of range returns ISTHMUS_NO_DEVICE and leaves the output unchanged."""
    kind = interface.structure("telemetry")
    for index in (device.driver.count(), -1):
        found = kind(struct_size=ctypes.sizeof(kind), health=UNTOUCHED)
        require_status(device.driver, Status.NO_DEVICE, "telemetry", index, ctypes.byref(found))
        require(found.health == UNTOUCHED, f"for {index} it wrote to the output")
