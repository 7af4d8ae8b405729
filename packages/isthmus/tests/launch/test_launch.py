"""``isthmus run --nproc``: which rank failed first, what ranks write, and the options."""

from __future__ import annotations

import io
import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import isthmus
from isthmus.launch.failures import Failure, Record
from isthmus.launch.ranks import JobError, Ranks
from isthmus.launch.root_cause import find_root_cause, summary
from isthmus.launch.run import Job
from isthmus.launch.watch import Rank, Tail, Watch
from isthmus_common.training.model_arguments import ModelArguments
from isthmus_common.training.progress import Progress
from isthmus_common.training.terminal import Terminal

KILL, TERM, ABORT = -signal.SIGKILL, -signal.SIGTERM, -signal.SIGABRT
MINE = (
    "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'x'\n[rank1]: ValueError: my mistake\nbye\n"
)


OPERATION = "all_reduce #3 of torch.float32 [5]"


def collective(
    kind: str, ranks: list[int], what: str, processes: list[int] | None = None
) -> tuple[str, dict[str, object]]:
    """The traceback and the record of a rank whose collective failed."""
    message = f"group '0', rank 0: {OPERATION} {what}"
    traceback = (
        f"Traceback (most recent call last):\n  File 'x'\nDistBackendError: {message}; before that more\n"
    )
    fields = {"group": "0", "operation": OPERATION, "number": 3, "processes": processes or []}
    return traceback, {"kind": kind, "ranks": ranks, "message": message, **fields}


GONE = collective("peer_lost", [1], "failed: rank 1 (process 101) exited before operation 3 completed")
GONE_ELSEWHERE = collective(
    "peer_lost", [7], "failed: rank 7 (process 999) exited before operation 3 completed"
)
GONE_IN_GROUP = collective(
    "peer_lost", [0], "failed: rank 1 (process 100) exited before operation 3 completed"
)
# The driver tells the process that is lost, and not its rank.
GONE_PROCESS = collective("peer_lost", [], "failed: process 101 exited", [101])
ABSENT = collective("timeout", [1], "timed out after 3 s waiting for ranks [1]")
LATE = collective("timeout", [], "timed out after 3 s")
GLOO = (
    "Traceback (most recent call last):\n  File 'x'\nRuntimeError: Connection closed by peer [127.0.0.1]:5\n"
)
SLOW = GLOO.replace(
    "Connection closed by peer [127.0.0.1]:5",
    "[unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation to complete",
)


def write_records(rank: Rank, *records: dict[str, object]) -> None:
    """Records as the collectives write them, by the process of the rank unless they say otherwise."""
    rank.failure.write_text("".join(f"\n{json.dumps({'process': rank.pid, **each})}\n" for each in records))


def rank_of(folder: Path, number: int) -> Rank:
    return Rank(number, number, 4, 0, folder / f"rank-{number}.attempt-0", 100 + number)


def ended(
    folder: Path, number: int, code: int, wrote: str | tuple[str, dict[str, object]] = "", at: float = 0.0
) -> Failure:
    """Describe the end of a rank; ``wrote`` is its standard error, with its failure record if any."""
    rank = rank_of(folder, number)
    if isinstance(wrote, tuple):
        wrote, record = wrote
        write_records(rank, record)
    rank.stderr.write_text(wrote)
    rank.stdout.write_text("")
    return Failure.read(rank, SimpleNamespace(exitcode=code) if code else None, at, was_stopped=False)


