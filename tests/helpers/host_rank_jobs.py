"""Jobs of host chip ranks in the tests of its collectives: each checks its part against NumPy.

Run as a program it is one rank after the other: it reads jobs as JSON lines and answers each with one.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.drivers import interface
from isthmus.opset.dtypes import DTYPES, Dtype
from tests.helpers.host_driver import MIB, Driver, DriverError

OPS = interface.driver_header().enumerations["isthmus_reduce_op"]
SUM, AVG, PREMUL_SUM = (OPS[f"ISTHMUS_{name}"] for name in ("SUM", "AVG", "PREMUL_SUM"))
UniqueId = interface.structure("unique_id")
Options = interface.structure("comm_options")
BUFFER_BYTES = 4 * MIB
Array = np.ndarray[Any, Any]
Job = Callable[..., Any]


class Rank:
    """One rank of a communicator, with two buffers of its device and a stream.

    Args:
        driver: initialised; its current device becomes the rank's.
        unique_id: of the communicator.
        device: of the rank.
    """

    def __init__(
        self,
        driver: Driver,
        unique_id: bytes,
        rank: int,
        world: int,
        *,
        timeout_ms: int = 20_000,
        name: str = "test",
        device: int | None = None,
    ) -> None:
        self.driver, self.rank, self.world = driver, rank, world
        driver.device_set(rank % driver.count() if device is None else device)
        options = make_options(rank, world, timeout_ms, name)
        identity = UniqueId.from_buffer_copy(unique_id)
        self.comm = driver.result_of("comm_create", ctypes.byref(identity), ctypes.byref(options))
        self.stream = driver.result_of("stream_create", 0)
        self.to, self.other = (driver.result_of("memory_allocate", BUFFER_BYTES) for _ in range(2))

    def close(self) -> None:
        """Free all resources of the rank."""
        for address in (self.to, self.other):
            self.driver.memory_free(address)
        self.driver.stream_destroy(self.stream)
        self.driver.comm_destroy(self.comm)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.driver.stream_synchronize(self.stream)

    def run(self, function: str, *arguments: Any) -> None:
        """Call a collective on this rank's communicator and stream, and wait for it."""
        getattr(self.driver, function)(*arguments, self.comm, self.stream)
        self.synchronize()

    def read(self, address: int, dtype: Dtype, count: int) -> Array:
        """Elements of the device."""
        raw = self.driver.read(address, count * dtype.numpy.itemsize)
        return np.frombuffer(raw, dtype.numpy)


def make_options(rank: int, world: int, timeout_ms: int, name: str) -> Any:
    """``isthmus_comm_options``."""
    size = ctypes.sizeof(Options)
    return Options(struct_size=size, rank=rank, world_size=world, timeout_ms=timeout_ms, name=name.encode())


def new_id(driver: Driver) -> bytes:
    """A unique id."""
    made = UniqueId()
    driver.comm_unique_id(ctypes.byref(made))
    return bytes(made)


@cache
def elements(dtype: Dtype, count: int, rank: int, seed: int = 0) -> Array:
    """Small whole numbers, so that sums over ranks are exact; shape (count,)."""
    generator = np.random.default_rng((seed, rank, dtype.code, count))
    low = -3 if dtype.kind in ("int", "float", "complex") else 0
    values: Array = generator.integers(low, 2 if dtype.kind == "bool" else 4, count).astype(np.float64)
    if dtype.kind == "complex":
        return np.asarray(values + 1j * generator.integers(-3, 4, count)).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def is_supported(dtype: Dtype, op: int) -> bool:
    """Whether driver.h guarantees a reduction of a dtype."""
    name = next(key for key, value in OPS.items() if value == op).removeprefix("ISTHMUS_")
    bits = ("BAND", "BOR", "BXOR")
    return {
        "int": name != "AVG",
        "uint": name != "AVG",
        "bool": name not in ("AVG", "PREMUL_SUM"),
        "float": name not in bits,
        "complex": name in ("SUM", "PRODUCT", "AVG", "PREMUL_SUM"),
    }[dtype.kind]


