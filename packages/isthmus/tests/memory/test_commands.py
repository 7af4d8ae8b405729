"""``isthmus memory``: the commands and their error messages."""

from __future__ import annotations

import dataclasses
import json
import stat
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import tools.traces.__main__
from isthmus.memory.trace import ALLOC, FREE, STEP, read, write
from tests.helpers.memory_jobs import MIB, PUBLISHED, isthmus, make, record_trace, tiny
from tools.traces import catalogue


def test_trace_show():
    lines = isthmus("trace", "show", PUBLISHED / "gathered-13b.trace").splitlines()
    assert lines[0].startswith("gathered-13b: LLaMA 13B")
    assert "73902 events" in lines[2]
    assert "6 steps; allocations on 2 streams" in lines[2]
    assert lines[3].startswith("live peak of each step, GiB: 18.53, 19.57,")
    assert lines[3].endswith("streams apart 23.01")


def traces(*words: object) -> Result:
    return CliRunner().invoke(tools.traces.__main__.app, [*map(str, words)])


def test_make_a_published_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert [line.split()[0] for line in traces().stdout.splitlines()] == catalogue.names()
    unknown = traces("x")
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("isthmus: unknown trace 'x'; expected one of dense-7b,")
    monkeypatch.setitem(catalogue.JOBS, "dense-7b", ("tiny", tiny()))
    said = traces("dense-7b", "--output", tmp_path / "made").stdout
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o750
    trace = read(tmp_path / "made" / "dense-7b.trace")
    assert f"{len(trace)} events in 3 steps" in said
    assert trace.made == "python -m tools.traces dense-7b"


def test_memory_replay(tmp_path: Path):
    small = tmp_path / "tiny.trace"
    write(record_trace(tiny()), small)
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


def test_memory_replay_reports_errors(tmp_path: Path):
    small = tmp_path / "tiny.trace"
    write(record_trace(tiny()), small)
    absent = tmp_path / "absent"
    for words, message in [
        ([tmp_path / "absent.trace"], "No such file"),
        ([small, small, "--picture", "x.png"], "a picture shows one trace, not 2; give one"),
        ([small, "--picture", tmp_path / "x.gif"], "ends in .png, .svg or .html"),
        ([small, "--capacity", "much"], "much: not a size"),
        ([small, "--capacity", "99999999TiB"], "99999999TiB: out of range; give a size from 1 byte"),
        ([small, "--allocator", "best"], "best over tiny"),
        ([small, "--allocator", ","], "--allocator ',': no name given; expected some of planned,"),
        ([small, "--repeat", 10**9], "tiny: 1000000000 repetitions make the trace too long"),
        ([small, "--json", "."], ".: a folder; give the name of a file"),
        ([small, "--json", absent / "x.json"], f"no such folder: {absent}; create it first"),
        ([small, "--picture", absent / "x.png"], f"no such folder: {absent}; create it first"),
    ]:
        said = isthmus("replay", *words, "--rounds", 1, code=1)
        assert message in said
        assert said.startswith("isthmus: ")
        assert said.count("\n") == 1


@pytest.mark.full
def test_out_of_memory_at_the_first_event_is_a_line(tmp_path: Path):
    small = tmp_path / "small.trace"
    write(make((ALLOC, 0, 64 * MIB), (STEP,), (FREE, 0), (STEP,)), small)
    out = ["--json", tmp_path / "x.json", "--picture", tmp_path / "x.png"]
    said = isthmus("replay", small, "--capacity", "1MiB", "--rounds", 1, *out, code=1)
    assert said == "isthmus: every allocator runs out of memory (1MiB); give a larger --capacity\n"
    rows = json.loads((tmp_path / "x.json").read_text())
    assert [row["out_of_memory"] for row in rows] == [0] * len(rows) and rows
    assert all(row["ratio"] is None for row in rows)


def test_sizes_are_in_a_unit_that_shows_them(tmp_path: Path):
    small = tmp_path / "small.trace"
    write(make((ALLOC, 0, 5 << 9), (STEP,), (FREE, 0), (STEP,)), small)
    said = isthmus("replay", small, "--rounds", 1, "--allocator", "bs")
    assert said.splitlines()[0].split()[2:4] == ["live", "KiB"] and said.splitlines()[1].split()[2] == "2.50"
    shown = isthmus("trace", "show", small)
    assert "live peak of each step, KiB: 2.50, 2.50" in shown and "2.50 KiB" in shown.splitlines()[-1]


def test_figures_missing_in_a_trace_are_omitted(tmp_path: Path):
    empty, short = tmp_path / "empty.trace", tmp_path / "short.trace"
    write(make((STEP,), (STEP,)), empty)
    said = isthmus("replay", empty, "--rounds", 1, code=1)
    assert said == "isthmus: small: contains no allocation; record a run that uses the chip\n"
    assert "0 allocations" in isthmus("trace", "show", empty)
    write(make((ALLOC, 0, MIB)), short)
    assert "live peak of each step, GiB: none" in isthmus("trace", "show", short)
    write(make((ALLOC, 0, MIB), (STEP,), (FREE, 0), (STEP,), (STEP,)), short)
    assert "nan" not in isthmus("replay", short, "--rounds", 1)


def test_text_in_a_trace_cannot_send_terminal_escapes(tmp_path: Path):
    path = tmp_path / "x.trace"
    trace = make((ALLOC, 0, MIB), (STEP,), (FREE, 0), (STEP,))
    write(dataclasses.replace(trace, name="\x1b[31mred", model="a\nb\x9b1m", made="\x07é"), path)
    shown = isthmus("trace", "show", path) + isthmus("replay", path, "--rounds", 1)
    assert shown.replace("\n", "").isprintable()
    assert shown.startswith("\\x1b[31mred: a\\nb\\x9b1m\nmade by: \\x07é\n")
