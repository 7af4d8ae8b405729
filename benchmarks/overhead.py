"""Overhead of an ATen call on the host chip over native CPU: six operators on one element, counters on.

Goal: median over the six at most +0.30 us, none above +0.45 us. The limit is the Python call of a
pybind11 function that does nothing.
"""

import argparse
from collections.abc import Callable

import torch
from harness import difference, interleave, per_call, print_table, ratio, save

UNFAIR = (
    "Unequal thread counts, autograd on one side only, or a changing CPU clock: hence one thread, no gradients, "
    "and both peers timed in every round."
)


def calls(device: str) -> dict[str, Callable[[], object]]:
    """Return calls of the six operators on tensors of one element."""
    one = torch.ones(1, device=device)
    other = torch.ones(1, device=device)
    matrix = torch.ones(1, 1, device=device)
    return {
        "add": lambda: torch.add(one, other),
        "mul": lambda: torch.mul(one, other),
        "view": lambda: one.view(1, 1),
        "mm": lambda: torch.mm(matrix, matrix),
        "softmax": lambda: torch.softmax(one, 0),
        "empty": lambda: torch.empty(1, device=device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31, help="measured rounds (default 31)")
    parser.add_argument(
        "--calls", type=int, default=20000, help="calls per operator and round (default 20000)"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    cpu, chip = calls("cpu"), calls("chip")
    rows = []
    with torch.no_grad():
        for name in cpu:
            peers = {"cpu": per_call(cpu[name], options.calls), "chip": per_call(chip[name], options.calls)}
            peers["no-op"] = per_call(torch._C._get_privateuse1_backend_name, options.calls)
            times = interleave(peers, rounds=options.rounds)
            rows.append(
                {
                    "operator": name,
                    "cpu_us": times["cpu"].median * 1e6,
                    "chip_us": times["chip"].median * 1e6,
                    "added_us": difference(times["chip"], times["cpu"]) * 1e6,
                    "ratio": ratio(times["chip"], times["cpu"]),
                    "limit_us": times["no-op"].median * 1e6,
                }
            )
    print_table(rows)
    added = sorted(row["added_us"] for row in rows)
    median = (added[2] + added[3]) / 2
    print(
        f"added: median {median:+.3f} us (goal at most +0.300), largest {added[-1]:+.3f} us (goal at most +0.450)"
    )
    save("overhead", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "calls": options.calls})


if __name__ == "__main__":
    main()
