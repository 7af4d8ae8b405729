"""Allocators on ten training traces: reserved memory relative to live memory, and time per event.

Goals for the default: at most 40 ns per event and 0.4 times the `torch` policy; from the second step on, reserved at
most 1.02 times the live peak if steps repeat and 1.05 if they vary; never more than `torch`. `ns` is the time on the
unmodified trace, including the learning phase of a policy; `ns later` on the steps of a longer run. The limits are
the live peak (1.000; with several streams, the sum of theirs if no memory moves between them), and the pop and push
of a free list: one size, allocated and freed in turn, by the policy of size buckets.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, Timing, interleave, print_table, ratio, save

from isthmus.memory.replay import Outcome, policies, replay
from isthmus.memory.trace import ALLOC, FREE, STEP, Trace, read

TRACES = Path(__file__).parent / "traces"
PEER = "torch"
EXPANDABLE = "torch/expandable_segments:True"
UNFAIR = (
    "Times that include driver calls, whose number depends on the policy and whose cost on the chip: they are "
    "excluded from all times and counted separately, as are the lock and the statistics around any policy. Peaks "
    "of the first step, which creates weights and optimizer states, are separate. "
    "Memory is only bookkeeping: no page is touched, so cache misses are those of the "
    "bookkeeping alone."
)


def free_list(pairs: int = 50_000) -> Trace:
    """One size, allocated and freed in turn."""
    kind = np.tile(np.array([ALLOC, FREE], np.uint8), pairs)
    kind[-1] = STEP
    ids = np.repeat(np.arange(pairs, dtype=np.int32), 2)
    ids[-1] = 0
    size = np.where(kind == ALLOC, 1 << 20, 0)
    stream = np.zeros(2 * pairs, np.int16)
    return Trace(kind=kind, id=ids, size=size, stream=stream, name="free list", made="here", model="none")


def is_periodic(trace: Trace) -> bool:
    """Whether the last two steps allocate the same."""
    before, start, end = np.flatnonzero(trace.kind == STEP)[-3:]
    sizes = [trace.size[a:b][trace.kind[a:b] == ALLOC] for a, b in ((before, start), (start, end))]
    return np.array_equal(*sizes)


LONGER = 8  # repetitions of a trace after its first step


def measure(trace: Trace, names: list[str], rounds: int) -> tuple[dict[str, Outcome], dict[str, Timing]]:
    """Return the reserved memory of each allocator, and the seconds of every round."""
    outcomes: dict[str, Outcome] = {}

    def peer(name: str) -> Callable[[], float]:
        def run() -> float:
            outcomes[name] = replay(trace, [name], rounds=1)[0]
            return outcomes[name].best * len(trace) / 1e9

        return run

    times = interleave({name: peer(name) for name in names}, rounds=rounds)
    return outcomes, times


def rows_of(trace: Trace, names: list[str], rounds: int) -> list[dict[str, Any]]:
    outcomes, times = measure(trace, names, rounds)
    longer = trace.repeated(LONGER)
    _, longer_times = measure(longer, names, rounds)
    later = {name: longer_times[name].best - times[name].best for name in names}
    theirs = outcomes[PEER]
    return [
        {
            "trace": trace.name,
            "steps": "repeat" if is_periodic(trace) else "vary",
            "allocator": name,
            "live_gib": found.live_peak / (1 << 30),
            "reserved/live": found.ratio,
            "first step": found.ratio_first,
            "limit": max(1.0, trace.separate_peak() / found.live_peak),
            "reserved/torch": found.reserved_peak / theirs.reserved_peak,
            "ns": times[name].best * 1e9 / len(trace),
            "time/torch": ratio(times[name], times[PEER]),
            "ns later": later[name] * 1e9 / (len(longer) - len(trace)),
            "later/torch": later[name] / later[PEER],
            "driver calls": found.growths + found.releases,
        }
        for name, found in outcomes.items()
    ]


def verdicts(rows: list[dict[str, Any]], ours: str) -> list[str]:
    """Return the goals and results, one line each."""
    mine = [row for row in rows if row["allocator"] == ours]
    lines = []
    for steps, goal in (("repeat", 1.02), ("vary", 1.05)):
        worst = max((row for row in mine if row["steps"] == steps), key=lambda row: row["reserved/live"])
        lines.append(
            f"reserved/live where steps {steps}: at most {worst['reserved/live']:.4f} (goal {goal}), "
            f"{worst['trace']}, limit {worst['limit']:.4f}"
        )
    more = max(mine, key=lambda row: row["reserved/torch"])
    lines.append(f"reserved/torch: at most {more['reserved/torch']:.4f} (goal 1.0), {more['trace']}")
    for ns, share, when in (
        ("ns", "time/torch", "from the start"),
        ("ns later", "later/torch", "later steps"),
    ):
        slow = max(mine, key=lambda row: row[ns])
        shares = [row[share] for row in mine]
        lines.append(
            f"time, {when}: at most {slow[ns]:.1f} ns (goal 40), {slow['trace']}; of torch's: "
            f"median {statistics.median(shares):.3f}, at most {max(shares):.3f} (goal 0.4)"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds (default 5)")
    parser.add_argument(
        "--traces", nargs="*", type=Path, default=sorted(TRACES.glob("*.trace")), help="files"
    )
    options = parser.parse_args()
    ours, *others = policies()
    names = list(dict.fromkeys([ours, PEER, EXPANDABLE, *others]))
    rows: list[dict[str, Any]] = []
    for path in options.traces:
        rows += rows_of(read(path), names, options.rounds)
    _, times = measure(limit := free_list(), ["bs"], options.rounds)
    pop = times["bs"].best * 1e9 / len(limit)
    print_table(rows)
    print(f"free list: {pop:.1f} ns per event")
    lines = verdicts(rows, ours)
    print(*(f"{ours}: {line}" for line in lines), sep="\n")
    settings = {
        "rounds": options.rounds,
        "repeated": LONGER,
        "default": ours,
        "free_list_ns": pop,
        "verdicts": lines,
    }
    path = save("allocators", rows, unfair=UNFAIR, settings=settings)
    print(f"{path.relative_to(RESULTS.parent.parent)}")


if __name__ == "__main__":
    main()
