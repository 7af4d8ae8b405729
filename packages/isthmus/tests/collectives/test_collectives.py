"""The c10d backend "chip": two processes, rank r on chip:r, each collective against its expected values."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.children import Child, finish, output, start_module
from tests.helpers.outside_driver import build
from tests.helpers.run_rank import CHECKS

# Checks that need a separate group or job.
APART = (
    "default_backend",
    "composite_backend",
    "killed_peer",
    "killed_peer_of_gloo",
    "exit_without_destroying",
    "matrix",
)
OF_GLOO = ("refusals_of_gloo", "collective_that_outlasts_its_profile_has_no_row")
TOGETHER = tuple(name for name in CHECKS if name not in (*APART, *OF_GLOO))
THROUGH_GLOO = tuple(name for name in CHECKS if name not in (*APART, "reductions_of_the_driver"))
# Checks in which a tensor takes another path if the CPU cannot access its memory.
COPIED = ("every_operation", "exchange_of_rows", "any_layout")
# A driver that cannot connect rank 1, like the host chip with ranks on several machines.
REFUSED_BY_ONE = "table.comm_create = refuse_rank_1;"
WITHOUT_WINDOW = "table.host_window = 0; table.delegate = ISTHMUS_DELEGATE_NONE;"


class Ranks:
    """Run checks on some ranks: exit statuses, and the error of each check by rank."""

    def __init__(self, folder: Path, names: tuple[str, ...], size: int = 2, **environment: str) -> None:
        processes = [start(rank, size, folder / "store", names, environment) for rank in range(size)]
        self.outputs = [printed for printed, _ in finish(processes, 240)]
        self.status = [process.returncode for process in processes]
        self.errors = [reports(output) for output in self.outputs]

    def assert_passed(self, name: str, rank: int) -> None:
        error = self.errors[rank].get(name, f"did not run:\n{self.outputs[rank]}")
        assert error is None, f"rank {rank}: {error}"


def start(
    rank: int, size: int, store: Path, names: tuple[str, ...], environment: dict[str, str]
) -> Child | subprocess.Popen[str]:
    settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "1GiB", **environment}
    fresh = names == ("exit_without_destroying",)
    words = (str(rank), str(size), str(store), *names)
    return start_module("tests.helpers.run_rank", *words, merged=True, fresh=fresh, **settings)


def reports(output: str) -> dict[str, str | None]:
    lines = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    return {line["check"]: line["error"] for line in lines}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(tmp_path_factory.mktemp("ranks"), TOGETHER)


@pytest.fixture(scope="module")
def ranks_through_gloo(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return Ranks(tmp_path_factory.mktemp("gloo"), THROUGH_GLOO, ISTHMUS_COLLECTIVES="gloo")


@pytest.fixture(scope="module")
def ranks_with_copies(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("copies")
    return Ranks(folder, COPIED, ISTHMUS_DRIVER=build(folder, WITHOUT_WINDOW), ISTHMUS_COLLECTIVES="gloo")


@pytest.mark.parametrize("name", TOGETHER)
def test_two_ranks(ranks: Ranks, name: str) -> None:
    for rank in range(2):
        ranks.assert_passed(name, rank)


@pytest.mark.parametrize("name", THROUGH_GLOO)
def test_two_ranks_through_gloo(ranks_through_gloo: Ranks, name: str) -> None:
    for rank in range(2):
        ranks_through_gloo.assert_passed(name, rank)


@pytest.mark.parametrize("name", COPIED)
def test_two_ranks_without_a_host_window(ranks_with_copies: Ranks, name: str) -> None:
    for rank in range(2):
        ranks_with_copies.assert_passed(name, rank)


def test_ranks_that_the_driver_cannot_connect_use_gloo(tmp_path: Path) -> None:
    names = ("every_operation", "refusals_of_gloo", "receive_from_any_source", "groups")
    ranks = Ranks(tmp_path, names, ISTHMUS_DRIVER=build(tmp_path, REFUSED_BY_ONE))
    for rank in range(2):
        for name in names:
            ranks.assert_passed(name, rank)


def test_threads_are_ranks() -> None:
    """Two ranks in one process, each on its own device."""
    code = """
    import threading, torch
    from datetime import timedelta
    from isthmus import _C
    from isthmus.chip.distributed import _make_gloo
    from torch.distributed import HashStore, AllreduceOptions
    store, found, errors = HashStore(), [None, None], []
    def run(rank):
        try:
            options = _C.ChipBackendOptions()
            options._timeout, options.group_name = timedelta(seconds=30), "threads"
            options.global_ranks_in_group = [0, 1]
            backend = _C.ChipBackend(store, rank, 2, options, _make_gloo)
            tensor = torch.full((100_000,), 1.0 + rank, device=f"chip:{rank}")
            for _ in range(5):
                backend.allreduce([tensor], AllreduceOptions()).wait()
            found[rank] = tensor.unique().tolist()
            backend.shutdown()
        except Exception as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(found, errors)
    """
    assert output(code, ISTHMUS_HOST_DEVICES="2") == "[[48.0], [48.0]] []"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["default_backend", "composite_backend"])
def test_backend_of_a_group(tmp_path: Path, name: str) -> None:
    ranks = Ranks(tmp_path, (name,))
    for rank in range(2):
        ranks.assert_passed(name, rank)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "transport"), [("killed_peer", "driver"), ("killed_peer_of_gloo", "gloo")])
def test_a_killed_peer_is_an_error(tmp_path: Path, name: str, transport: str) -> None:
    ranks = Ranks(tmp_path, (name,), ISTHMUS_COLLECTIVES=transport)
    assert ranks.status[1] == -signal.SIGKILL
    ranks.assert_passed(name, 0)


@pytest.mark.full
def test_exit_without_destroying_the_group(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, ("exit_without_destroying",))
    assert ranks.status == [0, 0], ranks.outputs


@pytest.mark.full
def test_groups_can_be_recreated(tmp_path: Path) -> None:
    """The store still has the keys of earlier groups under the same names."""
    script = Path(__file__).parents[1] / "scripts" / "groups_anew.py"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
        str(script),
    ]
    environment = {**os.environ, "ISTHMUS_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=200, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.split("\n")) == ["", "rank 0: done", "rank 1: done"]


def test_the_timeout_of_a_group_changes_for_later_operations() -> None:
    code = """
    import pickle, warnings
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    set_timeout = getattr(dist, "set_timeout", distributed_c10d._set_pg_timeout)
    warnings.simplefilter("error")
    dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=9))
    x = torch.ones(3, device="chip")
    dist.all_reduce(x)
    set_timeout(timedelta(seconds=4))
    dist.all_reduce(x)
    both = dist.new_group(backend="cpu:gloo,chip:chip")
    set_timeout(timedelta(seconds=5), both)
    dist.all_reduce(x, group=both)
    entries = pickle.loads(torch.chip.dump_flight_recorder())["entries"]
    print([entry["timeout_ms"] for entry in entries], both._get_backend(torch.device("cpu")).options._timeout)
    """
    assert output(code) == "[9000, 4000, 5000] 0:00:05"


def test_a_graph_gathers_into_the_memory_of_its_capture() -> None:
    """Megatron's FSDP allocates and releases storages within the capture."""
    code = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
    own, whole = torch.ones(4, device="chip"), torch.empty(4, device="chip")
    graph = torch.chip.Graph()
    whole.untyped_storage().resize_(0)
    with torch.chip.graph(graph):
        whole.untyped_storage().resize_(16)
        dist.all_gather_into_tensor(whole, own)
        double = whole * 2
        whole.untyped_storage().resize_(0)
    own.fill_(3)
    graph.replay()
    print(double.tolist())
    """
    assert output(code) == "[6.0, 6.0, 6.0, 6.0]"


def test_wait_in_a_graph_joins_the_stream_of_the_operation() -> None:
    code = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
    own, whole, side = torch.ones(4, device="chip"), torch.empty(4, device="chip"), torch.chip.Stream()
    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            work = dist.all_gather_into_tensor(whole, own, async_op=True)
        work.wait()
        double = whole * 2
    own.fill_(3)
    graph.replay()
    print(double.tolist())
    """
    assert output(code) == "[6.0, 6.0, 6.0, 6.0]"


@pytest.mark.parametrize("transport", ["driver", "gloo"])
def test_no_thread_drops_a_tensor_once_the_interpreter_exits(transport: str) -> None:
    """A drop takes the interpreter for the storage's Python object, which ends the thread in a destructor."""
    held = output(
        """
        import time, torch, torch.distributed as dist
        from isthmus import _C

        def held():
            tensor = torch.ones(1 << 16, device="chip")
            tensor.untyped_storage()  # has a Python object from now on
            dist.all_reduce(tensor)
            del tensor
            end = time.monotonic() + 5
            while torch.chip.memory_allocated() and time.monotonic() < end and not is_over:
                time.sleep(0.01)
            return torch.chip.memory_allocated()

        dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
        is_over = False
        print(held())
        _C.end_drops()
        is_over = True
        time.sleep(0.2)
        held()
        time.sleep(0.2)  # the watchdog has looked at it
        print(torch.chip.memory_allocated())
        """,
        ISTHMUS_COLLECTIVES=transport,
    )
    assert held.split() == ["0", str(4 << 16)]
