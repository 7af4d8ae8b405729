"""The slice algebra, over random shapes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats import formats
from isthmus_formats.checkpoint.layout import (
    Layout,
    Parameter,
    Piece,
    deinterleave,
    fuse,
    interleave,
    pack,
    places,
    shard,
    split,
    unpack,
    whole_slice,
)
from tests.helpers.checkpoints import CONFIGS

SMALL = st.integers(1, 5)
TP, PP = st.sampled_from([1, 2, 4]), st.sampled_from([1, 2])


@given(heads=SMALL, half=SMALL, columns=SMALL)
def test_rotary_pairs_become_neighbours(heads, half, columns):
    rows = torch.arange(heads * 2 * half).reshape(-1, 1).repeat(1, columns)
    neighbours = interleave(rows, 2 * half)
    for row in range(0, 2 * heads * half, 2):
        assert neighbours[row + 1, 0] - neighbours[row, 0] == half
    assert torch.equal(deinterleave(neighbours, 2 * half), rows)


@given(blocks=SMALL, heights=st.lists(SMALL, min_size=1, max_size=3), columns=SMALL)
def test_fused_parts_are_split_again(blocks, heights, columns):
    parts = [torch.rand(blocks * height, columns) for height in heights]
    back = split(fuse(parts, blocks), [len(part) for part in parts], blocks)
    assert all(torch.equal(a, b) for a, b in zip(parts, back, strict=True))


def test_query_groups_alternate():
    q, k, v = torch.arange(8), torch.arange(10, 14), torch.arange(20, 24)
    assert fuse([q, k, v], 2).tolist() == [0, 1, 2, 3, 10, 11, 20, 21, 4, 5, 6, 7, 12, 13, 22, 23]


@given(
    rows=st.integers(2, 9), padding=st.integers(0, 4), transposed=st.booleans(), head=st.sampled_from([0, 2])
)
def test_a_piece_is_unpacked_again(rows, padding, transposed, head):
    parameter = Parameter("embedding.weight", (2 * rows, 3), rotary=head)
    piece = Piece("", "", (whole_slice(parameter),), interleaved=True, transposed=transposed and not padding)
    piece = replace(piece, rows=2 * rows + padding if padding else 0)
    tensor = torch.rand(2 * rows, 3)
    stored = pack(piece, [tensor])
    assert tuple(stored.shape) == piece.shape
    assert torch.equal(unpack(piece, stored)[0], tensor)


@given(tp=st.sampled_from([1, 2, 4]), rows=st.integers(1, 40), padding=st.integers(0, 7))
def test_ranks_cover_the_vocabulary_once(tp, rows, padding):
    parameter = Parameter("embedding.weight", (rows, 2), shard=0)
    layout = Layout(tp=tp, vocabulary=-(-(rows + padding) // tp) * tp)
    covered = [row for rank in range(tp) for row in range(*shard(parameter, layout, rank)[0].bounds[0])]
    assert covered == list(range(rows))


def test_virtual_stages_take_turns():
    at = places(8, Layout(pp=2, vpp=2))
    assert [(each.stage, each.virtual, each.index) for each in at] == [
        *((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)),
        *((0, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1, 1)),
    ]
    with pytest.raises(CheckpointError, match="--stages"):
        places(7, Layout(pp=2))


@pytest.mark.parametrize("name", CONFIGS)
@settings(deadline=None, max_examples=10)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    vpp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2]),
)
def test_pieces_hold_every_element_once(name, tp, pp, vpp, ep):
    of = model(CONFIGS[name])
    layout = Layout(tp, pp, vpp, ep if of.experts else 1, vocabulary=96)
    held = dict.fromkeys((each.name for each in of.parameters), 0)
    keys = set()
    for piece in formats()["megatron"].pieces(of, layout):
        assert (piece.file, piece.key) not in keys
        keys.add((piece.file, piece.key))
        for each in () if piece.replica else piece.slices:
            held[each.parameter.name] += each.size
    assert held == {each.name: torch.Size(each.shape).numel() for each in of.parameters}
