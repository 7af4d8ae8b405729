"""Errors on the other ranks when one dies, stops, leaves or makes another call, and how soon they are raised."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import Child, start_module
from tests.helpers.free_port import free_port

LIMIT = 90.0  # seconds for a job: a hang fails the test
# Runs a command with a separate, full /dev/shm.
FULL_SHM = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs -o size=64k full /dev/shm && { cat /dev/zero > /dev/shm/full 2> /dev/null || exec "$0" "$@"; }',
)


def start(
    rank: int, size: int, port: int, name: str, environment: dict[str, str], **how: Any
) -> Child | subprocess.Popen[str]:
    given = {variable: value.replace("{rank}", str(rank)) for variable, value in environment.items()}
    settings = {"ISTHMUS_HOST_DEVICES": "2", "ISTHMUS_HOST_MEMORY": "1GiB", **given}
    arguments = (str(rank), str(size), str(port), name)
    return start_module("tests.helpers.fault_cases", *arguments, **how, **settings)


def run(
    name: str,
    size: int = 3,
    port: int = 0,
    fresh: bool = False,
    within: tuple[str, ...] = (),
    **environment: str,
) -> list[dict[str, Any]]:
    """Return the error of each surviving rank; checks that nothing is left in /dev/shm."""
    port = port or free_port()
    processes = [
        start(rank, size, port, name, environment, fresh=fresh, within=within) for rank in range(size)
    ]
    told: list[dict[str, Any]] = [{} for _ in processes]
    try:
        for rank in (
            *range(2, size),
            1,
            0,
        ):  # rank 1 may have stopped; rank 0 has the store until its input ends
            process = processes[rank]
            if rank == 1 and name == "stopped":
                process.send_signal(signal.SIGKILL)
            output, errors = process.communicate(timeout=LIMIT)
            lines = [line for line in output.splitlines() if line.startswith("{")]
            assert lines or process.returncode == -signal.SIGKILL, errors
            told[rank] = json.loads(lines[0]) if lines else {}
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    names = [path.name for path in Path("/dev/shm").iterdir()]  # segments of other jobs too
    marks = ["isthmus", *(str(process.pid) for process in processes)]
    assert not [name for name in names if any(mark in name for mark in marks)]
    return told


def records(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The failure records that ranks wrote into the folder, by rank, of each group; nothing else may be there."""
    found = {}
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o640
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        found[int(path.stem)] = list({record["group"]: record for record in lines}.values())
    for rank, each in found.items():
        assert all(one["rank"] == rank and one["process"] > 0 and one["message"] for one in each), each
    return found


def test_a_killed_rank_is_named_immediately(tmp_path: Path) -> None:
    told = run("killed", ISTHMUS_FAILURE_FILE=f"{tmp_path}/{{rank}}.json")
    assert told[1] == {}
    for found in (told[0], told[2]):
        assert "all_reduce #3 of torch.float32 [100000] failed" in found["error"], found
        assert "rank 1 (process" in found["error"] and ") exited before operation 3" in found["error"], found
        assert found["again"] == found["error"]
    found_records = records(tmp_path)
    assert found_records.keys() == {0, 2}, "a rank that is killed writes none"
    for rank, (record,) in found_records.items():
        operation = "all_reduce #3 of torch.float32 [100000]"
        facts = {"kind": "peer_lost", "operation": operation, "number": 3, "ranks": [1]}
        assert facts.items() <= record.items(), record
        assert f"rank 1 (process {record['processes'][0]}) exited" in record["message"], record
        assert record["message"] in told[rank]["error"]


def test_a_stopped_rank_is_named_within_the_timeout() -> None:
    told = run("stopped")
    assert told[1] == {}
    errors = [told[rank]["error"] for rank in (0, 2)]
    # The first rank to detect it reports it; the other repeats that, or detects it itself.
    for error in errors:
        assert "timed out after 3 s waiting for ranks [1]; rank 1 last enqueued broadcast #2" in error, error


