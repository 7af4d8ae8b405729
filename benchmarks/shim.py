"""Overhead of a call with CUDA's names under the shim of `isthmus run`, over the call with the chip's own names.

Goal: a call that takes a device at most +1.0 us, an operator without one within the noise of +-0.05 us. The limit
is a Python function that forwards its arguments, the minimum of a proxy.
"""

import argparse
from collections.abc import Callable

import torch
from harness import difference, interleave, per_call, print_table, ratio, save

from isthmus import shim

UNFAIR = (
    "Large tensors, whose copy hides the call, or one side before its first use of the device: hence one element, "
    "one thread, no gradients, and both sides timed in every round, with the shim entered and left around its own."
)


def calls(name: str) -> dict[str, Callable[[], object]]:
    """Return the calls for a device name: "cuda", to be called under the shim, or "chip"."""
    module, on_cpu, there = getattr(torch, name), torch.ones(1), torch.ones(1, device=name)
    device, other = torch.device(name), torch.ones(1, device=name)
    return {
        "torch.zeros(1, device=text)": lambda: torch.zeros(1, device=name),
        "torch.zeros(1, device=device)": lambda: torch.zeros(1, device=device),
        "torch.device(text)": lambda: torch.device(name),
        "x.cuda() from the CPU": getattr(on_cpu, name),
        "x.cuda() where it is": getattr(there, name),
        "x.to(text) from the CPU": lambda: on_cpu.to(name),
        "x.to(text) where it is": lambda: there.to(name),
        "torch.cuda.current_device()": module.current_device,
        "torch.cuda.synchronize()": module.synchronize,
        "x.device.type == text": lambda: there.device.type == name,
        "x.is_cuda": lambda: there.is_cuda,
        "torch.add(x, y)": lambda: torch.add(there, other),
    }


def pass_on(function: Callable[..., object]) -> Callable[..., object]:
    """Make a proxy that does nothing."""

    def proxy(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return proxy


def under_shim(name: str, count: int) -> Callable[[], float]:
    """Make a peer that enters the shim, measures the call, and leaves."""

    def measure() -> float:
        with shim.enter():
            return per_call(calls("cuda")[name], count)()

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="measured rounds (default 15)")
    parser.add_argument("--calls", type=int, default=5000, help="calls per row and round (default 5000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [row(name, plain, options) for name, plain in calls("chip").items()]
    print_table(rows)
    save("shim", rows, unfair=UNFAIR, settings={"rounds": options.rounds, "calls": options.calls})


def row(name: str, plain: Callable[[], object], options: argparse.Namespace) -> dict[str, object]:
    """Return one row of the table."""
    peers = {
        "shim": under_shim(name, options.calls),
        "chip": per_call(plain, options.calls),
        "limit": per_call(pass_on(plain), options.calls),
    }
    times = interleave(peers, rounds=options.rounds)
    return {
        "call": name,
        "chip_us": times["chip"].median * 1e6,
        "shim_us": times["shim"].median * 1e6,
        "added_us": difference(times["shim"], times["chip"]) * 1e6,
        "ratio": ratio(times["shim"], times["chip"]),
        "limit_us": difference(times["limit"], times["chip"]) * 1e6,
    }


if __name__ == "__main__":
    main()
