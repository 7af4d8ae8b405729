"""Recall and false positives of isthmus.health under bit flips in the matrix products of a training run.

``python -m benchmarks.health --flips 40 --clean 2000`` prints a table and writes benchmarks/results/health.json. For
each bit, a run of a small transformer has one bit of one element of one product flipped in a checked step, forward or
backward at random; it is found if an alert names that step or one of the eight after it. The clean run counts alerts.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import isthmus.health

RESULT = Path(__file__).parent / "results" / "health.json"
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_BITS = {torch.float32: (30, 28, 25, 23, 22, 18, 12), torch.bfloat16: (14, 12, 9, 7, 6, 4)}


class Flip(TorchDispatchMode):
    """Flips a bit of a random element of the product number `at`, in the one call that makes it."""

    def __init__(self, bit: int, at: int) -> None:
        super().__init__()
        self.bit, self.at, self.count = bit, at, 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and corrupt its result."""
        result = op(*args, **(kwargs or {}))
        if op in _PRODUCTS:
            if self.count == self.at:
                integers = {2: torch.int16, 4: torch.int32}[result.element_size()]
                flat = result.view(integers).reshape(-1)
                flat[random.randrange(flat.numel())] ^= 1 << self.bit
                result = flat.reshape(result.shape).view(result.dtype)
            self.count += 1
        return result


def train(
    steps: int, dtype: torch.dtype, flip: Flip | None = None, at: int = -1, interval: int = 50
) -> list[Any]:
    """Train; return the alerts."""
    torch.manual_seed(steps)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 32), layer, torch.nn.Linear(32, 64)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, Watched(folder, flip, at, interval) as watched:
        for step in range(steps):
            tokens = torch.randint(64, (4, 16))
            watched.begin(step)
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
            loss.backward()
            watched.end(step)
            optimizer.step()
            optimizer.zero_grad()
    return watched.health.alerts


class Watched:
    """The watch, with its checksums above the flip in the step of the flip, so that they see the corrupted result."""

    def __init__(self, folder: str, flip: Flip | None, at: int, interval: int) -> None:
        self.health = isthmus.health.watch(folder, checksum_interval=0 if flip else interval)
        self.flip, self.at = flip, at

    def __enter__(self) -> "Watched":
        self.health.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.health.stop()

    def begin(self, step: int) -> None:
        """Enter the modes in the step of the flip."""
        if step == self.at and self.flip:
            self.flip.__enter__()
            self.health.checksums.__enter__()

    def end(self, step: int) -> None:
        """Leave them."""
        if step == self.at and self.flip:
            self.health.checksums.__exit__(None, None, None)
            self.flip.__exit__(None, None, None)


def main() -> None:
    """Print the table and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=40, help="runs for each bit")
    parser.add_argument("--clean", type=int, default=2000, help="steps of the clean runs")
    options = parser.parse_args()
    random.seed(0)
    rows = []
    for dtype, bits in _BITS.items():
        clean = len(train(options.clean, dtype))
        for bit in bits:
            found = {"matmul": 0, "other": 0, "either": 0}
            for _ in range(options.flips):
                alerts = train(24, dtype, Flip(bit, random.randrange(8)), 15)
                kinds = {"matmul" if each.kind == "matmul" else "other" for each in alerts if each.step >= 15}
                for each in kinds | ({"either"} if kinds else set()):
                    found[each] += 1
            recall = {name: number / options.flips for name, number in found.items()}
            rows.append({"dtype": str(dtype), "bit": bit, "flips": options.flips, **recall})
            print(f"{dtype} bit {bit}: " + ", ".join(f"{n} {v:.0%}" for n, v in recall.items()), flush=True)
        rows.append({"dtype": str(dtype), "clean_steps": options.clean, "alarms": clean})
        print(f"{dtype}: {clean} alarms in {options.clean} clean steps", flush=True)
    RESULT.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