@pytest.mark.sampled(1)
@pytest.mark.parametrize("group", ["default", "new"])
def test_a_rank_outside_the_collective_is_named(group: str, tmp_path: Path) -> None:
    settings = {"FOLDER": str(tmp_path / "flight"), "STACKS": "1"}
    environment = {f"ISTHMUS_FLIGHT_RECORDER_{name}": value for name, value in settings.items()}
    folder = tmp_path / "failures"
    folder.mkdir()
    told = run("late", FAULT_GROUP=group, ISTHMUS_FAILURE_FILE=f"{folder}/{{rank}}.json", **environment)
    for rank in (0, 2):
        assert "waiting for ranks [1]; rank 1 last enqueued broadcast #2" in told[rank]["error"], told
    assert "timed out after 3 s" in told[1]["error"], told  # it joins a group that has failed
    check_flight_records(tmp_path / "flight")
    found = records(folder)
    for record in (found[0][0], found[2][0]["first"]):
        assert (record["rank"], record["kind"], record["number"], record["ranks"]) == (0, "timeout", 3, [1])


def test_records_of_a_healthy_job_agree(tmp_path: Path) -> None:
    for found in run("healthy", FAULT_GROUP="default", FLIGHT_RECORDS=str(tmp_path)):
        assert found["error"] == "", found
    assert "Not all ranks" not in trace(tmp_path)
    record = pickle.loads((tmp_path / "rank_1").read_bytes())  # our own
    assert [group["ranks"] for group in record["pg_config"].values()] == ["[0, 1, 2]"]
    assert {entry["state"] for entry in record["entries"]} == {"completed"}
    last = record["entries"][-1]["collective_seq_id"]
    for status in record["pg_status"].values():
        assert set(status.values()) == {last}, status


@pytest.mark.full
def test_all_ranks_write_their_records_after_one_raises(tmp_path: Path) -> None:
    told = run("raised", fresh=True, ISTHMUS_FLIGHT_RECORDER_FOLDER=str(tmp_path))  # Python's own exit
    for rank in (0, 2):
        assert "all_reduce #3 of torch.float32 [100000] failed" in told[rank]["error"], told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_0", "rank_1", "rank_2"]


def test_the_operation_that_failed_is_named() -> None:
    for found in run("differs_among_others"):
        assert "#8 of torch.float32 [100000] failed:" in found["error"], found
        assert "operation 8 differs between ranks" in found["error"], found


def trace(folder: Path) -> str:
    """Return the output of PyTorch's reader for the records."""
    reader = start_module("torch.distributed.flight_recorder.fr_trace", str(folder), merged=True)
    said, _ = reader.communicate(timeout=LIMIT)
    assert reader.returncode == 0, said
    return said


def check_flight_records(folder: Path) -> None:
    """fr_trace reads them and finds the rank."""
    assert sorted(path.name for path in folder.iterdir()) == ["rank_0", "rank_1", "rank_2"]
    assert folder.stat().st_mode & 0o777 == 0o750
    record = pickle.loads((folder / "rank_0").read_bytes())  # our own
    names = [entry["profiling_name"] for entry in record["entries"]]
    assert names[:3] == ["nccl:all_reduce", "nccl:broadcast", "nccl:all_reduce"]
    assert [entry["state"] for entry in record["entries"]][:2] == ["completed", "completed"]
    assert record["entries"][2]["input_sizes"] == [[100_000]]
    frames = [(frame["name"], Path(frame["filename"]).name) for frame in record["entries"][2]["frames"]]
    assert ("late", "fault_cases.py") in frames, frames
    said = trace(folder)
    assert "Not all ranks joining collective, sequence number: 3" in said, said
    assert "collective: nccl:all_reduce" in said and "missing ranks: {1}" in said, said
    assert "collective stack trace" in said and "late" in said.split("collective stack trace")[1], said


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("skipped", ("differs between ranks", "broadcast of 100000 float32", "all_reduce of 100000 float32")),
        ("other_shape", ("differs between ranks", "all_reduce of 5 float32", "all_reduce of 100000 float32")),
        ("other_dtype", ("differs between ranks", "#3 of torch.", "all_reduce of 100000 int8")),
    ],
)
def test_ranks_with_different_calls_are_named(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    told = run(name, ISTHMUS_FAILURE_FILE=f"{tmp_path}/{{rank}}.json")
    assert {(record["kind"], *record["ranks"]) for (record,) in records(tmp_path).values()} == {("mismatch",)}
    for found in told:
        assert [found["error"].count(word) for word in words] == [1] * len(words), found
        assert found["again"], found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("crossed", (", then all_reduce #3 of group '1'", ", on one stream")),
        ("crossed_on_the_host", ("", "")),
    ],
)
def test_groups_in_different_orders_are_named(name: str, behind: tuple[str, str]) -> None:
    told = run(name)
    waits, order = f"rank 1 waits in all_reduce #2 of group '2'{behind[0]}; ", behind[1]
    for found in told:
        assert waits in found["error"], told
        assert "ranks [0, 2] wait in all_reduce #3 of group '1'" in found["error"], told
        assert f"in a different order on ranks 0 and 1{order}: use them in one order" in str(told), told
        assert found["error"].count("timed out after 3 s") == 1, found