# ---- the guilty rank -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ranks", "guilty", "status", "words"),
    [
        # Those that a killed rank leaves alone fail before it is noticed, or are ended.
        ([(1, GONE, 0.0), (KILL, "", 1.0), (TERM, "", 2.0)], 1, 137, "rank 1 failed first: SIGKILL"),
        ([(1, GONE, 0.0), (1, MINE, 0.1), (TERM, GONE, 1.0)], 1, 1, "ValueError: my mistake"),
        ([(1, GLOO, 0.0), (3, "", 0.1), (1, GLOO, 0.1)], 1, 3, "rank 1 failed first: exit status 3"),
        ([(1, SLOW, 0.0), (3, "", 0.1), (1, SLOW, 0.1)], 1, 3, "rank 1 failed first: exit status 3"),
        ([(ABORT, ABSENT, 0.0), (TERM, "", 0.1), (1, ABSENT, 0.0)], 1, 134, "rank 1 did not reach a"),
        # A rank that ignores SIGTERM is killed half a minute later.
        ([(1, ABSENT, 0.0), (KILL, "", 30.0), (1, ABSENT, 0.0)], 1, 1, "rank 1 did not reach a"),
        ([(1, GONE, 0.0), (0, "", -1.0), (TERM, "", 0.1)], 1, 1, "rank 1 ended with exit status 0 while"),
        ([(1, GONE, 0.1), (TERM, "", 0.0), (TERM, "", 0.2)], 1, 143, "rank 1 failed first: SIGTERM"),
        ([(1, MINE, 5.0), (1, MINE, 4.0), (TERM, "", 9.0)], 1, 1, "rank 1 failed first: exit status 1"),
        ([(TERM, "", 5.0), (TERM, "", 4.0), (TERM, "", 9.0)], 1, 143, "rank 1 failed first: SIGTERM"),
        ([(1, GONE_ELSEWHERE, 1.0)], None, 1, "rank 7, on another node"),
        ([(1, GLOO, 1.0)], 0, 1, "rank 0 failed as a rank of another node did: exit status 1 (process"),
        ([(1, GLOO, 2.0), (1, GLOO, 1.0)], 1, 1, "its own error says that another rank was missing"),
        # The message has the number in the group, the record that in the job.
        ([(1, MINE, 0.0), (1, GONE_IN_GROUP, 0.0)], 0, 1, "rank 0"),
        # A rank that fails by itself after a collective of it has failed, and one that ends without a traceback.
        ([(1, (MINE, GONE[1]), 0.1), (1, ABSENT, 0.0)], 0, 1, "ValueError: my mistake"),
        ([(3, ("", GONE[1]), 0.0), (KILL, "", 0.1)], 1, 137, "rank 1 failed first: SIGKILL"),
        ([(1, GONE_PROCESS, 0.0), (0, "", -1.0)], 1, 1, "rank 1 ended with exit status 0 while"),
        # All ranks whose operations time out are present.
        ([(1, LATE, 0.0), (1, LATE, 0.1)], 0, 1, "its error names no missing rank; compare the last operations"),
        ([(1, LATE, 0.0), (1, ABSENT, 0.1), (1, ABSENT, 0.1)], 0, 1, "its error names no missing rank"),
        ([(1, ABSENT, 0.0), (1, GONE_IN_GROUP, 0.1)], 0, 1, "that ranks [1] were missing; see their output"),
        ([(1, GLOO, 2.0), (1, GLOO, 1.0)] * 2, 1, 1, "was missing; see the output of the other ranks"),
    ],
)  # fmt: skip
def test_the_guilty_rank(tmp_path, ranks, guilty, status, words):
    failures = [ended(tmp_path, number, *each) for number, each in enumerate(ranks)]
    found = find_root_cause(failures).failure
    assert (None if found is None else found.rank.rank) == guilty
    text, code = summary(failures, 12, 3.4)
    assert code == status and words in text, text
    assert "attempt 0, after 3 s, at iteration 12)" in text.splitlines()[0]
    assert str(tmp_path / f"rank-{guilty or 0}.attempt-0.err") in text


@pytest.mark.parametrize(
    "text", [None, "", '{"kind": "timeout", "ranks": [', "[]", '{"process": 100, "kind": "timeout"}']
)
def test_a_record_that_is_absent_or_malformed_is_ignored(tmp_path, text):
    rank = rank_of(tmp_path, 0)
    if text is not None:
        rank.failure.write_text(text)
    assert Record.read_all(rank.failure, rank.pid) == []
    assert not ended(tmp_path, 0, 1, MINE).is_consequence


def test_a_record_names_ranks_also_by_the_first_failure_of_the_group(tmp_path):
    rank = rank_of(tmp_path, 0)
    first = {**ABSENT[1], "ranks": [2], "processes": [102]}
    write_records(rank, GONE[1], {**GONE[1], "first": first})
    expected = Record("0", "peer_lost", str(GONE[1]["message"]), frozenset({1, 2}), frozenset({102}))
    assert Record.read_all(rank.failure, rank.pid) == [expected]


def test_a_record_of_a_child_of_the_rank_is_ignored(tmp_path):
    """The child has ISTHMUS_FAILURE_FILE too."""
    rank = rank_of(tmp_path, 0)
    write_records(rank, ABSENT[1], {**GONE_IN_GROUP[1], "process": 4242})
    assert [record.kind for record in Record.read_all(rank.failure, rank.pid)] == ["timeout"]
    write_records(rank, {**GONE_IN_GROUP[1], "process": 4242})
    assert Record.read_all(rank.failure, rank.pid) == []


