"""``isthmus cluster watch``: the view of a job's files, its text, its metrics, and its page in a real browser."""

from __future__ import annotations

import ast
import base64
import hashlib
import http.client
import importlib.util
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from isthmus_cluster.monitor.card import Card, Report
from isthmus_cluster.watch import terminal
from isthmus_cluster.watch.faults import spans
from isthmus_cluster.watch.state import ABSENT, COLUMNS, NO_REPORT, Watcher
from isthmus_cluster.watch.web import serve, state
from isthmus_common.files import write_file
from tests.helpers.cluster import cluster, wait_until
from tools.repository import ROOT

FIELDS = (
    "rank ranks host process time step step_time waiting collective since stack".split()
)  # of status-*.json
REDUCE = "all_reduce #{} of [[4]] in group {}"
ALERT = {"step": 5, "rank": 1, "kind": "nan", "name": "loss", "text": "loss is nan"}
HANG = "step 7: rank 0 has been in all_reduce #9 of [[4]] in group 0 for 61 s; suspected: rank 2\n  rank 0 (n0)\n"


def put(folder: Path, rank: int, number: int = 0, group: str = "0", age: float = 0.0, **changes: Any) -> None:
    """Write the status of a rank; `number` is that of the collective that it has been in for 12 s, or 0."""
    now = time.time() - age
    collective, since = (REDUCE.format(number, group), now - 12) if number else ("", 0.0)
    stack = ["/x/train.py:14 in <module>", "/x/site-packages/torch/nn.py:1 in forward"]
    stack += ["/x/isthmus_diagnostics/health/session.py:3 in step", "/x/isthmus/chip/events.py:2 in wait"]
    values = (rank, 4, f"n{rank // 2}", 70 + rank, now, 7, 0.4, 0.25, collective, since, stack)
    folder.mkdir(exist_ok=True)
    status = {**dict(zip(FIELDS, values, strict=True)), **changes}
    write_file(folder / f"status-{rank}.json", json.dumps(status).encode())


def hung(folder: Path) -> Path:
    """Make the files of a job of four ranks: rank 2 is silent, the others wait for it."""
    for rank in (0, 1, 3):
        put(folder, rank, 9)
    put(folder, 2, age=58)
    (folder / "hang-step-7.txt").write_text(HANG)
    (folder / "alerts-1.jsonl").write_text(json.dumps(ALERT) + "\n")
    return folder


@contextmanager
def alive(folder: Path) -> Iterator[dict[int, dict[str, Any]]]:
    """Write the statuses of all ranks again and again; yields the changes of each rank, which may be replaced."""
    ranks: dict[int, dict[str, Any]] = {rank: {"number": 9} for rank in (0, 1, 3)}
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.2):
            for rank, changes in list(ranks.items()):
                put(folder, rank, **changes)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield ranks
    finally:
        ended.set()
        thread.join()


# ---- the view


def test_the_status_files_of_health_have_these_fields() -> None:
    source = (
        ROOT / "packages/isthmus-diagnostics/src/isthmus_diagnostics/health/status.py"
    )  # which imports PyTorch
    status = next(
        each for each in ast.parse(source.read_text()).body if getattr(each, "name", "") == "Status"
    )
    assert set(FIELDS) <= {each.target.id for each in status.body if isinstance(each, ast.AnnAssign)}  # type: ignore


