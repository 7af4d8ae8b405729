"""Timing in batches, and the chip's limits for comparison."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from isthmus.conformance.bench_cases import MATMUL_SIZE
from isthmus.conformance.device import Device
from isthmus.drivers.interface import CopyKind

BATCH_SECONDS = 0.004
PROBE_BYTES = tuple(1 << power for power in range(14, 27, 2))  # bytes of a copy


class Timed:
    """A call timed in batches of constant size.

    Args:
        body: runs n calls and waits for them.
    """

    def __init__(self, body: Callable[[int], None]) -> None:
        self._body = body
        self._calls = 1
        self.seconds: list[float] = []

    def calibrate(self) -> None:
        """Warm up and choose the size of a batch. Raises the errors of the call."""
        self._body(1)
        while (spent := self._time()) < BATCH_SECONDS / 4 and self._calls < 1 << 16:
            self._calls *= 2 if spent > BATCH_SECONDS / 16 else 4

    def measure(self) -> None:
        """Time one batch."""
        self.seconds.append(self._time() / self._calls)

    def _time(self) -> float:
        start = time.perf_counter()
        self._body(self._calls)
        return time.perf_counter() - start

    @property
    def best(self) -> float:
        """Seconds of one call in the best batch."""
        return min(self.seconds)


class Limits:
    """The chip's limits: copies, measured between the operators, and the rate of matrix products.

    Args:
        stated: floating-point operations per second that the chip's maker states, by dtype.
    """

    def __init__(self, device: Device, stated: Mapping[str, float]) -> None:
        self._device, self._stated = device, stated
        self._address = device.allocate(2 * PROBE_BYTES[-1])
        self._copies = {nbytes: Timed(self._copy(nbytes)) for nbytes in PROBE_BYTES}
        by_cpu = ("float32", "float64") if device.host_addressable else ()
        self._products = {name: Timed(_product(name)) for name in by_cpu}
        self._probes = (*self._copies.values(), *self._products.values())
        for probe in self._probes:
            probe.calibrate()

    def _copy(self, nbytes: int) -> Callable[[int], None]:
        driver, address = self._device.driver, self._address
        to = address + PROBE_BYTES[-1]

        def body(calls: int) -> None:
            for _ in range(calls):
                driver.copy_async(to, address, nbytes, CopyKind.DEVICE_TO_DEVICE, 0)
            self._device.synchronize()

        return body

    def measure(self, rounds: int) -> None:
        """Time some batches of each probe."""
        for _ in range(rounds):
            for probe in self._probes:
                probe.measure()

    def close(self) -> None:
        """Free the memory of the probes."""
        self._device.free(self._address)

    def bandwidth(self) -> dict[int, float]:
        """Return bytes read and written per second, by the bytes read and written of a copy."""
        return {2 * nbytes: 2 * nbytes / probe.best for nbytes, probe in self._copies.items()}

    def peak(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return floating-point operations per second of matrix products, by dtype.

        A rate that the maker states counts; else the best of the chip's own products, and of NumPy's matmul where the
        CPU is the chip.

        Args:
            measured: best rates of the chip's own products in this run, by dtype.
        """
        by_cpu = {name: 2 * MATMUL_SIZE**3 / probe.best for name, probe in self._products.items()}
        best = {name: max(measured.get(name, 0.0), by_cpu.get(name, 0.0)) for name in {**measured, **by_cpu}}
        return {**best, **self._stated}


def _product(dtype: str) -> Callable[[int], None]:
    left, right = np.random.default_rng(0).random((2, MATMUL_SIZE, MATMUL_SIZE)).astype(dtype)
    out = np.empty_like(left)

    def body(calls: int) -> None:
        for _ in range(calls):
            np.matmul(left, right, out=out)

    return body
