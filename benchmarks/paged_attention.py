"""Attention over a paged cache against gathering the keys, and against reading them, on CPU tensors.

Decoding: one query for each sequence of 2,048 keys. The peer gathers the rows of the cache with ``index_select`` and
calls ``flash_attn_varlen_func``; the limit reads as many bytes as keys and values have. Prefill: the peer calls
``flash_attn_varlen_func`` on packed keys and values. 12 heads, 4 key heads, 64 features, blocks of 16 tokens; keys
and values of a token lie side by side, as in vLLM.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

UNFAIR = (
    "A cache that fits into the processor's own caches would be read faster than a model reads it: every call reads "
    "the cache of another layer, of which there are 256 MiB. The rows that the peer gathers are computed beforehand, "
    "as an engine does once for all layers. Outputs are allocated beforehand where the function takes them. On one "
    "thread times are the process's on the CPU: other processes disturb them less than time that passes."
)
HEADS, KEY_HEADS, SIZE, BLOCK = 12, 4, 64, 16
LAYERS = 256 * 2**20  # bytes of all caches
SECONDS = 0.1  # length of one measurement
# Sequences, queries and keys of each; the goal of the ratio to the peer.
CASES = {
    "decode 1 x 2,048": (1, 1, 2048, 0.6),
    "decode 8 x 2,048": (8, 1, 2048, 0.6),
    "prefill 1 x 1,024": (1, 1024, 1024, 1.05),
    "prefill 8 x 512": (8, 512, 512, 1.05),
}


class Case:
    """Queries of some sequences, and a cache for each layer."""

    def __init__(self, sequences: int, queries: int, keys: int, dtype: Any) -> None:
        import torch

        blocks = sequences * keys // BLOCK
        size = blocks * BLOCK * KEY_HEADS * 2 * SIZE * dtype.itemsize
        count = max(1, LAYERS // size) if queries == 1 else 1
        self.bytes = size
        self.caches = [torch.randn(blocks, BLOCK, KEY_HEADS, 2 * SIZE).to(dtype) for _ in range(count)]
        self.table = torch.randperm(blocks).to(torch.int32).view(sequences, -1)
        self.q = torch.randn(sequences * queries, HEADS, SIZE).to(dtype)
        self.ends, self.key_ends = (
            torch.arange(sequences + 1, dtype=torch.int32) * n for n in (queries, keys)
        )
        self.keys = torch.full((sequences,), keys, dtype=torch.int32)
        self.most = queries, keys
        offset = torch.arange(keys)
        self.rows = (self.table.long()[:, offset // BLOCK] * BLOCK + offset % BLOCK).flatten()
        self.packed = [each.contiguous() for each in self._gathered(self.caches[0])]
        self.out = torch.empty_like(self.q)
        self.turn = 0

    def _next(self) -> Any:
        self.turn = (self.turn + 1) % len(self.caches)
        return self.caches[self.turn]

    def _gathered(self, cache: Any) -> Any:
        return cache.flatten(0, 1).index_select(0, self.rows).split(SIZE, -1)

    def _attend(self, keys: Any) -> Any:
        from isthmus import ops

        return ops.flash_attn_varlen_func(self.q, *keys, self.ends, self.key_ends, *self.most, causal=True)

    def by_operator(self) -> Any:
        """``paged_attention``."""
        from isthmus import ops

        cache = self._next()
        key, value = cache[..., :SIZE], cache[..., SIZE:]
        return ops.paged_attention(
            self.q, key, value, self.table, self.ends, self.keys, *self.most, out=self.out
        )

    def by_gather(self) -> Any:
        """The peer of decoding: copy the keys of every sequence first."""
        return self._attend(self._gathered(self._next()))

    def by_packed(self) -> Any:
        """The peer of prefill: keys that are packed already."""
        return self._attend(self.packed)

    def read(self) -> Any:
        """Read keys and values, as float32 numbers whatever they are."""
        import torch

        return self._next().view(torch.float32).sum()


def _timed(function: Callable[[], object]) -> Callable[[], float]:
    """Make a peer of the harness: seconds per call, over as many calls as take SECONDS."""
    import torch
    from harness import per_call

    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    function()
    start = clock()
    function()
    return per_call(function, max(1, round(SECONDS / (clock() - start))), clock)


def row(name: str, dtype: Any, rounds: int) -> dict[str, Any]:
    """Measure one line of the table."""
    import torch
    from harness import interleave, ratio

    torch.manual_seed(0)
    sequences, queries, keys, goal = CASES[name]
    case = Case(sequences, queries, keys, dtype)
    decodes = queries == 1
    peers = {"ours": _timed(case.by_operator), "peer": _timed(case.by_gather if decodes else case.by_packed)}
    if decodes:
        peers["read"] = _timed(case.read)
    torch.testing.assert_close(
        case.by_operator().float(), case._attend(case._gathered(case.caches[case.turn])).float(), rtol=0, atol=2e-2
    )  # fmt: skip
    found = interleave(peers, rounds=rounds)
    return {
        "case": name,
        "dtype": str(dtype).removeprefix("torch."),
        "ours_us": found["ours"].median * 1e6,
        "peer": "gather" if decodes else "packed",
        "over_peer": ratio(found["ours"], found["peer"]),
        "goal": goal,
        "over_read": ratio(found["ours"], found["read"]) if decodes else None,
        "GB/s": case.bytes / found["ours"].median / 1e9 if decodes else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="measured rounds (default 11)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every side (default 1)")
    parser.add_argument("--quick", action="store_true", help="three rounds, results are not saved")
    options = parser.parse_args()
    import torch
    from harness import print_table, save

    torch.set_num_threads(options.threads)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for name in CASES:
            rows.append(row(name, dtype, 3 if options.quick else options.rounds))
            print(*rows[-1].values(), flush=True)
    print_table(rows)
    if not options.quick:
        save(
            "paged_attention", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "threads": options.threads}
        )  # fmt: skip


if __name__ == "__main__":
    main()
