"""The host chip's collectives against gloo, between 2 and between 4 processes of this machine.

Each rank is a process that calls in turn gloo by torch.distributed on CPU tensors, and the driver's table on device
memory. Goals: at 64 MB three times gloo's bandwidth, at 4 KB a fifth of its latency. The limit is every rank copying
that many bytes once, all at the same time. All-reduce is also measured with each algorithm, to judge the default.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
WORLDS = (2, 4)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
ALGORITHMS = ("mesh", "ring", "halving-doubling")
ALGORITHM = "ISTHMUS_HOST_COLLECTIVE"  # the driver's variable; if unset, the driver chooses
CALLS = {4 << 10: 200, 64 << 10: 100, 1 << 20: 20, 16 << 20: 4, 64 << 20: 2}
FLOAT32, SUM = 7, 0
LATENCY_GOAL, BANDWIDTH_GOAL = 0.2, 1 / 3  # times over gloo's
UNFAIR = (
    "Gloo is called by torch.distributed and sends through the loopback device, as between machines; the chip "
    "shares memory. The driver is called by ctypes with a wait after every call, without torch.distributed's "
    "overhead. Buffers are warm; the bytes are those of the larger buffer of a call. With more busy processes than "
    "cores, both wait for the scheduler."
)
Call = Callable[[], Any]


class Gloo:
    """Calls on CPU tensors of float32."""

    def __init__(self, rank: int, world: int, nbytes: int) -> None:
        import torch
        import torch.distributed as dist

        whole, part = (torch.ones(nbytes // 4 // n) for n in (1, world))
        other = torch.ones(nbytes // 4)
        self.calls: dict[str, Call] = {
            "all_reduce": lambda: dist.all_reduce(whole),
            "all_gather": lambda: dist.all_gather_single(whole, part),
            "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole),
            "broadcast": lambda: dist.broadcast(whole, 0),
            "all_to_all": lambda: dist.all_to_all_single(whole, other),
        }


class Chip:
    """Calls of the driver's table on device memory."""

    def __init__(self, driver: Any, comm: int, stream: int, world: int, nbytes: int) -> None:
        self._driver = driver
        whole, other = (driver.result_of("memory_allocate", nbytes) for _ in range(2))
        for address in (whole, other):
            driver.set_async(address, 0, nbytes, stream)
        driver.stream_synchronize(stream)
        self._memory = (whole, other)
        count, share, tail = nbytes // 4, nbytes // 4 // world, (comm, stream)
        arguments = {
            "all_reduce": (whole, whole, count, FLOAT32, SUM, None, *tail),
            "all_gather": (whole, other, share, FLOAT32, *tail),
            "reduce_scatter": (other, whole, share, FLOAT32, SUM, None, *tail),
            "broadcast": (whole, count, FLOAT32, 0, *tail),
            "all_to_all": (whole, other, share, FLOAT32, *tail),
        }
        self.calls: dict[str, Call] = {
            name: self._call(getattr(driver, name), values, stream) for name, values in arguments.items()
        }

    def _call(self, function: Callable[..., None], arguments: tuple[Any, ...], stream: int) -> Call:
        synchronize = self._driver.stream_synchronize

        def call() -> None:
            function(*arguments)
            synchronize(stream)

        return call

    def close(self) -> None:
        """Free the memory."""
        for address in self._memory:
            self._driver.memory_free(address)


