"""Traces of allocations: the file, the generator, the replay, the picture, the commands."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import stat
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.memory import catalogue, picture, replay
from isthmus.memory.models import Shape
from isthmus.memory.recorder import COMMUNICATION, Recorder
from isthmus.memory.trace import ALLOC, FREE, STEP, USE, Trace, TraceError, check, encode, read, write
from isthmus.memory.training import Job, schedule

PUBLISHED = Path(__file__).resolve().parents[1] / "benchmarks" / "traces"
COLUMNS = {"kind": np.uint8, "id": np.int32, "size": np.int64, "stream": np.int16}
MIB = 1 << 20


def make(*events: tuple[int, ...]) -> Trace:
    """A trace of (kind, id, size, stream) rows; what is left out is 0."""
    rows = np.array([event + (0,) * (4 - len(event)) for event in events], np.int64).reshape(-1, 4)
    columns = {name: row.astype(dtype) for (name, dtype), row in zip(COLUMNS.items(), rows.T, strict=True)}
    return Trace(**columns, name="small", made="by hand", model="none")


SMALL = make(
    (ALLOC, 0, 100),
    (ALLOC, 1, 50, 3),
    (FREE, 0),
    (STEP,),
    (ALLOC, 2, 7),
    (USE, 1, 2),
    (FREE, 1),
    (STEP,),
    (FREE, 2),
)


def tiny(**changes) -> Job:
    shape = Shape(layers=4, hidden=64, heads=4, kv_heads=2, ffn=128, vocabulary=512)
    return dataclasses.replace(Job(shape=shape, lengths=lambda _: (2, 32), steps=3), **changes)


def recorded(job: Job) -> Trace:
    return catalogue.record(job, name="tiny", made="a test", model="tiny")


# ---- the file


def test_a_trace_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "sub" / "small.trace"
    assert write(SMALL, path) == path.stat().st_size
    back = read(path)
    for name, dtype in COLUMNS.items():
        column = getattr(back, name)
        assert column.dtype == dtype
        np.testing.assert_array_equal(column, getattr(SMALL, name))
    assert (back.name, back.made, back.model, back.steps) == ("small", "by hand", "none", 2)
    assert encode(back) == encode(SMALL)


def test_files_and_folders_are_for_owner_and_group(tmp_path: Path):
    outer = os.umask(0)
    try:
        write(SMALL, tmp_path / "sub" / "small.trace")
    finally:
        os.umask(outer)
    assert stat.S_IMODE((tmp_path / "sub" / "small.trace").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "sub").stat().st_mode) == 0o750


def test_a_file_is_compressed_safetensors(tmp_path: Path):
    write(SMALL, tmp_path / "small.trace")
    columns = safetensors.numpy.load(lzma.decompress((tmp_path / "small.trace").read_bytes()))
    np.testing.assert_array_equal(columns["size"], SMALL.size)
    np.testing.assert_array_equal(columns["id"], [0, 0, 2, 0, 0, 2, 2, 0, 1])  # ages


def test_figures_of_a_trace():
    assert SMALL.sizes.tolist() == [100, 50, 7]
    assert SMALL.live().tolist() == [100, 150, 50, 50, 57, 57, 7, 7, 0]
    assert SMALL.live(3).tolist() == [0, 50, 50, 50, 50, 50, 0, 0, 0]
    assert SMALL.live_peaks().tolist() == [150, 57]
    assert SMALL.separate_peak() == 150
    assert make((ALLOC, 0, 9, 0), (FREE, 0), (ALLOC, 1, 8, 1), (STEP,)).separate_peak() == 17


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(4,)], "event 0 has a kind that is not 0, 1, 2 or 3"),
        ([(ALLOC, 0, 0)], "event 0 allocates nothing"),
        ([(ALLOC, 0, 1), (ALLOC, 0, 1)], "event 1 has an id that is not the next in order"),
        ([(STEP,), (FREE, 0)], "event 1 names an allocation that was never made"),
        ([(ALLOC, 0, 1), (FREE, -1)], "event 1 names an allocation that was never made"),
        ([(ALLOC, 0, 1), (FREE, 0), (FREE, 0)], "event 2 frees an allocation a second time"),
        ([(ALLOC, 0, 1), (FREE, 0), (USE, 0, 1)], "event 2 uses an allocation after its free"),
        ([(ALLOC, 0, 1), (USE, 0, -1)], "event 1 uses a stream out of range"),
        ([(ALLOC, 0, 1, -1)], "event 0 has a stream below 0"),
    ],
)
def test_events_that_cannot_be(events, message: str):
    with pytest.raises(TraceError, match=rf"^here: {message}[^\n]*; make or record the trace again$"):
        check(make(*events), "here")


def damaged(change) -> bytes:
    return lzma.compress(change(encode(SMALL)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut short"),
        (b"plain text", "x.trace: not a trace; "),
        (lzma.compress(encode(SMALL))[:-20], "cut short|damaged"),
        (lzma.compress(b""), "not a trace"),
        (damaged(lambda raw: raw[:-1]), "not a trace .*column .* is cut short"),
        (damaged(lambda raw: raw.replace(b'"version":"1"', b'"version":"9"')), "isthmus-trace version 9"),
        (damaged(lambda raw: raw.replace(b'"steps":"2"', b'"steps":"3"')), "announces 3 steps and has 2"),
        (damaged(lambda raw: raw.replace(b'"U8"', b'"I8"')), "column kind is I8, not U8"),
        (damaged(lambda raw: raw.replace(b'"size"', b'"sizf"')), "not a trace"),
        (damaged(lambda raw: raw.replace(b'"dtype"', b'"dtypf"')), "not a trace"),
        (damaged(lambda raw: raw[:-1] + b"\x09"), "event|kind"),
        (lzma.compress((1 << 62).to_bytes(8, "little") + b"{}"), "not a trace"),
        (lzma.compress((2).to_bytes(8, "little") + b"[]"), "not a trace"),
    ],
)
def test_files_that_are_no_traces(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "x.trace"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


# ---- the generator


def test_storages_live_and_die_as_the_program_says():
    recorder = Recorder()
    with recorder:
        a = torch.empty(10)
        b = a + 1
        view = b[2:]
        del b
        recorder.use(view)
        with recorder.on(COMMUNICATION):
            c = torch.zeros(3, dtype=torch.int8)
        with recorder.pause():
            torch.empty(1000)
        del view
        recorder.step()
    trace = recorder.trace(name="n", made="m", model="o")
    rows = list(zip(*(getattr(trace, name).tolist() for name in COLUMNS), strict=True))
    assert rows == [
        (ALLOC, 0, 40, 0),
        (ALLOC, 1, 40, 0),
        (USE, 1, COMMUNICATION, 0),
        (ALLOC, 2, 3, COMMUNICATION),
        (FREE, 1, 0, 0),
        (STEP, 0, 0, 0),
    ]
    assert (a.shape, c.shape) == ((10,), (3,))


def test_scratch_memory_of_attention_is_there():
    recorder = Recorder()
    with recorder:
        q, k, v = (torch.empty(1, 2, 16, 8, requires_grad=True) for _ in range(3))
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    trace = recorder.trace(name="n", made="m", model="o")
    scratch = np.flatnonzero((trace.kind == ALLOC) & (trace.size == 4 * (2 * 16 * 8 + 2 * 16)))
    assert len(scratch) == 1
    assert trace.kind[scratch[0] + 1] == FREE
    assert trace.id[scratch[0] + 1] == trace.id[scratch[0]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recompute": "full"},
        {"optimizer": "foreach", "micro_batches": 2},
        {"optimizer": "loop", "gathered": True},
        {"pipeline": 2, "chunks": 2, "micro_batches": 4, "recompute": "alternate"},
        {"shape": dataclasses.replace(tiny().shape, unfused_attention=True), "recompute": "selective"},
        {"shape": dataclasses.replace(tiny().shape, fused=True, tensor_parallel=2, kv_heads=4)},
    ],
    ids=lambda changes: ", ".join(f"{k} {v}" for k, v in changes.items() if k != "shape") or "plain",
)
def test_steps_of_one_length_repeat_from_the_second_on(changes):
    trace = recorded(tiny(**changes, steps=4))
    check(trace, "tiny")
    ends = np.flatnonzero(trace.kind == STEP)
    assert len(ends) == 4
    steps = [trace.size[a:b][trace.kind[a:b] == ALLOC] for a, b in pairwise(ends)]
    np.testing.assert_array_equal(steps[0], steps[1])
    np.testing.assert_array_equal(steps[1], steps[2])
    peaks = trace.live_peaks()
    assert peaks[1] == peaks[2] == peaks[3] > peaks[0] / 2
    assert trace.live()[ends[1]] == trace.live()[ends[2]]  # nothing is left over


def test_recomputing_saves_memory():
    jobs = [tiny(lengths=lambda _: (2, 512), recompute=mode) for mode in ("none", "alternate", "full")]
    none, alternate, full = (recorded(job).live_peaks()[1] for job in jobs)
    assert full < alternate < none


def test_the_seed_decides_lengths_and_routing():
    job = tiny(
        shape=dataclasses.replace(tiny().shape, experts=4, expert_parallel=2),
        lengths=catalogue.JOBS["variable-7b"][1].lengths,
        micro_batches=2,
        steps=2,
    )
    first, again, other = (recorded(dataclasses.replace(job, seed=seed)) for seed in (1, 1, 2))
    assert encode(first) == encode(again)
    assert encode(first) != encode(other)


def test_the_interleaved_schedule():
    order = schedule(stages=2, chunks=2, micro_batches=4)
    assert order[:5] == [(True, 0, 0), (True, 0, 1), (True, 1, 0), (True, 1, 1), (True, 0, 2)]
    assert order[5:7] == [(False, 1, 0), (True, 0, 3)]
    passes = {(chunk, batch) for chunk in range(2) for batch in range(4)}
    for forward in (True, False):
        assert {place[1:] for place in order if place[0] is forward} == passes
    assert len(order) == 16
    for chunk, batch in passes:
        assert order.index((True, chunk, batch)) < order.index((False, chunk, batch))


@pytest.mark.parametrize(("stages", "in_flight"), [(1, 1), (4, 4)])
def test_the_plain_schedule_holds_one_micro_batch_for_each_stage(stages: int, in_flight: int):
    held, most = 0, 0
    for forward, _, _ in schedule(stages, 1, 8):
        held += 1 if forward else -1
        most = max(most, held)
    assert (held, most) == (0, in_flight)


# ---- the published traces


def test_ten_traces_are_published():
    assert sorted(path.stem for path in PUBLISHED.glob("*.trace")) == sorted(catalogue.names())
    assert len(catalogue.names()) == 10
    assert sum(path.stat().st_size for path in PUBLISHED.glob("*.trace")) < 3 * MIB


@pytest.mark.parametrize("name", catalogue.names())
def test_a_published_trace(name: str):
    trace = read(PUBLISHED / f"{name}.trace")
    assert (trace.name, trace.model) == (name, catalogue.JOBS[name][0])
    assert trace.steps == catalogue.JOBS[name][1].steps >= 4
    assert trace.live_peaks().max() < 80 << 30
    assert trace.kind[-1] == STEP


def test_the_generator_makes_the_published_bytes():
    """Two steps of one; test_every_published_trace_is_made_again has all of all."""
    model, job = catalogue.JOBS["dense-7b"]
    fresh = catalogue.record(dataclasses.replace(job, steps=2), name="dense-7b", made="", model=model)
    published = read(PUBLISHED / "dense-7b.trace")
    for name in COLUMNS:
        column = getattr(fresh, name)
        assert column.tobytes() == getattr(published, name)[: len(fresh)].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.names())
def test_every_published_trace_is_made_again(name: str):
    assert encode(catalogue.generate(name)) == encode(read(PUBLISHED / f"{name}.trace"))


# ---- the replay


def test_live_peaks_are_those_of_the_trace():
    trace = read(PUBLISHED / "moe-8x7b.trace")
    outcome = replay.replay(trace, ["torch"], rounds=1)[0]
    peaks = trace.live_peaks()
    assert outcome.live_peak_first == peaks[0]
    assert outcome.live_peak == peaks[1:].max()
    assert outcome.out_of_memory == -1


@pytest.mark.parametrize("name", replay.policies())
def test_every_allocator_is_replayed(name: str):
    outcome = replay.replay(recorded(tiny()), [name], rounds=2)[0]
    assert outcome.ratio_first >= 1
    assert outcome.ratio >= 1
    assert 0 <= outcome.fragmentation < 1
    assert len(outcome.nanoseconds) == 2
    assert outcome.growths > 0
    assert outcome.row()["nanoseconds"] == outcome.best > 0


@pytest.mark.parametrize("name", replay.policies())
def test_blocks_lie_in_segments_and_apart(name: str):
    trace = recorded(tiny())
    found = replay.spans(trace, name)
    by_id = {block[4]: block for block in found.blocks}
    made = np.flatnonzero(trace.kind == ALLOC)
    assert sorted(by_id) == trace.id[made].tolist()
    for number, event in enumerate(made):
        start, end, _, size, _ = by_id[number]
        assert start == event < end
        assert size >= trace.size[event]
    assert_apart(found.blocks)
    assert_apart(found.segments)
    for start, end, address, size in found.blocks[:, :4]:
        covering = found.segments[(found.segments[:, 0] <= start) & (found.segments[:, 1] >= end)]
        inside = np.minimum(covering[:, 2] + covering[:, 3], address + size) - np.maximum(
            covering[:, 2], address
        )
        assert inside[inside > 0].sum() == size


def assert_apart(rows: np.ndarray) -> None:
    """No two spans share an address at a time."""
    start, end, low = rows[:, 0], rows[:, 1], rows[:, 2]
    high = low + rows[:, 3]
    for index in range(len(rows)):
        others = slice(index + 1, None)
        meets = (start[others] < end[index]) & (end[others] > start[index])
        meets &= (low[others] < high[index]) & (high[others] > low[index])
        assert not meets.any()


def test_an_exhausted_device_is_reported():
    trace = make((ALLOC, 0, 8 * MIB), (STEP,), (ALLOC, 1, 64 * MIB), (STEP,))
    outcome = replay.replay(trace, ["torch"], capacity=32 * MIB, rounds=1)[0]
    assert outcome.out_of_memory == 2
    assert outcome.row()["ratio"] is None


def test_options_of_one_and_of_all():
    trace = read(PUBLISHED / "dense-7b.trace")
    both = ["torch", "torch/expandable_segments:True"]
    plain, expandable = replay.replay(trace, both, rounds=1)
    assert expandable.ratio < plain.ratio
    with pytest.raises(TraceError, match=r"^torch over dense-7b: .*nonsense"):
        replay.replay(trace, ["torch"], conf="nonsense:1")
    with pytest.raises(TraceError, match=r"^best over dense-7b: .*best"):
        replay.replay(trace, ["best"])


def test_a_trace_without_a_step_is_refused():
    with pytest.raises(TraceError, match="no step ends in it"):
        replay.replay(make((ALLOC, 0, 1)), ["torch"])


@pytest.mark.parametrize(
    ("text", "size"), [("80GiB", 80 << 30), ("1.5 TiB", 3 << 39), ("512", 512), ("64B", 64), ("2KiB", 2048)]
)
def test_sizes(text: str, size: int):
    assert replay.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "5GB", "1e9"])
def test_what_is_no_size(text: str):
    with pytest.raises(TraceError, match="not a size; give bytes or a number with"):
        replay.parse_size(text)


# ---- the picture


def test_the_picture_shows_blocks_holes_and_what_is_not_held():
    trace = make((ALLOC, 0, 4), (ALLOC, 1, 4), (FREE, 1), (STEP,))
    spans = replay.Spans(
        allocator="x",
        blocks=np.array([[0, 4, 1000, 4, 0], [1, 2, 1004, 4, 1]]),
        segments=np.array([[0, 4, 1000, 8]]),
    )
    pixels = picture.raster(trace, spans, 16, lambda values: np.stack([values, values, values, values], -1))
    rows, columns, _ = pixels.shape
    at = lambda event, address: tuple(  # noqa: E731
        pixels[int((address + 0.5) * rows / 16), int((event + 0.5) * columns / 4)]
    )
    assert at(3, 1) == (1, 1, 1)  # the whole trace: log 4 / log 4
    assert at(1, 5) == (0, 0, 0)  # one event
    assert at(3, 5) == picture._WHITE
    assert at(0, 5) == picture._WHITE
    assert at(2, 12) == picture._GREY


def test_addresses_that_were_never_held_take_no_room():
    rows = np.array([[0, 1, 500, 10], [0, 1, 510, 10], [0, 1, 1 << 40, 5]])
    addresses = picture._Addresses(replay.Spans(allocator="x", blocks=rows[:0], segments=rows))
    assert addresses.total == 25
    assert addresses.compact(np.array([500, 515, (1 << 40) + 2])).tolist() == [0, 15, 22]


@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_pictures_are_written(tmp_path: Path, kind: str):
    trace = recorded(tiny())
    path = tmp_path / f"x.{kind}"
    names = ["torch", "bs"]
    picture.draw(path, trace, [replay.spans(trace, name) for name in names], replay.replay(trace, names))
    content = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    if kind == "png":
        assert content.startswith(b"\x89PNG")
    elif kind == "svg":
        assert b"<svg" in content
    else:
        assert b"data:image/png;base64," in content
        assert all(f"<td>{name}</td>".encode() in content for name in names)


# ---- the commands


def isthmus(*words: object, code: int = 0) -> str:
    """Standard output, or standard error of a command that fails."""
    result = CliRunner().invoke(app, ["memory", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


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
    options = ["--allocator", "torch/max_split_size_mb:512,expandable_segments:True,bs", "--rounds", 1]
    out = ["--json", tmp_path / "x.json", "--picture", tmp_path / "x.png"]
    lines = isthmus("replay", small, *options, *out).splitlines()
    names = ["torch/max_split_size_mb:512,expandable_segments:True", "bs"]
    assert [line.split()[1] for line in lines[1:]] == names
    rows = json.loads((tmp_path / "x.json").read_text())
    assert [row["allocator"] for row in rows] == names
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