def test_spans() -> None:
    assert spans([5, 1, 0, 2, 7, 8]) == "0-2, 5, 7-8"
    assert spans([]) == ""
    assert spans(range(0, 100, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ... (50 in all)"


def test_a_view_of_a_hang_in_the_terminal(tmp_path: Path) -> None:
    status, output = cluster("watch", "--health-dir", hung(tmp_path), "--once")
    assert status == 0, output
    lines = output.splitlines()
    assert "  step 7, 4 ranks: 3 in a collective, 1 silent  " in lines[0]
    row = next(line for line in lines if line.startswith("all_reduce #9"))
    assert re.split(r"\s{2,}", row)[1:4] == ["0", "12 s", "0-1, 3"]
    assert "2 (n1, silent for 58 s)" in row
    assert any(
        re.search(r"2 +n1 +7 +400 ms +300 ms .*silent for 58 s +/x/train.py:14 in <module>", line)
        for line in lines
    )
    assert any(re.search(r"hang +2 +7 +step 7: rank 0 has been in", line) for line in lines)
    assert any(re.search(r"nan +1 +5 +loss is nan", line) for line in lines)


def test_states_of_a_rank_in_the_course_of_a_job(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    put(tmp_path, 0, ranks=2)
    assert [each.doing for each in watcher.update().ranks] == ["running", "no report yet"]
    put(tmp_path, 0, 3, ranks=2)
    put(tmp_path, 1, ranks=2, host="n1")
    assert [each.doing for each in watcher.update().ranks] == [
        "in all_reduce #3 of [[4]] in group 0 for 12 s",
        "running",
    ]
    (tmp_path / "status-1.json").unlink()
    assert watcher.update().ranks[1].doing == "ended"
    assert not watcher.view.events
    put(tmp_path, 1, ranks=2, host="n1", process=99, step=3)
    assert watcher.update().ranks[1].doing == "running"
    (event,) = watcher.view.events
    assert event[1:5] == ("restart", "1", 3, "started again as new processes")


def test_ranks_of_an_earlier_larger_job_are_not_shown(tmp_path: Path) -> None:
    put(tmp_path, 5, age=600, ranks=8)
    put(tmp_path, 0, ranks=2)
    assert [each.rank for each in Watcher(tmp_path).update().ranks] == [0, 1]


def test_a_clock_that_differs_does_not_make_a_rank_silent(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    put(tmp_path, 0, age=40)
    assert watcher.update().ranks[0].state == "silent"
    put(tmp_path, 0, age=39.5)
    assert watcher.update().ranks[0].state == "running"


def test_step_times(tmp_path: Path) -> None:
    watcher, now = Watcher(tmp_path), time.time()
    for step in range(5):
        put(tmp_path, 0, step=step, time=now + 2 * step, step_time=0.0, ranks=1)
        rank = watcher.update().ranks[0]
    assert (rank.step_time, rank.own_time) == (pytest.approx(2.0), pytest.approx(1.5))
    put(tmp_path, 0, step=4, time=now + 11, ranks=1)
    assert watcher.update().ranks[0].step_time == pytest.approx(2.0)  # the next step may be nearly done
    put(tmp_path, 0, step=4, time=now + 28, ranks=1)
    rank = watcher.update().ranks[0]
    assert (rank.step_time, rank.own_time) == (
        pytest.approx(20.0),
        pytest.approx(20.0),
    )  # the step in progress
    put(tmp_path, 0, 9, step=4, time=now + 30, since=now + 10, ranks=1)  # it waits for another rank
    rank = watcher.update().ranks[0]
    assert (rank.step_time, rank.own_time) == (pytest.approx(22.0), pytest.approx(2.0))


def test_the_members_of_a_group_are_those_seen_in_it(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    for rank in range(4):
        put(tmp_path, rank, 1, group="tp0" if rank < 2 else "tp1")
    assert [each.missing for each in watcher.update().collectives] == [[], []]
    put(tmp_path, 1)
    put(tmp_path, 2, collective="send #3 of [[4]] in group tp1", since=1.0)
    found = {
        each.name: each for each in watcher.update().collectives if each.group == "tp0" or "send" in each.name
    }
    assert (found["all_reduce #1"].ranks, found["all_reduce #1"].missing) == ([0], [1])
    assert (found["send #3"].ranks, found["send #3"].missing) == ([2], [])


def test_a_smaller_job_in_the_same_folder(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    for rank in range(4):
        put(tmp_path, rank, 1, group="1")
    watcher.update()
    (tmp_path / "status-3.json").unlink()
    for rank in range(3):
        put(tmp_path, rank, rank and 1, group="1", ranks=3)
    (collective,) = watcher.update().collectives
    assert (collective.ranks, collective.missing) == ([1, 2], [])
    assert "all_reduce #1" in terminal.text(watcher.view)
    with serve(watcher, "127.0.0.1", 0) as address:
        assert get(address, "/state.json")[0] == 200


def test_a_restart_forgets_the_members_of_groups(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    for rank in range(2):
        put(tmp_path, rank, 1, group="tp0")
    watcher.update()
    for rank in range(2):
        put(tmp_path, rank, rank and 1, group="tp0", process=90 + rank)
    assert watcher.update().collectives[0].missing == []


def test_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, clock = Watcher(tmp_path, window=COLUMNS), [1000.0]
    monkeypatch.setattr("isthmus_cluster.watch.state.time.time", lambda: clock[0])
    put(tmp_path, 0, time=1000.0, ranks=3)
    put(tmp_path, 1, time=900.0, ranks=3)
    for second in range(2 * COLUMNS):
        clock[0] = 1000.0 + second / 2 if second < 4 else 1000.0 + second
        watcher.update()
    numbers = [each.number for each in watcher.view.columns]
    assert len(numbers) == COLUMNS and numbers == sorted(set(numbers))
    put(tmp_path, 0, time=clock[0], step=8, ranks=3)
    assert watcher.update().columns[-1].step == [400.0, NO_REPORT, ABSENT]


def test_alerts_are_read_as_they_come_and_grouped(tmp_path: Path) -> None:
    watcher = Watcher(hung(tmp_path))
    watcher.update()
    with (tmp_path / "alerts-1.jsonl").open("a") as file:
        file.write(json.dumps({**ALERT, "step": 6}) + "\nnot json\n" + '{"step": 8, "ra')
        file.flush()
        (tmp_path / "alerts-3.jsonl").write_text(json.dumps({**ALERT, "rank": 3, "step": 7}) + "\n")
        found = {each.kind: each for each in watcher.update().events}
        assert (found["nan"].where, found["nan"].step) == ("1, 3", 7)
        assert found["nan"].text == "loss is nan (first in step 5)"
        file.write('nk": 1, "kind": "straggler", "name": "rank 1", "text": "rank 1 is slow"}\n')
        file.flush()
        assert "rank 1 is slow" in [each.text for each in watcher.update().events]
    assert watcher.view.counts == {"nan": 3, "hang": 1, "straggler": 1}


def test_checkpoints_and_verdicts(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"last-{rank}.pt").write_bytes(b"")
    found = {
        "nodes": ["n0", "n1", "n2"],
        "verdicts": [
            {"part": "card", "nodes": [1], "card": 3, "log_odds": 9.2, "slow": False},
            {"part": "link", "nodes": [0, 2], "card": -1, "log_odds": 8.0, "slow": True},
            {"part": "rack", "nodes": [4], "card": -1, "log_odds": 8.0, "slow": True},
        ],
    }
    verdicts = tmp_path / "found.json"
    verdicts.write_text(json.dumps(found))
    events = Watcher(tmp_path, verdicts).update().events
    assert [each.where for each in events if each.kind == "checkpoint"] == ["0-2"]
    assert [each.text for each in events if each.kind == "verdict"] == [
        "isolate: card 3 of n1 is faulty, log-odds +9.2",
        "isolate: link n0 - n2 is slow, log-odds +8.0",
        "isolate: rack 4 is slow, log-odds +8.0",
    ]


def test_files_that_are_not_of_health(tmp_path: Path) -> None:
    put(tmp_path, 0, ranks=1)
    (tmp_path / "status-1.json").write_text('{"rank": 1}')
    for rank in range(3, 9):
        put(tmp_path, 0, ranks=1 << 40)
        (tmp_path / "status-0.json").rename(tmp_path / f"status-{rank}.json")
    put(tmp_path, 0, ranks=1)
    (tmp_path / "status-2.json").write_text(
        json.dumps({**json.loads((tmp_path / "status-0.json").read_text()), "time": 1e999})
    )
    view = Watcher(tmp_path).update()
    assert len(view.ranks) == 1
    assert len(view.problems) == 6 and view.problems[-1] == "and 3 more"
    assert all("not a status of isthmus_diagnostics.health (" in each for each in view.problems[:5])


@pytest.mark.parametrize(
    "wrong", [("step", 1e999), ("step_time", 1e308), ("time", 1.7e308), ("since", -1.7e308), ("stack", None)]
)
def test_malformed_files_do_not_end_the_watch(tmp_path: Path, wrong: tuple[str, Any]) -> None:
    put(tmp_path, 0, ranks=2)
    put(tmp_path, 1, ranks=2, **dict([wrong]))
    (tmp_path / "status-2.json").write_text("[" * 100_000)
    lines = [json.dumps({**ALERT, name: 1e999}) for name in ("step", "rank")]
    (tmp_path / "alerts-1.jsonl").write_text("\n".join([*lines, "[" * 60_000, json.dumps(ALERT), ""]))
    watcher = Watcher(tmp_path, tmp_path / "verdicts.json")
    (tmp_path / "verdicts.json").write_text("[" * 100_000)
    view = watcher.update()
    assert [each.state for each in view.ranks] == ["running", "absent"]
    assert len(view.problems) == 2 and view.counts == {"nan": 1, "verdict": 1}
    json.dumps(state(watcher, 2), allow_nan=False)
    terminal.text(view)


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    put(tmp_path / "other", 0, host="secret", ranks=1)
    (tmp_path / "other" / "text").write_text(json.dumps({**ALERT, "text": "secret"}) + "\n")
    folder = tmp_path / "health"
    put(folder, 1, ranks=3)
    (folder / "status-0.json").symlink_to(tmp_path / "other" / "status-0.json")
    for name in ("hang-step-1.txt", "alerts-0.jsonl"):
        (folder / name).symlink_to(tmp_path / "other" / "text")
    for name in ("status-2.json", "hang-step-2.txt", "alerts-3.jsonl"):
        os.mkfifo(folder / name)
    text = terminal.text(Watcher(folder).update())
    assert "secret" not in text
    assert "status-2.json: not a status of isthmus_diagnostics.health ([Errno 22] not a regular file" in text


def test_large_files_are_read_in_part(tmp_path: Path) -> None:
    put(tmp_path, 0, ranks=1)
    for name in ("status-1.json", "hang-step-2.txt", "alerts-3.jsonl"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    view = Watcher(tmp_path).update()
    assert len(view.problems) == 1 and view.counts == {"hang": 1}


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    put(tmp_path, 0, host="n\x1b[2J0", ranks=1)
    (tmp_path / "alerts-0.jsonl").write_text(json.dumps({**ALERT, "text": "a\x1b]0;b\x07\nc"}) + "\n")
    assert "\x1b" not in terminal.text(Watcher(tmp_path).update())


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    status, output = cluster("watch", "--inventory", tmp_path / "no.yaml", "--once")
    assert (status, output.count("\n")) == (1, 1) and "isthmus cluster init" in output
    status, output = cluster("watch", "--health-dir", tmp_path / "no", "--once")
    assert status == 3
    assert "no such file or directory; a job with `isthmus run --health --health-dir` makes it" in output
    with serve(Watcher(None), "127.0.0.1", 0) as address:
        port = address.rpartition(":")[2]
        status, output = cluster("watch", "--health-dir", tmp_path, "--web", "--port", port)
        assert (status, output.count("\n")) == (1, 1)
        assert f"{port}: Address already in use; give another --port" in output


# ---- the server


def get(address: str, path: str, host: str = "", method: str = "GET") -> tuple[int, Any, str]:
    place = address.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request(method, path, headers={"Host": host or place})
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def test_the_server_gives_four_paths_to_this_machine_alone(tmp_path: Path) -> None:
    watcher = Watcher(hung(tmp_path))
    cards = {"n0": Report("n0", 1.0, 0.5, (Card(0, "chip", power_w=71.0, memory_used=1 << 30),), "")}
    watcher.update(cards)
    with serve(watcher, "127.0.0.1", 0) as address:
        status, headers, page = get(address, "/")
        assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
        for tag in ("style", "script"):
            (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in headers["Content-Security-Policy"]
        assert not re.search(r"innerHTML|https?:|<link|src=", page)
        state = json.loads(get(address, "/state.json")[2])
        assert [each[3] for each in state["ranks"]] == ["collective", "collective", "silent", "collective"]
        assert state["collectives"][0]["who"] == "rank 2 (n1): silent for 58 s, at /x/train.py:14 in <module>"
        assert state["cards"][0][:5] == ["n0", "0", "chip", "OK", "71"]
        metrics = get(address, "/metrics")[2]
        assert 'isthmus_rank_step{rank="2",host="n1"} 7.0\n' in metrics
        assert 'isthmus_ranks{state="silent"} 1.0\n' in metrics
        assert 'isthmus_events_total{kind="hang"} 1.0\n' in metrics
        assert 'isthmus_card_power_watts{host="n0",card="0"} 71.0\n' in metrics
        assert re.fullmatch(r"(#.*\n|\w+(\{.*\})? \S+\n)+", metrics)
        port = address.rpartition(":")[2]
        assert get(address, "/state.json", f"localhost:{port}")[0] == 200
        assert get(address, "/state.json", f"attacker.example:{port}")[0] == 403
        for path in ("/../etc/passwd", "/page.html.j2", "/state.json/"):
            assert get(address, path)[0] == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert get(address, "/state.json", method=method)[0] == 501


def test_a_thousand_ranks(tmp_path: Path) -> None:
    put(tmp_path, 0, 9, ranks=1024)
    text = json.loads((tmp_path / "status-0.json").read_text())
    for rank in range(1, 1024):
        found = {**text, "rank": rank, "host": f"node{rank // 8}"}
        (tmp_path / f"status-{rank}.json").write_text(json.dumps(found))
    watcher = Watcher(tmp_path)
    watcher.update()
    with serve(watcher, "127.0.0.1", 0) as address:
        text = get(address, "/state.json")[2]
    assert len(json.loads(text)["ranks"]) == 1024 and len(text) < 300_000
    assert watcher.view.collectives[0].missing == []
    assert len(terminal.text(watcher.view, 10).splitlines()) < 30


# ---- the commands


@pytest.mark.full
def test_the_terminal_is_refreshed_until_the_command_is_ended(tmp_path: Path) -> None:
    hung(tmp_path)
    ours, theirs = pty.openpty()
    words = f"-m isthmus cluster watch --interval 0.1 --health-dir {tmp_path}".split()
    process = subprocess.Popen([sys.executable, *words], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""

    def has(text: bytes) -> bool:
        nonlocal seen
        seen += os.read(ours, 1 << 16)
        return text in seen

    try:
        with alive(tmp_path) as ranks:
            wait_until(lambda: has(b"1 silent"))
            ranks[2] = {"number": 9}
            wait_until(lambda: has(b"4 in a collective"))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: has(b"\x1b[?1049l"))  # the screen is restored
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the command with --web; yields the address of the page and the process."""
    command = f"-m isthmus cluster watch --web --port 0 --interval 0.2 --window 0.5 --health-dir {folder}"
    process = subprocess.Popen([sys.executable, *command.split()], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().split()[1], process
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("selenium is not installed; `make site-check` installs it")
    for command in ("chromium", "chromedriver"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not on PATH; on Debian: apt-get install chromium chromium-driver")
    from tools.site.check import browser

    folder, attack = tmp_path / "health", "<img src=x onerror='document.title=\"owned\"'>"
    hung(folder)
    with served(folder) as (address, process), browser() as driver, alive(folder) as ranks:
        ranks[1] = {"number": 9, "host": "<b>n0</b>"}
        script = driver.execute_script

        def text(element: str) -> str:
            return script(f"return document.getElementById('{element}').innerText")

        driver.get(address)
        wait_until(lambda: "1 silent" in text("summary"))
        assert script("return document.querySelectorAll('#ranks tbody tr').length") == 4
        assert script("return document.querySelector('#ranks tbody tr').innerText").startswith("2\tn1\t7")
        assert "<b>n0</b>" in text("ranks")
        assert "all_reduce #9\t0\t" in text("collectives") and "suspected: rank 2" in text("events")
        # The heat map: cells of the three ranks that report, and text about a cell for the keyboard.
        assert wait_until(lambda: int(script("return document.getElementById('heat').dataset.cells"))) >= 4
        script("document.getElementById('heat').focus()")
        keys = "document.getElementById('heat').dispatchEvent(new KeyboardEvent('keydown', {key: '%s'}))"
        script(keys % "ArrowRight")
        assert re.fullmatch(r"rank 0, n0, .*: [\d.]+ m?s, [\d.]+ x median", wait_until(lambda: text("cell")))
        script(keys % "ArrowDown" + ";" + keys % "ArrowDown")
        assert re.fullmatch(r"rank 2, n1, .*: no report", text("cell"))
        # A change of the files reaches the page; texts of a job remain texts.
        ranks[2] = {"number": 9}
        with (folder / "alerts-3.jsonl").open("a") as file:
            file.write(json.dumps({**ALERT, "kind": "straggler", "text": attack}) + "\n")
        wait_until(lambda: "4 in a collective" in text("summary") and attack in text("events"))
        assert script("return document.querySelectorAll('img').length") == 0
        assert "owned" not in driver.title
        assert not [each for each in driver.get_log("browser") if "favicon" not in each["message"]]
        assert not script("return document.body.classList.contains('old')")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert "the watcher does not answer" in wait_until(lambda: text("stale"))
        assert driver.title.startswith("STALE") and script("return document.body.classList.contains('old')")
