"""Time in which processes cannot run does not count."""

import subprocess
import sys
import time

import pytest

from tools import stopwatch
from tools.stopwatch import Stopwatch, session


def test_time_in_which_it_is_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = Stopwatch()
    now += 0.5
    assert watch.tick() == 0.5
    now += 600
    assert watch.tick() == 0.5 + watch.LONGEST


def test_the_wait_of_the_thread_that_waited_longest_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 100.0, {"a": 0.0, "b": 2.0}
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(
        stopwatch, "_waits", lambda processes: {thread: wait * 1e9 for thread, wait in waits.items()}
    )
    watch = Stopwatch()
    watch.tick()
    for _ in range(3):  # a thread's wait is known once it has a CPU
        now += 1
        watch.tick()
    waits.update(a=2.5, b=2.25)
    now += 1
    assert watch.tick() == pytest.approx(-2 + 4 - 2.5)


def test_processes_of_a_session() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True
    ) as leader:
        while len(found := session(leader.pid)) < 2:
            time.sleep(0.05)
        assert leader.pid in found
        assert stopwatch._waits(found)
        leader.communicate(b"\n")