def expected_reduction(inputs: list[Array], dtype: Dtype, op: int, factors: list[Array]) -> Array:
    """The reduction by NumPy, in the order of the ranks, rounded once as PyTorch does."""
    wide = inputs
    if dtype.kind == "float" and dtype.numpy.itemsize < 4:
        wide = [array.astype(np.float32) for array in inputs]
    name = next(key for key, value in OPS.items() if value == op).removeprefix("ISTHMUS_")
    if dtype.kind == "bool":
        logical = {"SUM": "or", "MAX": "or", "BOR": "or", "BXOR": "xor"}.get(name, "and")
        return reduce(getattr(np, f"logical_{logical}"), wide)
    if name == "PREMUL_SUM":
        wide = [a * f.astype(a.dtype) for a, f in zip(wide, factors, strict=True)]
    functions: dict[str, Any] = {"PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}
    functions |= {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
    total = reduce(functions.get(name, np.add), wide)
    if name == "AVG":
        parts = total.view(total.real.dtype)  # NumPy divides complex numbers in another way
        total = (parts / parts.dtype.type(len(inputs))).view(total.dtype)
    if dtype.name == "float8_e4m3fn":  # ml_dtypes makes NaN where it overflows
        total = np.clip(total, -448, 448)
    with np.errstate(all="ignore"):
        return np.asarray(total.astype(dtype.numpy))


def is_same(found: Array, wanted: Array) -> bool:
    """Bit for bit, but any NaN is a NaN."""
    if wanted.dtype.kind in "biu":
        return found.tobytes() == wanted.tobytes()
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    return np.array_equal(found.astype(wide), wanted.astype(wide), equal_nan=True)


def count_of(nbytes: int, dtype: Dtype) -> int:
    """Return the number of elements in some bytes."""
    return -(-nbytes // dtype.numpy.itemsize)


def check_reductions(self: Rank, nbytes: int, functions: list[str], in_place: bool) -> list[str]:
    """Check every dtype with every reduction; return the errors.

    Args:
        nbytes: of the result per rank.
        functions: of all_reduce, reduce, reduce_scatter.
        in_place: from is where the result goes.
    """
    wrong = []
    for dtype in DTYPES.values():
        for op_name, op in OPS.items():
            for function in functions:
                if not _check_reduction(self, function, dtype, op, count_of(nbytes, dtype), in_place):
                    wrong.append(f"{function} {dtype.name} {op_name}")
    return wrong


def _check_reduction(self: Rank, function: str, dtype: Dtype, op: int, count: int, in_place: bool) -> bool:
    scatters, size = function == "reduce_scatter", dtype.numpy.itemsize
    total = count * self.world if scatters else count
    inputs = [elements(dtype, total, rank) for rank in range(self.world)]
    factors = [elements(dtype, 1, rank, seed=1) for rank in range(self.world)]
    factor = factors[self.rank].ctypes.data if op == PREMUL_SUM else None
    to = self.to + (self.rank * count * size if scatters and in_place else 0)
    source = self.to if in_place else self.other
    self.driver.write(source, inputs[self.rank])
    root = [self.world - 1] if function == "reduce" else []
    arguments = (to, source, count, dtype.code, op, factor, *root)
    if not is_supported(dtype, op):
        status = self.driver.status(function, *arguments, self.comm, self.stream)
        return status == interface.Status.UNSUPPORTED and dtype.name in self.driver.last_error()
    self.run(function, *arguments)
    if root and self.rank != root[0]:
        return not in_place or is_same(self.read(source, dtype, count), inputs[self.rank])
    if scatters:
        inputs = [array[self.rank * count :][:count] for array in inputs]
    return is_same(self.read(to, dtype, count), expected_reduction(inputs, dtype, op, factors))


def check_rounding(self: Rank, count: int) -> list[str]:
    """Sums of any floats are those of float32 in the order of the ranks, rounded once; NaN and infinity too."""
    wrong = []
    for dtype in (d for d in DTYPES.values() if d.kind == "float"):
        inputs = []
        for rank in range(self.world):
            values = np.random.default_rng(rank).standard_normal(count) * 10.0 ** (np.arange(count) % 9 - 6)
            values[:4] = [np.nan, np.inf, 1e-7, 3e38]
            with np.errstate(all="ignore"):
                inputs.append(values.astype(dtype.numpy))
        for op in (SUM, OPS["ISTHMUS_MAX"], AVG):
            self.driver.write(self.other, inputs[self.rank])
            self.run("all_reduce", self.to, self.other, count, dtype.code, op, None)
            with np.errstate(all="ignore"):
                wanted = expected_reduction(inputs, dtype, op, [])
            if not is_same(self.read(self.to, dtype, count), wanted):
                wrong.append(f"{dtype.name} {op}")
    return wrong


def check_movement(self: Rank, nbytes: int, in_place: bool) -> list[str]:
    """Check every function that moves elements, with every dtype; return the errors."""
    return [
        f"{function.__name__} {dtype.name}"
        for dtype in DTYPES.values()
        for function in (_broadcast, _all_gather, _gather, _scatter, _all_to_all, _all_to_all_v)
        if not function(self, dtype, count_of(nbytes, dtype), in_place)
    ]


def _broadcast(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    root = self.world // 2
    self.driver.write(self.to, elements(dtype, count, self.rank))
    self.run("broadcast", self.to, count, dtype.code, root)
    return is_same(self.read(self.to, dtype, count), elements(dtype, count, root))


def _all_gather(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    source = self.to + self.rank * count * dtype.numpy.itemsize if in_place else self.other
    self.driver.write(source, elements(dtype, count, self.rank))
    self.run("all_gather", self.to, source, count, dtype.code)
    wanted = np.concatenate([elements(dtype, count, rank) for rank in range(self.world)])
    return is_same(self.read(self.to, dtype, count * self.world), wanted)


def _gather(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    root = self.world - 1
    placed = in_place and self.rank == root
    source = self.to + self.rank * count * dtype.numpy.itemsize if placed else self.other
    self.driver.write(source, elements(dtype, count, self.rank))
    self.run("gather", self.to if self.rank == root else None, source, count, dtype.code, root)
    wanted = np.concatenate([elements(dtype, count, rank) for rank in range(self.world)])
    return self.rank != root or is_same(self.read(self.to, dtype, count * self.world), wanted)


def _scatter(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    root, total = self.world - 1, count * self.world
    placed = in_place and self.rank == root
    to = self.other + self.rank * count * dtype.numpy.itemsize if placed else self.to
    self.driver.write(self.other, elements(dtype, total, root))
    self.run("scatter", to, self.other if self.rank == root else None, count, dtype.code, root)
    wanted = elements(dtype, total, root)[self.rank * count : (self.rank + 1) * count]
    return is_same(self.read(to, dtype, count), wanted)


def _all_to_all(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    total = count * self.world
    self.driver.write(self.other, elements(dtype, total, self.rank))
    self.run("all_to_all", self.to, self.other, count, dtype.code)
    wanted = [elements(dtype, total, r)[self.rank * count :][:count] for r in range(self.world)]
    return is_same(self.read(self.to, dtype, total), np.concatenate(wanted))


def _all_to_all_v(self: Rank, dtype: Dtype, count: int, in_place: bool) -> bool:
    def sent(source: int, target: int) -> int:
        return count * ((source + 2 * target) % 3) // 2

    array = ctypes.c_size_t * self.world
    to_counts = [sent(rank, self.rank) for rank in range(self.world)]
    from_counts = [sent(self.rank, rank) for rank in range(self.world)]
    # Received back to front, with a gap after each.
    to_offsets = [sum(to_counts[r + 1 :]) + self.world - r for r in range(self.world)]
    from_offsets = [sum(from_counts[:r]) for r in range(self.world)]
    arrays = [array(*values) for values in (to_counts, to_offsets, from_counts, from_offsets)]
    total = sum(from_counts)
    self.driver.write(self.other, elements(dtype, total, self.rank))
    pointers = [ctypes.cast(values, ctypes.c_void_p) for values in arrays]
    self.run("all_to_all_v", self.to, *pointers[:2], self.other, *pointers[2:], dtype.code)
    size = dtype.numpy.itemsize
    for rank in range(self.world):
        start = sum(sent(rank, r) for r in range(self.rank))
        all_sent = elements(dtype, sum(sent(rank, r) for r in range(self.world)), rank)
        found = self.read(self.to + to_offsets[rank] * size, dtype, to_counts[rank])
        if not is_same(found, all_sent[start : start + to_counts[rank]]):
            return False
    return True


JOBS: dict[str, Job] = {job.__name__: job for job in (check_reductions, check_rounding, check_movement)}


def job(function: Job) -> Job:
    """Register a job of a test file."""
    JOBS[function.__name__] = function
    return function


@contextmanager
def open_rank(driver: Driver, message: dict[str, Any]) -> Iterator[Rank]:
    """Create the rank described by a message, for one job."""
    rank = Rank(driver, bytes.fromhex(message["id"]), message["rank"], message["world"], **message["options"])
    try:
        yield rank
    finally:
        rank.close()


def answer(driver: Driver, message: dict[str, Any]) -> dict[str, Any]:
    """Run a job; a failure of the driver is a valid result."""
    if message["job"] == "new_id":
        return {"result": new_id(driver).hex()}
    begin = time.monotonic()
    try:
        with open_rank(driver, message) as rank:
            return {"result": JOBS[message["job"]](rank, **message["arguments"])}
    except DriverError as error:
        seconds = time.monotonic() - begin
        return {"status": error.status, "message": str(error), "seconds": seconds, "result": None}
    except Exception:
        return {"status": None, "message": traceback.format_exc(), "seconds": 0, "result": None}


def main() -> None:
    """Serve jobs until the input ends."""
    from tests.helpers import host_fault_jobs  # noqa: F401  its jobs register themselves

    driver = Driver()
    driver.initialize()
    for line in sys.stdin:
        print(json.dumps(answer(driver, json.loads(line))), flush=True)


def descriptors() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    sys.modules["tests.helpers.host_rank_jobs"] = sys.modules["__main__"]
    main()
    os._exit(0)  # streams of failed jobs may still wait
