"""Packing: every token once, no sample too long, the same order each time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_formats.data import packing
from isthmus_formats.data.packing import Layout, Tokens


def tokens(lengths: list[int], masked: bool = True) -> Tokens:
    total = sum(lengths)
    mask = np.arange(total) % 3 == 0 if masked else None
    return Tokens(np.arange(total, dtype=np.int32), mask, np.cumsum(lengths, dtype=np.int64))


def samples(data: Tokens, layout: Layout, chosen: list[int] | None = None):
    which = np.arange(len(data.ends)) if chosen is None else np.array(chosen, np.int64)
    return list(packing.samples(data, which, layout))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.sampled_from(["", "records", "stream"]),
    st.none() | st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_each_token_is_in_one_sample_of_each_repetition(lengths, pack, seed, repeat, padded):
    layout = Layout(10, pack, 77 if padded else None, seed, repeat)
    data = tokens(lengths)
    found = samples(data, layout)
    kept = [each.ids[: each.lengths.sum()] for each in found]
    every = sorted(list(range(sum(lengths))) * repeat)
    if pack == "stream" and not padded:  # without the rest
        assert {len(each) for each in kept} <= {10}
        assert len(kept) == len(every) // 10
        whole = samples(data, layout._replace(pad=77))
        assert [each.ids.tolist() for each in whole[: len(kept)]] == [each.ids.tolist() for each in found]
    else:
        assert sorted(np.concatenate([*kept, []])) == every
    for each, ids in zip(found, kept, strict=True):
        assert each.mask is not None
        assert 0 < len(ids) <= 10
        assert (each.mask[: len(ids)] == (ids % 3 == 0)).all()
        assert not each.mask[len(ids) :].any()
        assert len(each.ids) == (10 if padded else len(ids))
        assert (each.ids[len(ids) :] == 77).all()
    if pack != "stream":  # blocks are whole records
        blocks = [size for each in found for size in each.lengths]
        assert sorted(blocks) == sorted([size for size in lengths if size] * repeat)
    if pack == "stream" and found:
        assert [each.lengths.sum() for each in found[:-1]] == [10] * (len(found) - 1)


def test_blocks_are_the_lengths_of_the_records_in_their_order():
    found = samples(tokens([4, 3, 3, 6, 4], False), Layout(10, "records"))
    assert [each.lengths.tolist() for each in found] == [[4, 3, 3], [6, 4]]
    assert [each.ids.tolist() for each in found] == [list(range(10)), list(range(10, 20))]
    assert all(each.mask is None for each in found)


def test_a_stream_is_cut_where_a_sample_is_full():
    found = samples(tokens([4, 9, 2], False), Layout(5, "stream"))
    assert [each.lengths.tolist() for each in found] == [[4, 1], [5], [3, 2]]
    assert np.concatenate([each.ids for each in found]).tolist() == list(range(15))


def test_the_short_end_of_a_stream_is_dropped_or_padded():
    data = tokens([4, 9, 4], False)
    assert [each.ids.tolist() for each in samples(data, Layout(5, "stream"))] == np.arange(15).reshape(
        3, 5
    ).tolist()
    padded = samples(data, Layout(5, "stream", 77))
    assert [len(each.ids) for each in padded] == [5] * 4
    assert padded[-1].ids.tolist() == [15, 16, 77, 77, 77]
    assert padded[-1].labels().tolist() == [15, 16, -100, -100, -100]


def test_packing_fills_samples():
    lengths = np.random.default_rng(0).integers(1, 1024, 3000).tolist()
    found = samples(tokens(lengths), Layout(2048, "records"))
    assert sum(lengths) / (2048 * len(found)) > 0.98


def test_the_order_depends_on_the_seed_and_the_repetition_only():
    data = tokens([1] * 50)

    def order(seed, repeat=1):
        return [int(each.ids[0]) for each in samples(data, Layout(seed=seed, repeat=repeat))]

    assert order(None) == list(range(50))
    assert order(1) == order(1) != order(2)
    twice = order(1, 2)
    assert twice[:50] == order(1)
    assert sorted(twice[50:]) == list(range(50)) != twice[50:] != twice[:50]


@pytest.mark.parametrize("pack", ["", "records", "stream"])
def test_only_chosen_records_are_used(pack):
    found = samples(tokens([2, 2, 2, 2]), Layout(4, pack), [1, 3])
    assert np.concatenate([each.ids for each in found]).tolist() == [2, 3, 6, 7]
