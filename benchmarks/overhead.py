"""Overhead of an ATen call on the host chip over native CPU: six operators on one element, counters on.

Goal: median over the six at most 1.15x the time on the CPU, none above 1.3x. The limit is the Python call of a
pybind11 function that does nothing. The last rows have no goal: a product whose gradient is recorded, and a training
step with AdamW of a model so small that the calls are all of its time.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from harness import difference, interleave, per_call, print_table, ratio, save

UNFAIR = (
    "Unequal thread counts, gradients on one side only, or a changing CPU clock: hence one thread, the same calls on "
    "both sides, and both peers timed in every round."
)
MEDIAN_GOAL, LARGEST_GOAL = 1.15, 1.3
STEP_CALLS = 400  # calls of a training step, about: one step is timed in place of so many calls


def calls(device: str) -> dict[str, Callable[[], object]]:
    """Return calls of the six operators on tensors of one element."""
    one = torch.ones(1, device=device)
    other = torch.ones(1, device=device)
    matrix = torch.ones(1, 1, device=device)
    return {
        "add": lambda: torch.add(one, other),
        "mul_": lambda: one.mul_(other),
        "view": lambda: one.view(1, 1),
        "mm": lambda: torch.mm(matrix, matrix),
        "softmax": lambda: torch.softmax(one, 0),
        "empty": lambda: torch.empty(1, device=device),
    }


def recorded(device: str) -> Callable[[], object]:
    """Return a product of tensors of one element that is recorded for its gradient."""
    weight = torch.ones(1, device=device, requires_grad=True)
    value = torch.ones(1, device=device)
    return lambda: torch.mul(value, weight)


def training_step(device: str) -> Callable[[], object]:
    """Return a training step of four residual blocks of 8 features."""
    torch.manual_seed(0)
    blocks = [
        torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(4)
    ]
    model = torch.nn.ModuleList(blocks).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    value, target = torch.ones(2, 8, device=device), torch.zeros(2, 8, device=device)

    def step() -> None:
        hidden = value
        for block in model:
            hidden = hidden + block(hidden)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(hidden, target).backward()
        optimizer.step()

    return step


def measured(
    name: str, cpu: Callable[[], object], chip: Callable[[], object], count: int, rounds: int
) -> dict[str, object]:
    """Return the row of the two peers, each called count times per round."""
    peers = {"cpu": per_call(cpu, count), "chip": per_call(chip, count)}
    peers["no-op"] = per_call(torch._C._get_privateuse1_backend_name, count)
    times = interleave(peers, rounds=rounds)
    return {
        "operator": name,
        "cpu_us": times["cpu"].median * 1e6,
        "chip_us": times["chip"].median * 1e6,
        "added_us": difference(times["chip"], times["cpu"]) * 1e6,
        "ratio": ratio(times["chip"], times["cpu"]),
        "limit_us": times["no-op"].median * 1e6,
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
    with torch.no_grad():
        rows = [measured(name, cpu[name], chip[name], options.calls, options.rounds) for name in cpu]
    ratios = [float(str(row["ratio"])) for row in rows]
    rows.append(measured("mul, recorded", recorded("cpu"), recorded("chip"), options.calls, options.rounds))
    steps = max(options.calls // STEP_CALLS, 1)
    rows.append(measured("training step", training_step("cpu"), training_step("chip"), steps, options.rounds))
    print_table(rows)
    print(
        f"the six: median {statistics.median(ratios):.3f}x (goal at most {MEDIAN_GOAL}x), "
        f"largest {max(ratios):.3f}x (goal at most {LARGEST_GOAL}x)"
    )
    save("overhead", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "calls": options.calls})


if __name__ == "__main__":
    main()
