"""Traces of allocations: the file, the generator, the published ones."""

from __future__ import annotations

import dataclasses
import lzma
import os
import stat
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from isthmus.memory.trace import ALLOC, FREE, STEP, USE, TraceError, check, encode, read, write
from tests.helpers.memory_jobs import COLUMNS, MIB, PUBLISHED, make, record_trace, tiny
from tools.traces import catalogue
from tools.traces.recorder import COMMUNICATION, Recorder
from tools.traces.training import schedule

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


# ---- the file


def test_a_trace_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "small.trace"
    assert write(SMALL, path) == path.stat().st_size
    back = read(path)
    for name, dtype in COLUMNS.items():
        column = getattr(back, name)
        assert column.dtype == dtype
        np.testing.assert_array_equal(column, getattr(SMALL, name))
    assert (back.name, back.made, back.model, back.steps) == ("small", "by hand", "none", 2)
    assert encode(back) == encode(SMALL)


def test_a_file_is_for_owner_and_group(tmp_path: Path):
    outer = os.umask(0)
    try:
        write(SMALL, tmp_path / "small.trace")
    finally:
        os.umask(outer)
    assert stat.S_IMODE((tmp_path / "small.trace").stat().st_mode) == 0o640


def test_a_file_needs_a_name_and_a_folder_that_exists(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no such folder: .*absent; create it first"):
        write(SMALL, tmp_path / "absent" / "small.trace")
    with pytest.raises(IsADirectoryError, match="a folder; give the name of a file"):
        write(SMALL, tmp_path)
    assert not list(tmp_path.iterdir())


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


def test_a_longer_run():
    trace = make(
        (ALLOC, 0, 9), (STEP,), (ALLOC, 1, 5), (USE, 0, 3), (ALLOC, 2, 4), (FREE, 1), (FREE, 2), (STEP,)
    )
    longer = trace.repeated(2)
    check(longer, "longer")
    assert longer.steps == 4
    assert longer.live_peaks().tolist() == [9, 18, 18, 18]
    assert longer.id.tolist() == [0, 0, *(1, 0, 2, 1, 2, 0), *(3, 0, 4, 3, 4, 0), *(5, 0, 6, 5, 6, 0)]
    assert encode(trace.repeated(0)) == encode(trace)


@pytest.mark.parametrize(
    "events",
    [
        [(ALLOC, 0, 9), (STEP,)],
        [(STEP,), (ALLOC, 0, 9), (STEP,), (FREE, 0)],
        [(STEP,), (ALLOC, 0, 9), (STEP,)],
        [(ALLOC, 0, 9), (STEP,), (FREE, 0), (ALLOC, 1, 9), (STEP,)],
    ],
)
def test_runs_that_cannot_continue(events):
    with pytest.raises(TraceError, match=r"^small: .* repeated"):
        make(*events).repeated(1)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(4,)], "event 0 has an unknown kind"),
        ([(ALLOC, 0, 0)], "event 0 allocates less than 1 byte"),
        ([(ALLOC, 0, 1), (ALLOC, 0, 1)], "event 1 has an id that is not the next in order"),
        ([(STEP,), (FREE, 0)], "event 1 refers to an unknown allocation"),
        ([(ALLOC, 0, 1), (FREE, -1)], "event 1 refers to an unknown allocation"),
        ([(ALLOC, 0, 1), (FREE, 0), (FREE, 0)], "event 2 frees an allocation twice"),
        ([(ALLOC, 0, 1), (FREE, 0), (USE, 0, 1)], "event 2 uses a freed allocation"),
        ([(ALLOC, 0, 1), (USE, 0, -1)], "event 1 uses a stream out of range"),
        ([(ALLOC, 0, 1, -1)], "event 0 has a negative stream"),
    ],
)
def test_invalid_events(events, message: str):
    with pytest.raises(TraceError, match=rf"^here: {message}[^\n]*; make or record the trace again$"):
        check(make(*events), "here")