def test_the_record_of_the_group_that_the_traceback_names_is_chosen(tmp_path):
    """The program has caught the failure of the first group; without a traceback, it is the likeliest cause."""
    rank = rank_of(tmp_path, 0)
    message = str(ABSENT[1]["message"]).replace("'0'", "'tp'")
    write_records(rank, GONE_IN_GROUP[1], {**ABSENT[1], "group": "tp", "message": message, "ranks": [3]})
    rank.stdout.write_text("")
    for traceback, missing in (
        (ABSENT[0].replace("'0'", "'tp'"), {3}),
        (GONE_IN_GROUP[0], set()),
        ("", set()),
    ):
        rank.stderr.write_text(traceback)
        found = Failure.read(rank, SimpleNamespace(exitcode=1), 0.0, was_stopped=False)
        assert found.missing == missing and found.timed_out == bool(missing)


def test_a_summary_is_short_and_says_what_followed(tmp_path):
    frames = "".join(f"  File 'x', line {line}\n" for line in range(500))
    wrote = f"noise\nTraceback (most recent call last):\n{frames}ValueError: deep\n[W1121 20:45:01] at exit\n"
    failures = [ended(tmp_path, 0, 1, wrote), *(ended(tmp_path, n, 1, GLOO, at=1.0) for n in range(1, 20))]
    text, _ = summary(failures, None, 1.0)
    assert "| ValueError: deep\n" in text and "noise" not in text and "at exit" not in text
    assert "rank 8: exit status 1: RuntimeError: Connection closed by peer" in text
    assert "and 11 others" in text and len(text.splitlines()) < 40


FRAMES = ("  File 'y', line 5 in wait", "  File 'x', line 9 in main")
STACK = "\n".join(["Stack (most recent call first):", *FRAMES, ""])
CRASH = "Fatal Python error: Segmentation fault\n\n" + STACK.replace(
    "Stack", "Current thread 0x00007f [python]"
)
LAUNCHER = f'  File "{Path(isthmus.__file__).parent}/launch/main.py", line 1 in main\n  File "runpy"\n'


PLAIN = "Traceback (most recent call last):\n  File 'x'\nRuntimeError: Errors\n\tMissing key\n\nand more\n"


IGNORED = f"Exception ignored in: <function X.__del__ at 0x1>\n{PLAIN.replace('Errors', 'another')}"
OF_A_MODULE = IGNORED.replace("<function X.__del__ at 0x1>", "<bound method M.f of M(\n  (a): Linear()\n)>")


@pytest.mark.parametrize(
    "end",
    ["", "\n[W1121 20:45:01] log\n", "\nException raised from f:\nframe #0\n", STACK, IGNORED, OF_A_MODULE],
)
@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_messages_of_several_lines(tmp_path, prefix, end):
    wrote = "".join(f"{prefix}{line}" if line != "\n" else line for line in PLAIN.splitlines(keepends=True))
    found = ended(tmp_path, 0, 1, f"before\n{wrote}{end}")
    assert found.lines[:6] == tuple(PLAIN.splitlines())
    assert found.lines[6:7] == (("It was executing, innermost call first:",) if end == STACK else ())
    assert found.message == "RuntimeError: Errors"


def test_a_message_ends_at_the_next_prefix_and_is_short(tmp_path):
    assert ended(tmp_path, 0, 1, MINE).lines[-1] == "ValueError: my mistake"
    found = ended(tmp_path, 0, 1, PLAIN + "line\n" * 100)
    assert found.lines[2] == "RuntimeError: Errors" and found.lines[-2:] == ("line", "...")
    assert len(found.lines) < 20


def test_a_rank_of_this_node_is_not_confused_with_one_of_another(tmp_path):
    failed = ended(tmp_path, 0, 1, GONE_ELSEWHERE)
    first, hint, *_ = summary([failed], None, 1.0)[0].splitlines()
    assert first == (
        "rank 7, on another node, failed first, according to the ranks of this node (attempt 0, after 1 s)"
    )
    assert hint.startswith("  rank 0 of this node (process 100 on ")


def test_where_a_rank_was(tmp_path):
    """A stack that it was asked for, unless its traceback says that another rank was missing."""
    hangs = ended(tmp_path, 0, TERM, MINE + STACK + "Terminated\n")
    assert hangs.lines[-4:] == ("ValueError: my mistake", "It was executing, innermost call first:", *FRAMES)
    assert ended(tmp_path, 0, 1, STACK + LAUNCHER).lines[1:] == FRAMES
    assert ended(tmp_path, 0, -signal.SIGSEGV, CRASH).lines[1:] == FRAMES
    leaves = ended(tmp_path, 0, 1, (ABSENT[0] + STACK, ABSENT[1]))
    assert leaves.missing == {1} and leaves.lines == tuple(ABSENT[0].splitlines())


