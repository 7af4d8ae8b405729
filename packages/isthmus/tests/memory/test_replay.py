"""Allocators over traces: figures, spans, the picture."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path

import numpy as np
import pytest

from isthmus.memory import picture, replay
from isthmus.memory.trace import ALLOC, FREE, STEP, TraceError, read
from tests.helpers.memory_jobs import MIB, PUBLISHED, make, record_trace, tiny

# ---- the replay


def test_live_peaks_are_those_of_the_trace():
    trace = read(PUBLISHED / "moe-8x7b.trace")
    outcome = replay.replay(trace, ["torch"], rounds=1)[0]
    peaks = trace.live_peaks()
    assert outcome.live_peak_first == peaks[0]
    assert outcome.live_peak == peaks[1:].max()
    assert outcome.out_of_memory == -1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", replay.policies())
def test_every_allocator_is_replayed(name: str):
    outcome = replay.replay(record_trace(tiny()), [name], rounds=2)[0]
    assert outcome.ratio_first >= 1
    assert outcome.ratio >= 1
    assert 0 <= outcome.fragmentation < 1
    assert len(outcome.nanoseconds) == 2
    assert outcome.growths > 0
    assert outcome.row()["nanoseconds"] == outcome.best > 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", replay.policies())
def test_blocks_lie_in_segments_and_apart(name: str):
    trace = record_trace(tiny())
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
    """Assert that no two spans share an address at a time."""
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


def test_no_ratio_without_reserved_memory():
    trace = make((ALLOC, 0, 8 * MIB), (STEP,), (FREE, 0), (STEP,))
    outcome = replay.replay(trace, ["bs"], rounds=1)[0]
    none = dataclasses.replace(outcome, reserved_peak=0, live_peak=1)
    assert np.isnan([none.ratio, none.fragmentation]).all()
    assert (none.row()["ratio"], none.row()["fragmentation"]) == (None, None)


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
    with pytest.raises(TraceError, match="contains no complete optimizer step"):
        replay.replay(make((ALLOC, 0, 1)), ["torch"])


@pytest.mark.parametrize(
    ("text", "size"), [("80GiB", 80 << 30), ("1.5 TiB", 3 << 39), ("512", 512), ("64B", 64), ("2KiB", 2048)]
)
def test_sizes(text: str, size: int):
    assert replay.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "0", "5GB", "1e9"])
def test_invalid_sizes(text: str):
    with pytest.raises(TraceError, match="not a size; give bytes or a number with"):
        replay.parse_size(text)


# ---- the picture


def test_the_plot_shows_blocks_and_holes_and_free_memory():
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


def test_addresses_never_used_take_no_space():
    rows = np.array([[0, 1, 500, 10], [0, 1, 510, 10], [0, 1, 1 << 40, 5]])
    addresses = picture._Addresses(replay.Spans(allocator="x", blocks=rows[:0], segments=rows))
    assert addresses.total == 25
    assert addresses.compact(np.array([500, 515, (1 << 40) + 2])).tolist() == [0, 15, 22]


def test_the_curve_of_reserved_bytes_reaches_the_reserved_peak():
    trace = record_trace(tiny())
    for outcome in replay.replay(trace, ["torch", "bs"]):
        held = picture.reserved_bytes(replay.spans(trace, outcome.allocator), len(trace))
        assert held.shape == (len(trace),)
        assert held.max() == max(outcome.reserved_peak_first, outcome.reserved_peak)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["png", "svg", "html"])
@pytest.mark.full
def test_plots_are_written(tmp_path: Path, kind: str):
    trace = record_trace(tiny())
    path = tmp_path / f"x.{kind}"
    names = ["torch", "bs"]
    picture.draw(path, trace, [replay.spans(trace, name) for name in names], replay.replay(trace, names))
    content = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    if kind == "png":
        assert content.startswith(b"\x89PNG")
    elif kind == "svg":
        assert b"<svg" in content
        legend = (
            "reserved, not in use",
            "not reserved",
            "bytes reserved",
            "end of a step",
            "block in use, by",
        )
        assert all(text.encode() in content for text in legend)
    else:
        assert b"data:image/png;base64," in content
        assert all(f"<td>{name}</td>".encode() in content for name in names)
