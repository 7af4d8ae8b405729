"""Run random programs and captures on the chip and compare them with the CPU: ``python -m tools.fuzz``.

ISTHMUS_DRIVER names the chip. A program is reproduced by its number: ``--first 123 --programs 1``.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import torch

from tools.fuzz.programs import EXACT, TOLERANCE, Difference, Program


def main() -> int:
    """Print one line per difference and the counts; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=5000, help="eager programs (default: 5000)")
    parser.add_argument("--captures", type=int, default=2000, help="captures, replayed twice (default: 2000)")
    parser.add_argument("--steps", type=int, default=12, help="operators per program (default: 12)")
    parser.add_argument("--first", type=int, default=0, help="number of the first program (default: 0)")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    driver = os.environ.get("ISTHMUS_DRIVER", "host")
    tolerance = EXACT if driver == "host" else TOLERANCE
    different = refused = without_route = replays = 0
    for kind, count in (("program", asked.programs), ("capture", asked.captures)):
        for seed in range(asked.first, asked.first + count):
            program = Program(seed, tolerance)
            try:
                if kind == "program":
                    program.eager(asked.steps)
                else:
                    program.captured(asked.steps)
            except Difference as error:
                different += 1
                print(f"{kind} {seed}: {error}", flush=True)
            refused += program.refused
            without_route += program.without_route
            replays += program.replays
            if sys.stderr.isatty() and seed % 50 == 0:
                print(f"\r{kind}s: {seed - asked.first + 1} of {count}", end="", file=sys.stderr)
    print(
        f"{asked.programs} programs and {asked.captures} captures of {asked.steps} steps on {driver}: "
        f"{different} different, {refused} calls refused, {without_route} of them without a route, "
        f"{replays} replays compared"
    )
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
