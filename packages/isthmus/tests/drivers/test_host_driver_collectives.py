"""The host chip's collectives between processes, by the driver's table: results, groups, and every way to fail."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.drivers.interface import Status
from tests.helpers import host_driver as hd
from tests.helpers.host_driver import Driver, DriverError
from tests.helpers.host_fault_jobs import LARGE, SMALL
from tests.helpers.host_rank_jobs import Rank, descriptors, new_id
from tests.helpers.host_ranks import Ranks, run_threads

REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter"]
DIRECT = 17_003  # bytes: more than the control file carries
ENVIRONMENT = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "1GiB"}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Eight processes with two devices each."""
    made = Ranks(8, **ENVIRONMENT)
    yield made
    made.close()


@pytest.fixture
def driver() -> Iterator[Driver]:
    with hd.of_this_process() as driver:
        yield driver


@pytest.mark.sampled(4)
@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("nbytes", [0, 112, DIRECT])
def test_reductions(ranks: Ranks, world: int, nbytes: int) -> None:
    arguments = {"nbytes": nbytes, "functions": REDUCTIONS, "in_place": nbytes == 112}
    assert ranks.run("check_reductions", world, arguments) == [[]] * world


def test_reductions_in_place_through_memory(ranks: Ranks) -> None:
    arguments = {"nbytes": DIRECT, "functions": REDUCTIONS, "in_place": True}
    assert ranks.run("check_reductions", 3, arguments) == [[]] * 3


@pytest.mark.parametrize("count", [1001, 20_011])
def test_halves_are_rounded_once(ranks: Ranks, count: int) -> None:
    assert ranks.run("check_rounding", 4, {"count": count}) == [[]] * 4


@pytest.mark.sampled(4)
@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("nbytes", [0, 112, DIRECT])
def test_elements_move(ranks: Ranks, world: int, nbytes: int) -> None:
    assert ranks.run("check_movement", world, {"nbytes": nbytes, "in_place": nbytes == 112}) == [[]] * world


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("algorithm", ["mesh", "ring", "halving-doubling"])
def test_each_algorithm(algorithm: str) -> None:
    code = """
from tests.helpers.host_ranks import run_threads
driver = Driver(); driver.initialize()
for world in (1, 2, 3, 4, 5, 8):
    for nbytes in (0, 1, 2000, 17_003):
        arguments = dict(nbytes=nbytes, functions=["all_reduce"], in_place=nbytes == 2000)
        found = run_threads(driver, "check_reductions", world, arguments)
        assert found == [[]] * world, (world, nbytes, found)
    # Several rounds of blocks.
    assert all(run_threads(driver, "all_reduces", world, dict(count=1_000_003, calls=2))), world
"""
    result = hd.run_script(code, ISTHMUS_HOST_COLLECTIVE=algorithm, **ENVIRONMENT)
    assert result.returncode == 0, result.stderr


def test_an_unknown_algorithm_is_refused() -> None:
    result = hd.run_script("Driver().initialize()", ISTHMUS_HOST_COLLECTIVE="tree")
    assert "ISTHMUS_HOST_COLLECTIVE=tree: unknown value; expected mesh, ring" in result.stderr


def test_strict_mode_and_virtual_memory() -> None:
    code = """
from tests.helpers import host_rank_jobs
from tests.helpers.host_ranks import run_threads
driver = Driver(); driver.initialize()
GRAIN = 2 * MIB
def reserve(self):  # two pages of memory in an order that is not the file's, from the middle of one on
    first, second = (self.driver.result_of("virtual_create", GRAIN) for _ in range(2))
    base = self.driver.result_of("virtual_reserve", 2 * GRAIN)
    self.driver.virtual_map(base, GRAIN, second, 3)
    self.driver.virtual_map(base + GRAIN, GRAIN, first, 3)
    self.driver.memory_free(self.to)
    self.to, self.base = base + GRAIN - 64 * 1024, base
def on_pieces(self, job, arguments):
    kept = self.to
    reserve(self)
    found = host_rank_jobs.JOBS[job](self, **arguments)
    self.to = self.driver.result_of("memory_allocate", 512)
    return found
host_rank_jobs.JOBS["on_pieces"] = on_pieces
for job, arguments in (
    ("check_reductions", dict(nbytes=70_003, functions=["all_reduce", "reduce_scatter"], in_place=True)),
    ("check_movement", dict(nbytes=70_003, in_place=True)),
    ("around_the_ring", dict(count=100_000, grouped=True)),
):
    found = run_threads(driver, "on_pieces", 3, dict(job=job, arguments=arguments))
    assert found in ([[]] * 3, [True] * 3), (job, found)
"""
    result = hd.run_script(code, ISTHMUS_HOST_STRICT="1", **ENVIRONMENT)
    assert result.returncode == 0, result.stderr


