"""``isthmus memory``: the commands, and what they say when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from memory_jobs import PUBLISHED, isthmus, recorded, tiny

from isthmus.memory import catalogue
from isthmus.memory.trace import read, write


def test_trace_show():
    lines = isthmus("trace", "show", PUBLISHED / "gathered-13b.trace").splitlines()
    assert lines[0].startswith("gathered-13b: LLaMA 13B")
    assert "73902 events" in lines[2]
    assert "6 steps; allocations on 2 streams" in lines[2]
    assert lines[3].startswith("live peak of each step, GiB: 18.53, 19.57,")
    assert lines[3].endswith("streams apart 23.01")


def test_trace_generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert [line.split()[0] for line in isthmus("trace", "generate").splitlines()] == catalogue.names()
    assert isthmus("trace", "generate", "x", code=1).startswith(
        "isthmus: x: no such trace; there are dense-7b,"
    )
    monkeypatch.setitem(catalogue.JOBS, "dense-7b", ("tiny", tiny()))
    said = isthmus("trace", "generate", "dense-7b", "--output", tmp_path)
    trace = read(tmp_path / "dense-7b.trace")
    assert f"{len(trace)} events in 3 steps" in said
    assert trace.made == "isthmus memory trace generate dense-7b"


def test_memory_replay(tmp_path: Path):
    small = tmp_path / "tiny.trace"
    write(recorded(tiny()), small)
    options = [
        "--allocator",
        "torch/max_split_size_mb:512,expandable_segments:True,bs",
        "--rounds",
        1,
        "--repeat",
        2,
    ]
    out = ["--json", tmp_path / "x.json", "--picture", tmp_path / "x.png"]
    lines = isthmus("replay", small, *options, *out).splitlines()
    names = ["torch/max_split_size_mb:512,expandable_segments:True", "bs"]
    assert [line.split()[1] for line in lines[1:]] == names
    rows = json.loads((tmp_path / "x.json").read_text())
    assert [row["allocator"] for row in rows] == names
    assert [row["steps"] for row in rows] == [7, 7]
    assert all(row["reserved_peak"] >= row["live_peak"] > 0 for row in rows)
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_memory_replay_says_what_is_wrong(tmp_path: Path):
    small = tmp_path / "tiny.trace"
    write(recorded(tiny()), small)
    for words, message in [
        ([tmp_path / "absent.trace"], "No such file"),
        ([small, small, "--picture", "x.png"], "a picture shows one trace, not 2; give one"),
        ([small, "--picture", tmp_path / "x.gif"], "ends in .png, .svg or .html"),
        ([small, "--capacity", "much"], "much: not a size"),
        ([small, "--allocator", "best"], "best over tiny"),
    ]:
        said = isthmus("replay", *words, "--rounds", 1, code=1)
        assert message in said
        assert said.startswith("isthmus: ")
        assert said.count("\n") == 1