def test_a_failure_that_torchruns_record_has_written(tmp_path):
    rank = Rank(0, 0, 1, 0, tmp_path / "rank-0.attempt-0", 100)
    rank.error.write_text('{"message": {"extraInfo": {"py_callstack": "Traceback\\nKeyError: 1"}}}')
    found = Failure.read(rank, SimpleNamespace(exitcode=1), None, was_stopped=False)
    assert found.lines == ("Traceback", "KeyError: 1") and found.ended_at == math.inf
    rank.error.write_text("not JSON")
    assert Failure.read(rank, SimpleNamespace(exitcode=1), None, was_stopped=False).lines == ()


# ---- files and terminal --------------------------------------------------------------------------------------
def test_lines_of_a_file_that_is_written_to(tmp_path):
    path = tmp_path / "out"
    with path.open("wb") as file, path.open("rb") as reader:
        tail = Tail(Rank(0, 0, 1, 0, path), False, reader)

        def after(data: bytes, is_last: bool = False) -> list[str]:
            file.write(data)
            file.flush()
            return tail.read_lines(is_last)

        assert after(b"") == [] and after(b"one\ntw") == ["one"] and after(b"o\r\n\nthree") == ["two", ""]
        assert after(b"", is_last=True) == ["three"] and after(b"", is_last=True) == []
        assert after(b" 1%|\r 2%|") == [] and tail.pending == " 2%|"
        assert after(b"\r 3%|\n\xff") == [" 3%|"] and after(b"", is_last=True) == ["\ufffd"]