def test_threads_are_ranks_too(driver: Driver) -> None:
    assert run_threads(
        driver, "check_reductions", 2, {"nbytes": 112, "functions": REDUCTIONS, "in_place": False}
    ) == [[], []]
    assert run_threads(driver, "check_movement", 4, {"nbytes": DIRECT, "in_place": True}) == [[]] * 4
    assert all(run_threads(driver, "mixed_group", 4, {"count": SMALL}))


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_calls_follow_each_other(ranks: Ranks, world: int, count: int) -> None:
    assert all(ranks.run("all_reduces", world, {"count": count, "calls": 50}))


def test_two_streams_keep_the_order(ranks: Ranks) -> None:
    assert all(ranks.run("two_streams", 2))


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_messages(ranks: Ranks, count: int) -> None:
    assert all(ranks.run("around_the_ring", 4, {"count": count, "grouped": True}))
    assert all(ranks.run("around_the_ring", 1, {"count": count, "grouped": True}))
    assert all(ranks.run("mixed_group", 4, {"count": count}))
    assert all(ranks.run("many_messages", 2, {"count": count, "messages": 11}))


def test_small_messages_need_no_group(ranks: Ranks) -> None:
    assert all(ranks.run("around_the_ring", 4, {"count": SMALL, "grouped": False}))


def test_split(ranks: Ranks) -> None:
    assert all(all(found) for found in ranks.run("split", 5))


