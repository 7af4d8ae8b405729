"""Work is cut into blocks, and a block is wrong."""

from __future__ import annotations

import numpy as np

from tools.mutation.kernel import Array
from tools.mutation.mutant import Mutation, Wrong, each, has_many, read_as, reads, written_as

_BLOCKS = (32, 64, 128, 1024, 65536)
_TILES = (16, 32, 64, 128, 1024)


def _partial_lost(block: int) -> Wrong:
    """Leave the last partial block, if a whole one precedes it."""

    def change(new: Array, old: Array) -> Array:
        start = new.size - new.size % block
        if start:
            new.reshape(-1)[start:] = old.reshape(-1)[start:]
        return new

    return written_as(change)


def _second_repeats(block: int) -> Wrong:
    """Write the first block to the place of the second."""

    def change(new: Array, _: Array) -> Array:
        flat = new.reshape(-1)
        count = max(0, min(block, flat.size - block))
        flat[block : block + count] = flat[:count]
        return flat

    return written_as(change)


def _one_pass(limit: int) -> Wrong:
    """Compute what the first pass of a grid reaches: no loop over the rest."""

    def change(new: Array, old: Array) -> Array:
        new.reshape(-1)[limit:] = old.reshape(-1)[limit:]
        return new

    return written_as(change)


def _columns_lost(tile: int) -> Wrong:
    """Leave the columns beyond the last whole tile of rows that are longer than a tile."""

    def change(new: Array, old: Array) -> Array:
        if new.ndim and new.shape[-1] > tile:
            start = new.shape[-1] - new.shape[-1] % tile
            new[..., start:] = old[..., start:]
        return new

    return written_as(change)


def _rows_lost(tile: int) -> Wrong:
    """Leave the rows beyond the last whole tile of matrices that are higher than a tile."""

    def change(new: Array, old: Array) -> Array:
        if new.ndim > 1 and new.shape[-2] > tile:
            start = new.shape[-2] - new.shape[-2] % tile
            new[..., start:, :] = old[..., start:, :]
        return new

    return written_as(change)


def _columns_of_first_tile(tile: int) -> Wrong:
    """Read the second tile of each row from the first: its offset is not added."""

    def change(x: Array) -> Array:
        if x.ndim == 0 or x.shape[-1] <= tile:
            return x
        columns = np.arange(x.shape[-1])
        columns[tile : 2 * tile] -= tile
        return x[..., columns]

    return read_as(change)


MUTATIONS = (
    Mutation("partial block lost", "the last partial block of a result is not written",
             each(_BLOCKS, _partial_lost, has_many)),
    Mutation("second block repeats the first", "the offset of a block is not added where it is written",
             each(_BLOCKS, _second_repeats, has_many)),
    Mutation("one pass of the grid", "what one pass does not reach is not computed",
             each((4096, 16384, 65536), _one_pass, has_many)),
    Mutation("columns of a partial tile", "the columns of a partial tile are not written",
             each(_TILES, _columns_lost, has_many)),
    Mutation("rows of a partial tile", "the rows of a partial tile are not written",
             each(_TILES, _rows_lost, has_many, 2)),
    Mutation("second tile reads the first", "the offset of a tile is not added where it is read",
             each(_TILES, _columns_of_first_tile, reads)),
)  # fmt: skip