def damaged(change) -> bytes:
    return lzma.compress(change(encode(SMALL)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"plain text", "x.trace: not a trace; "),
        (lzma.compress(encode(SMALL))[:-20], "truncated|damaged"),
        (lzma.compress(b""), "not a trace"),
        (damaged(lambda raw: raw[:-1]), "not a trace .*column .* is truncated"),
        (damaged(lambda raw: raw.replace(b'"version":"1"', b'"version":"9"')), "isthmus-trace version 9"),
        (damaged(lambda raw: raw.replace(b'"steps":"2"', b'"steps":"3"')), "declares 3 steps but has 2"),
        (damaged(lambda raw: raw.replace(b'"U8"', b'"I8"')), "column kind is I8, not U8"),
        (damaged(lambda raw: raw.replace(b'"size"', b'"sizf"')), "not a trace"),
        (damaged(lambda raw: raw.replace(b'"dtype"', b'"dtypf"')), "not a trace"),
        (damaged(lambda raw: raw[:-1] + b"\x09"), "event|kind"),
        (lzma.compress((1 << 62).to_bytes(8, "little") + b"{}"), "not a trace"),
        (lzma.compress((2).to_bytes(8, "little") + b"[]"), "not a trace"),
    ],
)
def test_files_that_are_not_traces(tmp_path: Path, content: bytes, message: str):
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


def test_scratch_memory_of_attention_is_included():
    recorder = Recorder()
    with recorder:
        q, k, v = (torch.empty(1, 2, 16, 8, requires_grad=True) for _ in range(3))
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    trace = recorder.trace(name="n", made="m", model="o")
    scratch = np.flatnonzero((trace.kind == ALLOC) & (trace.size == 4 * (2 * 16 * 8 + 2 * 16)))
    assert len(scratch) == 1
    assert trace.kind[scratch[0] + 1] == FREE
    assert trace.id[scratch[0] + 1] == trace.id[scratch[0]]


@pytest.mark.sampled(2)
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
    trace = record_trace(tiny(**changes))
    check(trace, "tiny")
    ends = np.flatnonzero(trace.kind == STEP)
    assert len(ends) == 3
    steps = [trace.size[a:b][trace.kind[a:b] == ALLOC] for a, b in pairwise(ends)]
    np.testing.assert_array_equal(steps[0], steps[1])
    peaks = trace.live_peaks()
    assert peaks[1] == peaks[2] > peaks[0] / 2
    assert trace.live()[ends[1]] == trace.live()[ends[2]]  # nothing is left over


@pytest.mark.full
def test_recomputing_saves_memory():
    jobs = [
        tiny(lengths=lambda _: (2, 512), recompute=mode, steps=2) for mode in ("none", "alternate", "full")
    ]
    none, alternate, full = (record_trace(job).live_peaks()[1] for job in jobs)
    assert full < alternate < none


@pytest.mark.full
def test_the_seed_decides_lengths_and_routing():
    job = tiny(
        shape=dataclasses.replace(tiny().shape, experts=4, expert_parallel=2),
        lengths=catalogue.JOBS["variable-7b"][1].lengths,
        steps=1,
    )
    first, again, other = (record_trace(dataclasses.replace(job, seed=seed)) for seed in (1, 1, 2))
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
    longer = trace.repeated(1)
    check(longer, name)
    assert longer.live_peaks().max() == trace.live_peaks().max()


@pytest.mark.full
def test_the_generator_reproduces_the_published_bytes():
    """Two steps of one; test_every_published_trace_is_reproduced has all of all."""
    model, job = catalogue.JOBS["dense-7b"]
    fresh = catalogue.record(dataclasses.replace(job, steps=2), name="dense-7b", made="", model=model)
    published = read(PUBLISHED / "dense-7b.trace")
    for name in COLUMNS:
        column = getattr(fresh, name)
        assert column.tobytes() == getattr(published, name)[: len(fresh)].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.names())
def test_every_published_trace_is_reproduced(name: str):
    assert encode(catalogue.generate(name)) == encode(read(PUBLISHED / f"{name}.trace"))
