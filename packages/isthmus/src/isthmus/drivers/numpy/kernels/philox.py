"""Philox4x32-10, the counter-based random numbers of CUDA (https://doi.org/10.1145/2063384.2063405)."""

from collections.abc import Sequence

import numpy as np

from isthmus.drivers.numpy.kernels.kernel import Array

_WORD = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, counter: Sequence[Array]) -> list[Array]:
    """Return the four 32-bit numbers of each counter, as uint64.

    Args:
        seed: 64 bits.
        counter: four integer arrays that broadcast, 32 bits each.
    """
    c = [np.asarray(each).astype(np.uint64) for each in np.broadcast_arrays(*counter)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        low, high = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = [
            (high >> _HALF) ^ c[1] ^ np.uint64(keys[0]), high & _WORD,
            (low >> _HALF) ^ c[3] ^ np.uint64(keys[1]), low & _WORD,
        ]  # fmt: skip
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, _STEPS, strict=True)]
    return c