def test_groups_that_connect_in_different_orders_are_named() -> None:
    told = run("first_crossed")
    for rank in (0, 2):
        assert "rank 1 waits in the first operation of group '3'" in told[rank]["error"], told
        assert "groups '2' and '3' are used in a different order on ranks" in told[rank]["error"], told


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        *(
            (
                name,
                "rank 1 raised in all_gather_into_tensor #3: all_gather_into_tensor takes tensors of one device",
            )
            for name in ("on_cpu", "on_cpu_and_goes_on")
        ),
        ("wholly_on_cpu", "rank 1 last enqueued broadcast #2 and then called all_reduce with a CPU tensor."),
        ("first_on_cpu", "rank 1 has not enqueued any operation but called all_reduce with a CPU tensor"),
    ],
)
def test_a_rank_that_passes_a_cpu_tensor_is_named(name: str, cause: str) -> None:
    told = run(name)
    for rank in (0, 2):
        assert cause in told[rank]["error"], told


@pytest.mark.full
def test_a_message_that_is_never_sent_times_out() -> None:
    told = run("unanswered")
    assert "recv #1 from rank 1 of torch.float32" in told[0]["error"], told
    assert "timed out after 3 s" in told[0]["error"], told


@pytest.mark.full
def test_a_rank_missing_from_the_first_operation_is_named() -> None:
    told = run("absent")
    for rank in (0, 2):
        assert (
            "the first operation on chip timed out after 3 s waiting for ranks [1]" in told[rank]["error"]
        ), told


@pytest.mark.full
def test_a_rank_missing_from_the_first_barrier_is_named() -> None:
    told = run("absent_from_the_first_barrier")
    for rank in (0, 2):
        assert "barrier timed out after 3 s waiting for ranks [1]: " in told[rank]["error"], told


def test_abort_ends_outstanding_operations() -> None:
    told = run("aborted", size=2)
    assert "was aborted" in told[0]["error"], told
    assert "aborted" in told[1]["error"], told


@pytest.mark.full
def test_full_shared_memory_is_harmless() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a /dev/shm of one's own takes root and the program unshare (package util-linux)")
    for found in run("full_shared_memory", within=FULL_SHM):
        assert found["error"] == "", found


@pytest.mark.full
def test_a_dead_job_leaves_nothing_behind() -> None:
    """No segment, no id in the store and no device memory is left, of which it held more than half."""
    port = free_port()
    assert run("dies_with_its_job", port=port) == [{}, {}, {}]
    for found in run("follows_a_dead_job", port=port):
        assert found["error"] == "", found


@pytest.mark.full
def test_debug_mode_names_the_shapes() -> None:
    told = run("mismatch_in_debug_mode", size=2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert all("100000" in found["error"] and "5" in found["error"] for found in told), told