def failures(ranks: Ranks, job: str, world: int, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """Answers of ranks that must all have failed alike."""
    answers = ranks.answers(job, world, *arguments, **options)
    assert all("status" in found for found in answers), answers
    assert len({found["message"].partition(": ")[2] for found in answers}) == 1, answers
    return answers


def different(count: int, dtype: str, op: int) -> Any:
    """A case in which one rank reduces otherwise."""
    name = {0: "sum", 3: "max"}[op]
    words = ("all_reduce of 100 float32 (sum)", f"all_reduce of {count} {dtype} ({name})")
    return "differs", 3, {"count": count, "dtype": dtype, "op": op}, words


SKIPPED = ("communicator 'tp': operation 1 differs", "broadcast of 100 float32 with root 0", "rank 1 (")


@pytest.mark.parametrize(
    ("job", "world", "arguments", "words"),
    [
        ("skips_one", 3, {}, SKIPPED),
        *(different(*other) for other in ((99, "float32", 0), (100, "int32", 0), (100, "float32", 3))),
        ("parts_differ", 2, {}, ("rank 1 sends 1 elements to rank 0, which receives 3",)),
        ("message_differs", 2, {}, (f"sent {LARGE} float32, to be received {LARGE - 1} float32",)),
    ],
)
def test_what_differs_is_named(
    ranks: Ranks, job: str, world: int, arguments: dict[str, Any], words: tuple[str, ...]
) -> None:
    found = failures(ranks, job, world, arguments, name="tp")[0]
    assert found["status"] == Status.INVALID_ARGUMENT
    assert all(word in found["message"] for word in words), found["message"]


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_timeout_names_the_rank(ranks: Ranks, count: int) -> None:
    *waiting, late = ranks.run("one_stays_away", 3, {"count": count}, timeout_ms=300, name="dp")
    assert late == []
    for status, message, seconds, again, repeated, _, error in waiting:
        assert status == again == error == Status.TIMEOUT
        words = f"communicator 'dp': operation 4 (all_reduce of {count} float32 (sum)) timed out after 300 ms: rank 2"
        assert words in message and "did not arrive" in message
        assert words in repeated, "a communicator that failed stays so"
        assert 0.25 < seconds < 1.4


def test_a_message_without_a_receiver_times_out(ranks: Ranks) -> None:
    first, second = ranks.answers("message_without_receiver", 2, timeout_ms=300)
    assert first["status"] == Status.TIMEOUT and "did not receive it" in first["message"]
    assert second["result"] is None and "status" not in second


def test_a_stopped_rank_is_named(ranks: Ranks) -> None:
    ranks.start("one_is_signalled", 3, {"count": LARGE, "number": signal.SIGSTOP}, timeout_ms=500)
    try:
        found = [ranks.workers[rank].answer() for rank in (0, 2)]
    finally:
        ranks.workers[1].signal(signal.SIGCONT)
    for answer in (*found, ranks.workers[1].answer()):
        assert answer["status"] == Status.TIMEOUT
        assert f"rank 1 (process {ranks.workers[1].process.pid}) did not" in answer["message"]


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_killed_rank_is_named(ranks: Ranks, count: int) -> None:
    ranks.start("one_is_signalled", 3, {"count": count, "number": signal.SIGKILL}, timeout_ms=30_000)
    for answer in (ranks.workers[rank].answer() for rank in (0, 2)):
        assert answer["status"] == Status.PEER_LOST
        assert f"rank 1 (process {ranks.workers[1].process.pid}) exited" in answer["message"]
        assert answer["seconds"] < 15, "well before the timeout"
    ranks.replace(1)


def test_a_rank_that_leaves_is_named(ranks: Ranks) -> None:
    first, second, third = ranks.answers("leaves", 3)
    assert second["result"] is None and "status" not in second
    for answer in (first, third):
        assert answer["status"] == Status.PEER_LOST and "destroyed its communicator" in answer["message"]


@pytest.mark.parametrize("rank", [0, 1])
def test_an_abort_ends_all(ranks: Ranks, rank: int) -> None:
    for answer in failures(ranks, "aborts", 3, {"rank": rank}):
        assert answer["status"] == Status.ABORTED
        assert f"rank {rank} (process {ranks.workers[rank].process.pid}) aborted" in answer["message"]
        assert answer["seconds"] < 10


def test_a_stale_id_is_refused(ranks: Ranks, driver: Driver) -> None:
    identity, pid = ranks.run("stale_id", 1)[0].split()
    ranks.workers[0].signal(signal.SIGKILL)
    ranks.workers[0].process.wait(60)
    ranks.replace(0)
    with pytest.raises(
        DriverError, match=f"the id is stale: the communicator of process {pid} cannot"
    ) as caught:
        Rank(driver, bytes.fromhex(identity), 0, 2)
    assert caught.value.status == Status.PEER_LOST


def test_comm_create_refuses_invalid_arguments(driver: Driver) -> None:
    identity = new_id(driver)
    elsewhere = bytearray(identity)
    elsewhere[24:28] = b"none"  # the boot of another machine
    refusals = [
        (bytes(4096), 0, 1, Status.INVALID_ARGUMENT, "are not an id of the host chip"),
        (bytes(elsewhere), 0, 1, Status.UNSUPPORTED, "created on another machine"),
        (identity, 0, 0, Status.INVALID_ARGUMENT, "a world size of 0"),
        (identity, 2, 2, Status.INVALID_ARGUMENT, "rank 2 is not in 0 to 1"),
        (identity, 0, 2, Status.TIMEOUT, r"timed out after 50 ms waiting for ranks \[1\] of 2"),
    ]
    for bytes_of_id, rank, world, status, words in refusals:
        with pytest.raises(DriverError, match=words) as caught:
            Rank(driver, bytes_of_id, rank, world, timeout_ms=50)
        assert caught.value.status == status
    driver.group_start()
    with pytest.raises(DriverError, match="cannot be part of a group"):
        Rank(driver, new_id(driver), 0, 1)
    driver.group_end()
    with pytest.raises(DriverError, match="no group was started"):
        driver.group_end()


def test_an_id_belongs_to_one_communicator(driver: Driver) -> None:
    identity = new_id(driver)
    rank = Rank(driver, identity, 0, 1)
    with pytest.raises(DriverError, match="cannot be opened"):
        Rank(driver, identity, 0, 1)
    rank.close()


def test_calls_refuse_invalid_arguments(driver: Driver) -> None:
    rank = Rank(driver, new_id(driver), 0, 1, device=0)
    other_stream = Rank(driver, new_id(driver), 0, 1, device=1)
    to, tail = rank.to, (rank.comm, rank.stream)
    refusals: list[tuple[str, tuple[Any, ...], Status, str]] = [
        ("all_reduce", (to, to, 4, 99, 0, None, *tail), Status.INVALID_ARGUMENT, "99 is not a dtype"),
        ("all_reduce", (to, to, 4, 7, 8, None, *tail), Status.INVALID_ARGUMENT, "factor is null"),
        ("all_reduce", (to, to, 4, 7, 5, None, *tail), Status.UNSUPPORTED, "float32 has no reduction band"),
        (
            "all_reduce",
            (to, to, 1 << 40, 7, 0, None, *tail),
            Status.INVALID_ARGUMENT,
            "not inside an allocation",
        ),
        ("all_reduce", (to + 1, to + 1, 4, 7, 0, None, *tail), Status.INVALID_ARGUMENT, "is not aligned"),
        ("all_reduce", (to, to + 8, 4, 7, 0, None, *tail), Status.INVALID_ARGUMENT, "overlap"),
        ("all_to_all", (to, to, 4, 7, *tail), Status.INVALID_ARGUMENT, "it has no in-place form"),
        ("broadcast", (to, 4, 7, 1, *tail), Status.INVALID_ARGUMENT, "root 1 is not in 0 to 0"),
        ("broadcast", (other_stream.to, 4, 7, 0, *tail), Status.INVALID_ARGUMENT, "an allocation of chip 0"),
        (
            "broadcast",
            (to, 4, 7, 0, rank.comm, other_stream.stream),
            Status.INVALID_ARGUMENT,
            "the stream is of chip 1, the communicator of chip 0",
        ),
        (
            "broadcast",
            (to, 4, 7, 0, rank.stream, rank.stream),
            Status.INVALID_ARGUMENT,
            "is not a communicator",
        ),
    ]
    for function, arguments, status, words in refusals:
        hd.check_refused(driver, status, words, function, *arguments)
    rank.run("all_reduce", to, to, 4, 7, 0, None)  # nothing was enqueued, nothing failed
    rank.close()
    other_stream.close()
    with pytest.raises(DriverError, match="is not a communicator"):
        driver.comm_error(rank.comm)


def test_nothing_is_left_behind(ranks: Ranks, driver: Driver) -> None:
    before_shm = sorted(Path("/dev/shm").iterdir())
    counts = [ranks.run("count_descriptors", 4) for _ in range(5)]
    assert counts[0] == counts[-1]
    assert all(run_threads(driver, "all_reduces", 2, {"count": LARGE, "calls": 1}))
    gc.collect()
    files, mappings = descriptors(), mapped()
    for _ in range(5):
        assert all(run_threads(driver, "all_reduces", 2, {"count": LARGE, "calls": 1}))
    assert descriptors() == files
    assert mapped() == mappings == 0, "the control files are unmapped"
    assert sorted(Path("/dev/shm").iterdir()) == before_shm


def mapped() -> int:
    """Control files that this process maps."""
    return Path("/proc/self/maps").read_text().count("memfd:isthmus-communicator")


def test_activity_has_the_collectives() -> None:
    code = """
from tests.helpers.host_rank_jobs import Rank, new_id
from isthmus.drivers import interface
driver = Driver(); driver.initialize()
Activity = interface.structure("activity")
found = []
@ctypes.CFUNCTYPE(None, ctypes.POINTER(Activity), ctypes.c_size_t, ctypes.c_void_p)
def keep(records, count, _):
    found.extend((records[i].kind, records[i].name, records[i].bytes) for i in range(count))
rank = Rank(driver, new_id(driver), 0, 1)
driver.activity_start(ctypes.cast(keep, ctypes.c_void_p), None)
rank.run("all_reduce", rank.to, rank.other, 256, 7, 0, None)
driver.activity_stop()
assert found == [(4, b"all_reduce", 2048)], found
"""
    result = hd.run_script(code, **ENVIRONMENT)
    assert result.returncode == 0, result.stderr
