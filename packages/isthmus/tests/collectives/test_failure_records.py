"""The records of failed collectives: which rank they accuse, and how they are written."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.collectives.test_faults import records, run
from tests.helpers.children import output
from tests.helpers.outside_driver import build

# Backends of a rank whose peers are absent. The members of a group are ranks 10, 11, ... of the job.
ALONE = """
import json, os, signal, threading, time
from datetime import timedelta
from pathlib import Path
import torch
from torch.distributed import AllreduceOptions, HashStore, ProcessGroupGloo, Store
from isthmus import _C

FILE = Path(os.environ.get("ISTHMUS_FAILURE_FILE", "none"))

def backend(name, rank, size, store=None):
    options = _C.ChipBackendOptions()
    options._timeout, options.group_name = timedelta(seconds=0.5), name
    options.global_ranks_in_group = [10 + each for each in range(size)]
    gloo = lambda *_: ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=1))  # it would wait for the peers
    return _C.ChipBackend(store or HashStore(), rank, size, options, gloo)

def all_reduce(group):
    group.allreduce([torch.ones(3, device="chip")], AllreduceOptions()).wait()

def error_of(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

def records():
    return [json.loads(line) for line in FILE.read_text().splitlines() if line] if FILE.exists() else []
"""


def told(code: str, **environment: str) -> Any:
    """Return the JSON that a child prints."""
    return json.loads(output(ALONE + textwrap.dedent(code), **environment).splitlines()[-1])


# ---- the accused rank ----------------------------------------------------------------------------------------
def test_a_pair_that_does_not_connect_accuses_the_peer_by_its_rank_of_the_job(tmp_path: Path) -> None:
    """Ranks 2 and 3 have a communicator of their own, in which they are 0 and 1."""
    errors, found = told(
        """
        errors = []
        for rank, peer in ((2, 3), (3, 2)):
            group = backend(f"of {rank}", rank, 4)
            errors.append(error_of(group.recv([torch.ones(3, device="chip")], peer, 0).wait))
        print(json.dumps([errors, records()]))
        """,
        ISTHMUS_FAILURE_FILE=str(tmp_path / "record"),
    )
    for error, peer in zip(errors, (3, 2), strict=True):
        assert f"timed out after 500 ms waiting for ranks [{peer}]" in error, errors
    assert [(each["rank"], each["ranks"], each["operation"]) for each in found] == [
        (12, [13], "the first operation on chip"),
        (13, [12], "the first operation on chip"),
    ]


@pytest.mark.full
def test_a_pair_that_fails_accuses_its_peer_alone(tmp_path: Path) -> None:
    """No rank is accused of messages that are not sent, in particular not ranks without messages."""
    run("pair", size=4, ISTHMUS_FAILURE_FILE=f"{tmp_path}/{{rank}}.json")
    found = {record["group"]: record for record in records(tmp_path)[2]}
    unsent, killed = found["2"], found["3"]
    assert (unsent["kind"], unsent["ranks"]) == ("timeout", []), unsent
    assert unsent["operation"] == "recv #2 from rank 3 of torch.float32 [50000] and 1 more"
    assert (killed["kind"], killed["ranks"]) == ("peer_lost", [3]), killed
    assert f": rank 1 (process {killed['processes'][0]}) exited" in killed["message"]
    assert "(its rank 1 is rank 3 of the group)" in killed["message"]


# A driver whose communicators fail when a message to their rank 1 is enqueued.
LOSES_RANK_1 = """
  table.send = lose_rank_1;
  table.comm_error = error_of_lost;
  table.comm_failure = failure_of_lost;
"""


def test_a_batch_that_cannot_be_enqueued_accuses_by_the_communicator_that_failed(tmp_path: Path) -> None:
    """Rank 2 sends to ranks 1 and 3 in one batch; only the communicator with rank 3 fails."""
    driver, folder = build(tmp_path, LOSES_RANK_1), tmp_path / "records"
    folder.mkdir()
    run("batch", size=4, ISTHMUS_DRIVER=driver, ISTHMUS_FAILURE_FILE=f"{folder}/{{rank}}.json")
    first, *later = [(each["kind"], each["ranks"], each["processes"]) for each in records(folder)[2]]
    assert first == ("peer_lost", [3], [4242]), records(folder)[2]
    # The other communicator may see that its ranks have ended, too; it knows of no rank that failed.
    assert later in ([], [("peer_lost", [], [])]), records(folder)[2]


# ---- the file ------------------------------------------------------------------------------------------------
def test_each_group_writes_its_record_before_it_queries_the_store(tmp_path: Path) -> None:
    before, found = told(
        """
        class Slow(Store):
            # Notes how much was recorded when it is asked for the first failure of the group.
            def __init__(self):
                super().__init__()
                self.inner, self.seen = HashStore(), []
            def set(self, key, value):
                self.inner.set(key, value)
            def get(self, key):
                return self.inner.get(key)
            def check(self, keys):
                return self.inner.check(keys)
            def add(self, key, amount):
                return self.inner.add(key, amount)
            def compare_set(self, key, expected, desired):
                self.seen.append(len(records()))
                return json.dumps({"a": 1}).encode() and b"an earlier failure\\x1e" + json.dumps(
                    {"ranks": [7], "processes": []}).encode()

        store = Slow()
        for name in ("a", "b"):
            error_of(all_reduce, backend(name, 0, 2, store))
        print(json.dumps([store.seen, records()]))
        """,
        ISTHMUS_FAILURE_FILE=str(tmp_path / "record"),
    )
    assert before == [1, 3], "the record is in the file when the store is asked"
    assert [(each["group"], each["ranks"], "first" in each) for each in found] == [
        (name, [11], has_first) for name in "ab" for has_first in (False, True)
    ]
    assert found[1]["first"]["ranks"] == [7]


def test_a_failure_after_one_that_could_not_be_written_is_recorded(tmp_path: Path) -> None:
    """A full disk is simulated by a folder that is missing at first. A record that was written stays."""
    found = told(
        """
        for name in ("a", "b"):
            group = backend(name, 0, 2)
            error_of(all_reduce, group)
            FILE.parent.mkdir(exist_ok=True)
            group.abort()
        print(json.dumps(records()))
        """,
        ISTHMUS_FAILURE_FILE=str(tmp_path / "missing" / "record"),
    )
    assert [(each["group"], each["kind"]) for each in found] == [("a", "aborted"), ("b", "timeout")]


def test_a_signal_does_not_interrupt_the_record(tmp_path: Path) -> None:
    """The file is a full pipe, so that writing to it waits, and a signal arrives meanwhile."""
    written = told(
        """
        os.mkfifo(FILE)
        reader = os.open(FILE, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(FILE, os.O_WRONLY | os.O_NONBLOCK)
        try:
            while True:
                os.write(writer, b" " * 4096)
        except BlockingIOError:
            os.close(writer)
        group = backend("a", 0, 2)
        signals = []
        signal.signal(signal.SIGALRM, lambda *_: signals.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        if not os.fork():
            time.sleep(0.6)
            os.set_blocking(reader, True)
            text = b""
            while not text.endswith(b"}\\n") and (part := os.read(reader, 4096)):
                text += part
            print(json.dumps(json.loads(text)["kind"]), flush=True)
            os._exit(0)
        group.abort()
        os.wait()
        assert signals
        os._exit(0)
        """,
        ISTHMUS_FAILURE_FILE=str(tmp_path / "record"),
    )
    assert written == "aborted"


def test_a_flight_record_that_cannot_be_written_leaves_no_file_and_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "rank_0").mkdir()  # in its place
    before, after = told(
        """
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            _C.write_flight_records()
        print(json.dumps([before, len(os.listdir("/proc/self/fd"))]))
        """,
        ISTHMUS_FLIGHT_RECORDER_FOLDER=str(tmp_path),
    )
    assert before == after and [path.name for path in tmp_path.iterdir()] == ["rank_0"]


# ---- options -------------------------------------------------------------------------------------------------
def test_an_invalid_option_raises_in_the_constructor() -> None:
    """The option is set after the import of PyTorch, which checks all options."""
    errors = told(
        """
        wrong = {"COLLECTIVES": "nccl", "BLOCKING_WAIT": "yes"}
        wrong |= {"FLIGHT_RECORDER": "-1", "FLIGHT_RECORDER_STACKS": "2"}
        errors = []
        for name, value in wrong.items():
            os.environ["ISTHMUS_" + name] = value
            errors.append(error_of(backend, "a", 0, 2))
            del os.environ["ISTHMUS_" + name]
        print(json.dumps([*errors, error_of(backend, "a", 0, 2)]))
        """
    )
    assert errors == [
        "ValueError: ISTHMUS_COLLECTIVES=nccl: unknown value; expected driver or gloo",
        "ValueError: ISTHMUS_BLOCKING_WAIT=yes: not a switch; set it to 0 or 1",
        "ValueError: ISTHMUS_FLIGHT_RECORDER=-1: not a whole number of at least 0",
        "ValueError: ISTHMUS_FLIGHT_RECORDER_STACKS=2: not a switch; set it to 0 or 1",
        "",
    ]
