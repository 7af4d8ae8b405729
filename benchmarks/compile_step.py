"""One training step under torch.compile: the host chip against native CPU, on the LLaMA of train_step.py.

Peers, each in a process of its own, stepped in turn: torch.compile on CPU; the same with a malloc that keeps its
memory (glibc tunables); torch.compile on the chip; the same with Inductor's kernels in Triton. Goals: the chip at
most 1.05x of the first; Triton at most 1.1x of the chip, in CPU time. The limit is the step's matrix products alone,
at the GEMM rate of this machine.

With several threads Inductor sums the embedding's gradient by atomic additions in any order, so two CPU runs differ
by rounding. Hence only the first loss must be bit-equal; later differences are printed for all peers.
"""

import argparse
from collections.abc import Callable
from statistics import median
from typing import Any

CPU, KEEPING, CHIP = "cpu, torch.compile", "cpu, torch.compile, malloc keeps memory", "chip, torch.compile"
TRITON = "chip, torch.compile, Triton"
GOAL, GOAL_OF_TRITON = 1.05, 1.1
UNFAIR = (
    "The chip caches its memory; plain malloc returns large blocks to the system and faults them in again. The "
    "second peer has the same advantage by glibc tunables: compare with it too. Denormals make matrix products ten "
    "times slower: flushed on all sides. The optimizer is eager on all sides. Compilation is not in the step; the "
    "peers share Inductor's cache on disk."
)


def measure(rounds: int) -> list[dict[str, Any]]:
    """Return the rows of the result table."""
    from harness import interleave, ratio
    from train_step import KEEP_MEMORY, Peer, limit

    peers = {
        CPU: Peer("cpu", "compile", {}),
        KEEPING: Peer("cpu", "compile", {"GLIBC_TUNABLES": KEEP_MEMORY}),
        CHIP: Peer("chip", "compile", {}),
        TRITON: Peer("chip", "compile", {"ISTHMUS_COMPILE_CODEGEN": "triton"}),
    }
    steps: dict[str, Callable[[], float]] = {name: peer.step for name, peer in peers.items()}
    times = interleave(steps | {"limit": limit()}, rounds=rounds, warm_up=3)
    for peer in peers.values():
        peer.close()
    if peers[CHIP].losses[0] != peers[CPU].losses[0]:
        raise SystemExit(
            "compile_step: the chip's first loss is not bit-equal to that of torch.compile on CPU"
        )
    return [
        {
            "peer": name,
            "step_ms": times[name].median * 1e3,
            "best_ms": times[name].best * 1e3,
            "cpu_ms": median(peer.busy[-rounds:]) * 1e3,
            "chip_over_peer": ratio(times[CHIP], times[name]),
            "limit_over_peer": ratio(times["limit"], times[name]),
            "loss_difference": difference(peer.losses, peers[CPU].losses),
            "peak_process_MiB": round(peer.peak_bytes / 2**20),
            "peak_device_MiB": round(peer.device_bytes / 2**20),
        }
        for name, peer in peers.items()
    ]


def difference(ours: list[float], theirs: list[float]) -> str:
    """Return the largest relative difference of two runs' losses."""
    return f"{max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)):.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (default 9)")
    options = parser.parse_args()
    from harness import print_table, save

    rows = measure(options.rounds)
    print_table(rows)
    print(f"chip / {CPU}: {rows[0]['chip_over_peer']:.3f} (goal at most {GOAL})")
    busy = {row["peer"]: row["cpu_ms"] for row in rows}
    print(f"{TRITON} / {CHIP}, CPU time: {busy[TRITON] / busy[CHIP]:.3f} (goal at most {GOAL_OF_TRITON})")
    save("compile_step", rows, unfair=UNFAIR, settings={"rounds": options.rounds})


if __name__ == "__main__":
    main()
