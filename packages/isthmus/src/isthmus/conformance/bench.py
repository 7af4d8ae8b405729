"""``isthmus conform bench``: the time of each operator of a library relative to the machine's limits.

The limits are measured in the same run, between the operators: bytes read and written at the bandwidth of the
device's own copies of that size, and for matrix products the FLOP rate that the chip's maker states (``peak_flops``
in driver.toml), or else that of the chip's fastest product in the run, or of NumPy's matmul where the CPU is the
chip. An operator's ratio is its limit divided by its time; 1 is as fast as the limit. The comparison is unfair with
other work on the machine, for products without a stated rate if the chip's fastest is slow, and for tensors so small
that the call dominates. PyTorch is not needed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import log, prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from isthmus.conformance.bench_cases import bench_cases, flops
from isthmus.conformance.bench_limits import Limits, Timed
from isthmus.conformance.calling import KernelError, make_context
from isthmus.conformance.device import Device
from isthmus.conformance.golden import Case, Reader
from isthmus.conformance.libraries_target import LibrariesTarget
from isthmus.conformance.plan import NotClaimed, Plan
from isthmus.opset import dtypes as dt
from isthmus.opset.library import HOST
from isthmus.opset.schema import parse
from isthmus_common.files import make_folder, write_file

PROBE_EVERY = 8  # cases


class Row(NamedTuple):
    """One operator, dtype and library.

    Attributes:
        operator: overload.
        dtype: of the case.
        library: library of the kernel.
        case: id of the sample.
        nbytes: bytes that must be read and written.
        flops: floating-point operations of a product, else 0.
        seconds: time of one call in the best batch.
        median_seconds: time of one call in the median batch.
        limit_seconds: time of one call at the limit.
        bound: the limit that applies, "bytes" or "flops".
        ratio: limit_seconds / seconds.
    """

    operator: str
    dtype: str
    library: str
    case: str
    nbytes: int
    flops: int
    seconds: float
    median_seconds: float
    limit_seconds: float
    bound: str
    ratio: float


class Bench:
    """The operators of a driver's libraries on its first device."""

    def __init__(self, target: LibrariesTarget, peak_flops: Mapping[str, float]) -> None:
        self._peak_flops = peak_flops
        self.device = target.device
        self.libraries = target.libraries

    def names(self) -> set[str]:
        """Return the operators of all libraries."""
        return {name for library in self.libraries for name in library.operators}

    def run(
        self, golden: Reader, names: set[str], rounds: int, at: Callable[[str, int, int], None]
    ) -> dict[str, Any]:
        """Time the operators.

        Returns:
            The content of bench.json: device, limits, rows, and skipped cases with the reason.
        """
        limits, left_out = Limits(self.device, self._peak_flops), dict[str, str]()
        cases = bench_cases(golden, names & self.names())
        timed: list[tuple[Case, str, int, Timed]] = []
        for n, case in enumerate(cases):
            at(case.operator, n, len(cases))
            if n % PROBE_EVERY == 0:
                limits.measure(rounds)
            timed += self._time(golden, case, rounds, left_out)
        limits.measure(rounds)
        limits.close()
        rates: dict[str, float] = {}
        for case, _, _, call in timed:
            rates[case.dtype] = max(rates.get(case.dtype, 0.0), flops(case) / call.best)
        bandwidth = limits.bandwidth()
        peak = limits.peak({name: rate for name, rate in rates.items() if rate})
        return {
            "driver": self.device.name,
            "device": self.device.driver.properties(self.device.index).name.decode(),
            "rounds": rounds,
            "bandwidth_bytes_per_second": bandwidth,
            "matmul_flops_per_second": peak,
            "rows": [_row(*each, bandwidth, peak)._asdict() for each in timed],
            "left_out": left_out,
        }

    def _time(
        self, golden: Reader, case: Case, rounds: int, left_out: dict[str, str]
    ) -> list[tuple[Case, str, int, Timed]]:
        """Time a case on every library with its operator, interleaved; return case, library, bytes, times."""
        schema = parse(golden.operators[case.operator].schema)
        found = []
        with ExitStack() as stack:
            for library in self.libraries:
                if case.operator not in library.operators:
                    continue
                try:
                    plan = Plan(library.operators[case.operator], schema, case, self.device.alignment)
                    call = Timed(stack.enter_context(prepare_kernel(self.device, plan)))
                    call.calibrate()
                except (NotClaimed, KernelError) as reason:
                    left_out[f"{case.operator} {case.dtype} {library.name}"] = str(reason)
                    continue
                found.append((case, library.name, _traffic(plan), call))
            for _ in range(rounds):
                for *_, call in found:
                    call.measure()
        return found


