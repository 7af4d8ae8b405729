"""The layout of a checkpoint as data, and the slice algebra between two layouts.

A *parameter* is a matrix or vector of the model as its formula has it: ``q``, ``k`` and ``v`` apart, rotary halves
apart, no padding. A *piece* is a tensor as a file stores it: slices of parameters, fused, stacked, transposed or
padded. A format says which pieces there are; everything else follows from :func:`pack` and :func:`unpack`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus_formats.checkpoint.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

Bounds = tuple[tuple[int, int], ...]
"""First and last + 1 index of a rectangle, for each dimension."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a model.

    Attributes:
        role: its name without layer and expert, such as ``"attention.q.weight"``.
        shape: its whole shape.
        layer: its layer; None outside the layers.
        expert: its expert; None outside the experts.
        shard: the dimension that tensor parallelism splits; None if every rank has all of it.
        rotary: rows of a head whose rows rotate in pairs; 0 if none do.
    """

    role: str
    shape: tuple[int, ...]
    layer: int | None = None
    expert: int | None = None
    shard: int | None = None
    rotary: int = 0

    @property
    def name(self) -> str:
        """Name in the model, such as ``"layers.3.attention.q.weight"``."""
        expert = "" if self.expert is None else f"experts.{self.expert}."
        return ("" if self.layer is None else f"layers.{self.layer}.") + expert + self.role

    @property
    def has_vocabulary(self) -> bool:
        """Whether dimension 0 is the vocabulary, which some formats pad."""
        return self.role in {"embedding.weight", "output.weight", "output.bias"}


@dataclass(frozen=True, slots=True)
class Slice:
    """A rectangle of a parameter."""

    parameter: Parameter
    bounds: Bounds

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the slice."""
        return tuple(stop - start for start, stop in self.bounds)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def of(self, tensor: Tensor) -> Tensor:
        """Return this rectangle of the whole parameter, a view."""
        return tensor[tuple(slice(*each) for each in self.bounds)]


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor as a file stores it.

    Attributes:
        file: the file, relative to the checkpoint; empty where the name alone identifies the tensor.
        key: the name of the tensor in the file.
        slices: what it is made of.
        blocks: into how many blocks of rows each slice is cut before they alternate: 1 concatenates them, the number
            of query groups alternates the heads of q, k and v group by group.
        stack: size of an added first dimension; 0 if none.
        transposed: the last two dimensions are swapped.
        interleaved: rotary pairs are neighbours (2i, 2i + 1), not halves (i, i + n/2).
        rows: rows with padding; 0 if nothing is padded.
        replica: another piece has the same slices, and is read instead.
        cut: first and last + 1 of the fused rows that are stored; empty if all of them are.
    """

    file: str
    key: str
    slices: tuple[Slice, ...]
    blocks: int = 1
    stack: int = 0
    transposed: bool = False
    interleaved: bool = False
    rows: int = 0
    replica: bool = False
    cut: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The stored shape."""
        rest = self.slices[0].shape[1:]
        shape = [self.rows or sum(each.shape[0] for each in self.slices), *rest]
        if self.cut:
            shape[0] = self.cut[1] - self.cut[0]
        if self.stack:
            shape = [self.stack, shape[0] // self.stack, *rest]
        if self.transposed:
            shape[-2:] = reversed(shape[-2:])
        return tuple(shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The distribution and the names of the parameters of a model in a format.

    Attributes:
        tp: tensor-parallel size.
        pp: pipeline stages.
        vpp: virtual stages of a pipeline stage.
        ep: expert-parallel size.
        dp: ranks over which the parameters themselves are split (ZeRO-3, the optimizer parallelism of MindSpore).
        vocabulary: rows of the embedding with padding; 0 if it is not padded.
        embedding: the dimension of the embedding that tensor parallelism splits.
        interleaved: rotary pairs are neighbours.
        names: the variant of the format's names; empty for its first one.
        stages: layers of each virtual stage in the order of the pipeline; empty if all have as many.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    dp: int = 1
    vocabulary: int = 0
    embedding: int = 0
    interleaved: bool = False
    names: str = ""
    stages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a layer in the pipeline: its stage, virtual stage, and index in that."""

    stage: int
    virtual: int
    index: int


def places(layers: int, layout: Layout) -> list[Place]:
    """Return the place of each layer.

    Raises:
        CheckpointError: the stages do not have that many layers.
    """
    chunks = layout.pp * layout.vpp
    sizes = layout.stages or (layers // chunks,) * chunks
    if len(sizes) != chunks or sum(sizes) != layers:
        raise CheckpointError(
            f"{layers} layers cannot be split into {chunks} stages of {', '.join(map(str, sizes))} layers; give "
            "--stages, the layers of each stage"
        )
    return [
        Place(chunk % layout.pp, chunk // layout.pp, index)
        for chunk, size in enumerate(sizes)
        for index in range(size)
    ]


def whole_slice(parameter: Parameter) -> Slice:
    """Return all of a parameter."""
    return Slice(parameter, tuple((0, size) for size in parameter.shape))


def shard(parameter: Parameter, layout: Layout, rank: int) -> tuple[Slice, int]:
    """Return the slice of a tensor-parallel rank, and its number of rows with padding (0: no padding).

    Raises:
        CheckpointError: the parameter cannot be split evenly.
    """
    padded = layout.vocabulary if parameter.has_vocabulary else 0
    dimension = layout.embedding if parameter.role == "embedding.weight" else parameter.shard
    if dimension is None:
        return whole_slice(parameter), padded
    length = padded if padded and dimension == 0 else parameter.shape[dimension]
    if length % layout.tp:
        raise CheckpointError(
            f"{parameter.name}: {length} rows or columns cannot be split over {layout.tp} tensor-parallel "
            "ranks; give a size that divides it"
        )
    step = length // layout.tp
    bounds = list(whole_slice(parameter).bounds)
    end = parameter.shape[dimension]
    bounds[dimension] = (min(rank * step, end), min((rank + 1) * step, end))
    return Slice(parameter, tuple(bounds)), step if padded and dimension == 0 else padded


def pack(piece: Piece, parts: Sequence[Tensor]) -> Tensor:
    """Return the stored tensor of a piece.

    Args:
        piece: the piece.
        parts: its slices, in their order.
    """
    if piece.interleaved:
        parts = [
            interleave(part, each.parameter.rotary) if each.parameter.rotary else part
            for part, each in zip(parts, piece.slices, strict=True)
        ]
    stored = fuse(parts, piece.blocks)
    if piece.cut:
        stored = stored[slice(*piece.cut)]
    if piece.stack:
        stored = stored.unflatten(0, (piece.stack, -1))
    if piece.transposed:
        stored = stored.transpose(-1, -2)
    if piece.rows > stored.shape[0]:
        padded = stored.new_zeros((piece.rows, *stored.shape[1:]))
        padded[: stored.shape[0]] = stored
        stored = padded
    return stored.contiguous()


def unpack(piece: Piece, stored: Tensor) -> list[Tensor]:
    """Return the slices of a piece, in their order; the inverse of :func:`pack`."""
    assert not piece.cut  # formats that cut fused rows are read as whole tensors
    if piece.rows:
        stored = stored[: piece.slices[0].shape[0]]
    if piece.transposed:
        stored = stored.transpose(-1, -2)
    if piece.stack:
        stored = stored.flatten(0, 1)
    parts = split(stored, [each.shape[0] for each in piece.slices], piece.blocks)
    if piece.interleaved:
        parts = [
            deinterleave(part, each.parameter.rotary) if each.parameter.rotary else part
            for part, each in zip(parts, piece.slices, strict=True)
        ]
    return parts


def fuse(parts: Sequence[Tensor], blocks: int) -> Tensor:
    """Concatenate tensors by rows, block by block."""
    if len(parts) == 1:
        return parts[0]
    import torch

    return torch.cat([part.unflatten(0, (blocks, -1)) for part in parts], 1).flatten(0, 1)


def split(fused: Tensor, rows: Sequence[int], blocks: int) -> list[Tensor]:
    """Return the parts of a fused tensor; the inverse of :func:`fuse`.

    Args:
        fused: the tensor.
        rows: the number of rows of each part.
        blocks: the number of blocks.
    """
    if len(rows) == 1:
        return [fused]
    parts = fused.unflatten(0, (blocks, -1)).split([each // blocks for each in rows], 1)
    return [part.flatten(0, 1) for part in parts]


def interleave(tensor: Tensor, head: int) -> Tensor:
    """Reorder the rows of heads so that rotary pairs are neighbours: (0, n/2, 1, n/2 + 1, ...)."""
    return tensor.unflatten(0, (-1, 2, head // 2)).transpose(1, 2).flatten(0, 2)


def deinterleave(tensor: Tensor, head: int) -> Tensor:
    """Reorder the rows of heads so that rotary pairs are in two halves; the inverse of :func:`interleave`."""
    return tensor.unflatten(0, (-1, head // 2, 2)).transpose(1, 2).flatten(0, 2)
