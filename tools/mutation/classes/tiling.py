"""Work is cut into blocks, and a block is wrong."""

from __future__ import annotations

import numpy as np

from tools.mutation.kernel import Array
from tools.mutation.mutant import (
    Mutation,
    Wrong,
    count_in_whole_blocks,
    each,
    has_many,
    has_rows,
    leaves,
    leaves_along,
    read_as,
    reads_many,
    written_as,
)

_BLOCKS = (32, 64, 128, 1024, 65536)
_TILES = (16, 32, 64, 128, 1024)


def _second_repeats(block: int) -> Wrong:
    """Write the first block to the place of the second."""

    def change(new: Array, _: Array) -> Array:
        flat = new.reshape(-1)
        count = max(0, min(block, flat.size - block))
        flat[block : block + count] = flat[:count]
        return flat

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
    Mutation(
        "partial block lost",
        each(_BLOCKS, lambda block: leaves(lambda n: count_in_whole_blocks(n, block)), has_many),
    ),
    Mutation("second block repeats the first", each(_BLOCKS, _second_repeats, has_many)),
    Mutation(
        "one pass of the grid", each((4096, 16384, 65536), lambda limit: leaves(lambda n: limit), has_many)
    ),
    Mutation(
        "columns of a partial tile",
        each(_TILES, lambda tile: leaves_along(-1, lambda n: count_in_whole_blocks(n, tile)), has_many),
    ),
    Mutation(
        "rows of a partial tile",
        each(_TILES, lambda tile: leaves_along(-2, lambda n: count_in_whole_blocks(n, tile)), has_rows),
    ),
    Mutation("second tile reads the first", each(_TILES, _columns_of_first_tile, reads_many)),
)
