"""Counter-based dropout masks (Philox): any part of a mask can be recomputed on its own."""

import torch

_WORD = 0xFFFFFFFF


def words(counter: tuple[torch.Tensor, ...], seed: torch.Tensor) -> torch.Tensor:
    """Philox4x32-10 (Salmon et al., SC 2011) of many counters with one seed.

    Args:
        counter: four broadcastable int64 tensors of 32-bit words.
        seed: int64 scalar; its 64 bits are the key.

    Returns:
        int64 [..., 4], words below 2 ** 32.
    """
    one, two, three, four = torch.broadcast_tensors(*counter)
    low, high = seed & _WORD, _high(seed)
    for _ in range(10):
        # Products wrap at 64 bits; the masked halves equal those of the unsigned product.
        first, second = one * 0xD2511F53, three * 0xCD9E8D57
        one, three = _high(second) ^ two ^ low, _high(first) ^ four ^ high
        two, four = second & _WORD, first & _WORD
        low, high = (low + 0x9E3779B9) & _WORD, (high + 0xBB67AE85) & _WORD
    return torch.stack((one, two, three, four), -1)


def _high(words: torch.Tensor) -> torch.Tensor:
    """The upper 32 bits of each int64. A division, because the opset has no shifts."""
    return torch.div(words, 1 << 32, rounding_mode="floor") & _WORD


def draw(device: torch.device) -> torch.Tensor:
    """Draw a seed and an offset from the device's generator: int64 [2]."""
    return torch.randint(0, 2**31, (2,), device=device)


def kept(rng: torch.Tensor, heads: torch.Tensor, queries: int, keys: int, dropout_p: float) -> torch.Tensor:
    """Mask of the attention weights that dropout keeps.

    Args:
        rng: int64 [2], seed and offset.
        heads: int64 [...], index of each (batch item, head) pair.
        queries: number of queries.
        keys: number of keys.
        dropout_p: dropout probability.

    Returns:
        bool [..., queries, keys].
    """
    blocks = torch.arange((keys + 3) // 4, device=rng.device)
    rows = torch.arange(queries, device=rng.device)
    counter = (blocks, rows[:, None], heads[..., None, None], rng[1] & _WORD)
    drawn = words(counter, rng[0]).flatten(-2)[..., :keys]
    return drawn < round((1 - dropout_p) * 2**32)