def test_requested_stacks_are_not_shown(tmp_path):
    tail = Tail(Rank(0, 0, 1, 0, tmp_path), True, io.BytesIO())
    none = ["Stack (most recent call first):", "  <no Python frame>"]
    lines = ["before", *STACK.splitlines(), "  ...", "  not of it", *none, "after"]
    assert [line for line in lines if not tail.is_stack(line)] == ["before", "  not of it", "after"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_status_line_stands_below_the_output(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    out, screen = io.StringIO(), Screen()
    terminal = Terminal(False, out, screen)
    terminal.status("iteration 1", is_new=True)
    terminal.line(False, "a line")
    terminal.status("iteration 2 and more than fits", is_new=True)
    terminal.block("it failed")
    assert out.getvalue() == "a line\n"
    first, second = "isthmus: iteration 1", "isthmus: iteration 2 and mor…"
    assert screen.getvalue() == f"{first}\r\x1b[K{first}\r\x1b[K{second}\nisthmus: it failed\n"


def test_unread_output_and_characters_missing_in_the_terminal():
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w", encoding="ascii") as out:
        terminal = Terminal(False, out, io.StringIO())
        terminal.line(False, "2 · 3")
        assert os.read(reader, 100) == b"2 \\xb7 3\n"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as out:
        terminal = Terminal(False, out, io.StringIO())
        for _ in range(2):
            terminal.line(False, "unread output")


@pytest.mark.parametrize("progress", [True, False])
def test_the_status_line_where_there_is_no_terminal(progress):
    err = io.StringIO()
    terminal = Terminal(progress, io.StringIO(), err)
    for is_new in (True, False):
        terminal.status("iteration 1", is_new)
    assert err.getvalue() == "isthmus: iteration 1\n" * progress


def test_each_iteration_has_its_line_where_there_is_no_terminal(tmp_path):
    """The line is printed also if several lines are read at a time, and for the last ones."""
    rank = Rank(0, 0, 1, 0, tmp_path / "rank-0.attempt-0", os.getpid())
    for path in (rank.stdout, rank.stderr):
        path.touch()
    out, err = io.StringIO(), io.StringIO()
    watch = Watch(Terminal(True, out, err), Progress(ModelArguments()), "")
    watch.start([rank])
    lines = [f" iteration {number}/ 9 | lm loss: 1.5 |\n" for number in (1, 2, 3)]
    rank.stdout.write_text("".join(lines))
    watch.drain()
    assert out.getvalue() == ""
    assert [line.split(" · ")[0] for line in err.getvalue().splitlines()] == [
        f"isthmus: iteration {number}/9" for number in (1, 2, 3)
    ]


# ---- options -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nproc": "0"}, "--nproc 0: give 1 or more, or auto"),
        ({"nnodes": "0"}, "--nnodes 0: give a number of nodes, or min:max"),
        ({"nnodes": "2"}, "--nnodes 2: give the rendezvous"),
        ({"nnodes": "1:2"}, "--nnodes 1:2: a varying number of nodes needs --rdzv-endpoint"),
        ({"nnodes": "2", "node_rank": 2, "master_addr": "a"}, "--node-rank 2: nodes are numbered from 0 to 1"),
        ({"rdzv_endpoint": "a:1", "node_rank": 0}, "--rdzv-endpoint: the nodes number themselves"),
        ({"shown": "x"}, "--local-ranks-filter x: give local ranks"),
        ({"shown": "0,5"}, "--local-ranks-filter 0,5: the ranks of this node are 0 to 1, or all"),
        ({"max_restarts": -1}, "--max-restarts -1: give 0 or more"),
        ({"peak_tflops": -1.0}, "--peak-tflops -1.0: give the peak"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options, message):
    with pytest.raises(JobError) as raised:
        Ranks(**{"nproc": "2", **options}).check()
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)


def test_a_missing_driver_is_reported_before_the_ranks_start(tmp_path):
    ranks = Ranks("2", log_dir=str(tmp_path / "logs"))
    with pytest.raises(JobError, match=r"--driver nosuch .*unknown driver 'nosuch'; expected "):
        Job([__file__], {"driver": "nosuch"}, ranks).command()
    assert not (tmp_path / "logs").exists()
    assert "--nproc" in Job([__file__], {"driver": "none"}, ranks).command()


def test_options_of_torchrun():
    assert "--rdzv-endpoint=localhost:0" in Ranks("2").torchrun()
    assert Ranks("2", "2", 1, "node0").torchrun() == [
        *("--nnodes=2", "--max-restarts=0", "--node-rank=1", "--master-addr=node0", "--master-port=29500")
    ]
    assert "--rdzv-id=job" in Ranks("2", "2", 1, "node0", rdzv_id="job").torchrun()
    assert Ranks("2", "1:4", rdzv_endpoint="node0:29500", max_restarts=3).torchrun() == [
        *("--nnodes=1:4", "--max-restarts=3"),
        *("--rdzv-backend=c10d", "--rdzv-endpoint=node0:29500", "--rdzv-id=isthmus"),
    ]


def test_a_port_in_use_is_named():
    from isthmus.launch import elastic

    error = OSError("failed to listen. port: 29500, code: -98, name: EADDRINUSE, message: in use")
    said = str(elastic._cannot_meet("10.0.0.1:29500", error, False))
    assert said == f"port 29500 is in use on {os.uname().nodename}; give another port"
    assert "cannot connect at a:1: timed out; start the same" in str(
        elastic._cannot_meet("a:1", OSError("timed out"), False)
    )


@pytest.mark.parametrize("attempt", [-1, 1])
@pytest.mark.parametrize(
    ("ranks", "error", "said"),
    [
        (
            Ranks("1", "1", master_port=29533),
            OSError(98, "Address already in use"),
            "port 29533 is in use on ",
        ),
        (
            Ranks("1", "1"),
            OSError("cannot keep other users out; mount /proc"),
            "^cannot keep .* mount /proc$",
        ),
        (
            Ranks("1", "1", master_port=29533),
            OSError(13, "Permission denied"),
            "^.Errno 13. Permission denied$",
        ),
    ],
)
def test_a_store_that_cannot_be_opened_on_one_node(ranks, error, said, attempt, tmp_path, monkeypatch):
    """The error names no other node, at the first attempt and at a restart."""
    from isthmus.launch import elastic

    options = ["--nproc-per-node=1", *ranks.torchrun()]
    agent = elastic.Agent([*options, "train.py"], tmp_path, *[pytest.fail] * 4)
    agent._logs.attempt = attempt
    monkeypatch.setattr(agent, "run", Mock(side_effect=error))
    with pytest.raises(RuntimeError, match=said):
        agent.run_ranks()


def test_log_folders_are_new_and_private(tmp_path):
    ranks = Ranks("2", log_dir=str(tmp_path / "a" / "b"))
    former = os.umask(0)
    try:
        folders = {ranks.make_folder("train x") for _ in range(2)}
    finally:
        os.umask(former)
    assert len(folders) == 2 and all("train_x" in folder.name for folder in folders)
    for folder in (tmp_path / "a", tmp_path / "a" / "b", *folders):
        assert folder.stat().st_mode & 0o777 == 0o750
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match=r"--log-dir .*file: "):
        Ranks("2", log_dir=str(tmp_path / "file")).make_folder("x")