@contextmanager
def prepare_kernel(device: Device, plan: Plan) -> Iterator[Callable[[int], None]]:
    """Yield a function that calls the kernel n times on the default stream and waits for the work."""
    host = bool(plan.kernel.flags & HOST)
    if host and not device.host_addressable:
        raise NotClaimed("it computes on the CPU, which cannot access this device's memory")
    shift = device.host_offset if host else 0
    explained: list[str] = []
    scratch: dict[int, int] = {}

    def workspace(nbytes: int) -> int:
        if nbytes not in scratch:
            scratch[nbytes] = device.allocate(max(nbytes, 1))
        return scratch[nbytes] + shift

    base = device.allocate(plan.image.nbytes)
    device.write(base, plan.image.bytes(0))
    context, kept = make_context(device.index, 0, 1, workspace, explained)
    frame = plan.frame(base + shift, device.dlpack_device)
    call = frame.prepare_call(plan.kernel, context, explained)

    def body(calls: int) -> None:
        for _ in range(calls):
            call()
        device.synchronize()

    try:
        yield body
    finally:
        device.synchronize()
        for address in (base, *scratch.values()):
            device.free(address)
        del frame, kept


def _traffic(plan: Plan) -> int:
    """Return the bytes that the kernel must move: each element once, updated elements twice."""
    total = 0
    for slot in plan.image.slots:
        elements = prod(slot.shape) * dt.DTYPES[slot.dtype].numpy.itemsize
        total += min(elements, slot.size) * (2 if slot.writable and slot.storage is not None else 1)
    return total


def _row(
    case: Case,
    library: str,
    nbytes: int,
    call: Timed,
    bandwidth: Mapping[int, float],
    peak: Mapping[str, float],
) -> Row:
    nearest = min(bandwidth, key=lambda probe: abs(log(probe / max(nbytes, 1))))
    count = flops(case)
    by_bytes = nbytes / bandwidth[nearest]
    by_flops = count / peak[case.dtype] if count else 0.0
    limit, bound = max((by_bytes, "bytes"), (by_flops, "flops"), key=lambda each: each[0])
    seconds = (call.best, median(call.seconds), limit)
    place = (case.operator, case.dtype, library, case.id)
    return Row(*place, nbytes, count, *seconds, bound, limit / call.best)


def table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the printed table, the lowest ratio first."""
    head = ["operator", "dtype", "library", "sample", "KiB", "us", "limit us", "bound", "ratio"]
    rows = [Row(**row) for row in result["rows"]]
    return head, [
        [
            *(row.operator, row.dtype, row.library, row.case, f"{row.nbytes / 1024:.1f}"),
            *(f"{row.seconds * 1e6:.1f}", f"{row.limit_seconds * 1e6:.1f}", row.bound, f"{row.ratio:.3f}"),
        ]
        for row in sorted(rows, key=lambda row: row.ratio)
    ]


def write(folder: Path, result: dict[str, Any]) -> Path:
    """Write bench.json and return its path."""
    make_folder(folder)
    write_file(folder / "bench.json", [json.dumps(result, indent=1).encode()])
    return folder / "bench.json"