def worker(rank: int, world: int, store: str, rounds: int) -> None:
    """Run one rank; print the seconds of every round as JSON at the end."""
    import torch
    import torch.distributed as dist

    from isthmus.drivers import interface
    from isthmus.drivers.driver import Driver

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    driver = Driver(str(host_library()))
    driver.initialize()
    driver.device_set(rank)
    comm, stream = join(driver, interface, rank, world), driver.result_of("stream_create", 0)
    found: dict[str, list[list[float]]] = {}
    for nbytes in SIZES:
        chip, gloo = Chip(driver, comm, stream, world, nbytes), Gloo(rank, world, nbytes)
        source, target = torch.ones(nbytes // 4), torch.ones(nbytes // 4)
        for name in ("all_reduce",) if os.environ.get(ALGORITHM) else COLLECTIVES:
            peers = (chip.calls[name], gloo.calls[name], lambda: target.copy_(source))  # noqa: B023
            found[f"{name} {nbytes}"] = [
                [measure(call, CALLS[nbytes], dist.barrier) for call in peers] for _ in range(rounds + 1)
            ][1:]
        chip.close()
    print(json.dumps(found), flush=True)
    dist.barrier()


def host_library() -> Path:
    """Return the path of the host chip's library."""
    import isthmus.drivers.host

    return Path(next(iter(isthmus.drivers.host.__path__))) / "libisthmus_host.so"


def join(driver: Any, interface: Any, rank: int, world: int) -> int:
    """Create the driver's communicator; its id is broadcast by gloo."""
    import torch.distributed as dist

    identity = interface.structure("unique_id")()
    if rank == 0:
        driver.comm_unique_id(ctypes.byref(identity))
    carried = [bytes(identity)]
    dist.broadcast_object_list(carried, src=0)
    identity = type(identity).from_buffer_copy(carried[0])
    options = interface.structure("comm_options")(
        struct_size=ctypes.sizeof(interface.structure("comm_options")),
        rank=rank,
        world_size=world,
        timeout_ms=60_000,
        name=b"benchmark",
    )
    return int(driver.result_of("comm_create", ctypes.byref(identity), ctypes.byref(options)))


def measure(call: Call, calls: int, barrier: Call) -> float:
    """Return the seconds per call, after a barrier of all ranks."""
    call()
    barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def run(world: int, rounds: int, algorithm: str) -> dict[str, list[list[float]]]:
    """Return the rounds of every case: (chip, gloo, copy) seconds of the slowest rank."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "ISTHMUS_HOST_DEVICES": str(world),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            ALGORITHM: algorithm,
        }
        command = [sys.executable, __file__, "--rounds", str(rounds), "--store", f"{folder}/store"]
        command += ["--world", str(world)]
        ranks = [
            subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, env=environment)
            for rank in range(world)
        ]
        outputs = [process.communicate()[0] for process in ranks]
    for rank, process in enumerate(ranks):
        if process.returncode:
            raise SystemExit(f"collectives: rank {rank} of {world} exited with code {process.returncode}")
    answers = [json.loads(output) for output in outputs]
    return {
        case: [
            [max(peer) for peer in zip(*slowest, strict=True)]
            for slowest in zip(*(answer[case] for answer in answers), strict=True)
        ]
        for case in answers[0]
    }


def row(world: int, algorithm: str, case: str, rounds: list[list[float]]) -> dict[str, Any]:
    """Return one row of the table."""
    from harness import Timing, ratio

    chip, gloo, copy = (Timing(seconds=list(seconds)) for seconds in zip(*rounds, strict=True))
    name, nbytes = case.split()
    return {
        "ranks": world,
        "collective": name,
        "algorithm": algorithm or "by default",
        "KiB": int(nbytes) >> 10,
        "chip_us": chip.median * 1e6,
        "gloo_us": gloo.median * 1e6,
        "chip_GB/s": int(nbytes) / chip.median / 1e9,
        "gloo_GB/s": int(nbytes) / gloo.median / 1e9,
        "chip_over_gloo": ratio(chip, gloo),
        "copy_over_chip": ratio(copy, chip),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=7, help="measured rounds (default 7; fewer are not saved)"
    )
    for name in ("--rank", "--world"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.store:
        worker(options.rank, options.world, options.store, options.rounds)
        return
    from harness import print_table, save

    rows = [
        row(world, algorithm, case, rounds)
        for world in WORLDS
        for algorithm in ("", *ALGORITHMS)
        for case, rounds in run(world, options.rounds, algorithm).items()
    ]
    print_table(rows)
    for size, goal in ((SIZES[0], LATENCY_GOAL), (SIZES[-1], BANDWIDTH_GOAL)):
        for found in rows:
            if found["KiB"] != size >> 10 or found["algorithm"] in ALGORITHMS:
                continue
            name = f"{found['collective']}, {found['ranks']} ranks, {found['KiB']} KiB"
            print(f"{name}: {found['chip_over_gloo']:.3f} of gloo's time (goal at most {goal:.3f})")
    if options.rounds >= 7:
        save("collectives", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "calls": CALLS})


if __name__ == "__main__":
    main()
