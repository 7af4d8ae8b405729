"""Bit flips that isthmus_diagnostics.health finds in a training run, its false alarms, and what it costs per step.

``python -m benchmarks.health`` writes results/health.json. A flip is of one bit of one element of one matrix
product, in the forward or the backward pass of a checked step, after 64 steps of a small transformer. It is found by
a detector that has an alert in that step or the three after it, and it is harmful if the loss of one of them changes
by more than 1 %. Every run has dropout, warm-up and gradient clipping.
"""

import argparse
import copy
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import isthmus_diagnostics.health
from benchmarks.harness import RESULTS, difference, interleave, machine, print_table, ratio, save
from isthmus_diagnostics.health import status
from isthmus_diagnostics.health.session import Health

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_WARM, _AFTER = 63, 4  # steps before a flip, and from it on
# Bits from the lowest, by kind.
_BITS = {
    torch.float32: {
        "sign": (31,), "exponent high": range(27, 31), "exponent low": range(23, 27),
        "mantissa high": range(16, 23), "mantissa low": range(16),
    },
    torch.bfloat16: {
        "sign": (15,), "exponent high": range(11, 15), "exponent low": range(7, 11),
        "mantissa high": range(4, 7), "mantissa low": range(4),
    },
}  # fmt: skip
_DETECTORS = {"checksum": {"matmul"}, "gradients": {"gradient"}, "loss": {"loss"}, "nan": {"nan"}}


class Flip(TorchDispatchMode):
    """Counts matrix products, and flips a bit of a random element of one of them.

    Attributes:
        count: products so far.
        at: number of the product; -1: none.
        bit: number of the bit, from the lowest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count, self.at, self.bit = 0, -1, 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call, and corrupt its result."""
        result = op(*args, **(kwargs or {}))
        if op in _PRODUCTS:
            if self.count == self.at:
                integer, width = {2: (torch.int16, 16), 4: (torch.int32, 32)}[result.element_size()]
                mask = 1 << self.bit if self.bit < width - 1 else -(1 << self.bit)
                result.view(integer).view(-1)[random.randrange(result.numel())] ^= mask
            self.count += 1
        return result


class Transformer(nn.Module):
    """Predicts each next token."""

    def __init__(self, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        make = lambda: nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)  # noqa: E731
        self.embedding, self.head = nn.Embedding(64, width), nn.Linear(width, 64)
        self.layers = nn.ModuleList(make() for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, length, 64] of tokens [batch, length]."""
        x = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(x)  # type: ignore[no-any-return]


class Perceptron(nn.Module):
    """Predicts each next token from the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Embedding(64, 32), nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, length, 64] of tokens [batch, length]."""
        return self.layers(tokens)  # type: ignore[no-any-return]


class Run:
    """A training run with warm-up of the learning rate, gradient clipping and dropout.

    Args:
        model: of floating-point type `dtype`; AdamW for the transformer, SGD with momentum for the other.
        noise: fraction of tokens that cannot be predicted.
    """

    def __init__(
        self, model: Callable[[], nn.Module], dtype: torch.dtype, seed: int = 0, noise: float = 0.1
    ) -> None:
        torch.manual_seed(seed)
        self.model = model().to(dtype)
        self.noise = noise
        parameters = list(self.model.parameters())
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
            if isinstance(self.model, Perceptron)
            else torch.optim.AdamW(parameters, lr=3e-3)
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1, (step + 1) / 50)
        )
        self.forward_products = 0

    def tokens(self) -> torch.Tensor:
        """Return a batch [8, 16] of an arithmetic sequence with noise."""
        tokens = (torch.randint(64, (8, 1)) + 5 * torch.arange(16)) % 64
        return torch.where(torch.rand(tokens.shape) < self.noise, torch.randint(64, tokens.shape), tokens)

    def step(self, flip: Flip | None = None) -> float:
        """Train one step; return the loss."""
        tokens = self.tokens()
        logits = self.model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        if flip is not None:
            self.forward_products = flip.count
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return loss.item()


class Rewound:
    """A run that has trained, and repeats its next steps.

    Attributes:
        forward, products: number of matrix products of a forward pass, and of a step.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._run, self._flip = Run(Transformer, dtype), Flip()
        with (
            tempfile.TemporaryDirectory() as folder,
            isthmus_diagnostics.health.watch(folder, checksum_interval=0) as health,
            self._flip,
        ):
            for _ in range(_WARM):
                self._flip.count = 0
                self._run.step(self._flip)
        assert not health.alerts
        self.forward, self.products = self._run.forward_products, self._flip.count
        self._bounds = health._bounds
        parts = (self._run.model, self._run.optimizer, self._run.schedule)
        self._parts = [(each, copy.deepcopy(each.state_dict())) for each in parts]
        self._random = torch.get_rng_state()

    def repeat(self, at: int = -1, bit: int = 0) -> tuple[set[str], list[float]]:
        """Return the kinds of alerts, and the losses, of the next steps with a flip in product `at` of the first."""
        for part, state in self._parts:
            part.load_state_dict(copy.deepcopy(state))
        torch.set_rng_state(self._random)
        self._flip.count, self._flip.at, self._flip.bit = 0, at, bit
        losses = []
        with tempfile.TemporaryDirectory() as folder, self._flip:  # below the checksums, which see its result
            health = Health(folder, checksum_interval=1)
            health._bounds = copy.deepcopy(self._bounds)
            health._optimizers.add(self._run.optimizer)
            with health:
                for _ in range(_AFTER):
                    losses.append(self._run.step())
                    self._flip.at, health._checksum_interval = -1, 0
        return {each.kind for each in health.alerts}, losses


def flips(dtype: torch.dtype, number: int) -> list[dict[str, Any]]:
    """Return the rows of a type: of each kind of bit and each pass, the share of `number` flips that was found."""
    rows = []
    run = Rewound(dtype)
    kinds, sound = run.repeat()
    assert not kinds
    for kind, bits in _BITS[dtype].items():
        for name, numbers in (
            ("forward", range(run.forward)),
            ("backward", range(run.forward, run.products)),
        ):
            found = [run.repeat(random.choice(numbers), random.choice(bits)) for _ in range(number)]
            rows.append({"dtype": str(dtype)[6:], "bits": kind, "pass": name, **_shares(found, sound)})
            print(rows[-1], flush=True)
    return rows


def _shares(found: list[tuple[set[str], list[float]]], sound: list[float]) -> dict[str, Any]:
    harmful = [
        kinds
        for kinds, losses in found
        if not all(abs(a - b) <= 0.01 * b for a, b in zip(losses, sound, strict=True))
    ]
    shares: dict[str, Any] = {"flips": len(found)}
    for name, kinds in {**_DETECTORS, "any": set().union(*_DETECTORS.values())}.items():
        shares[name] = sum(bool(kinds & each) for each, _ in found) / len(found)
    shares["harmful"] = len(harmful)
    shares["harmful, found"] = sum(map(bool, harmful))
    shares["harmful, found without checksum"] = sum(bool(each - {"matmul"}) for each in harmful)
    return shares


def clean(steps: int, seeds: int) -> list[dict[str, Any]]:
    """Return the alarms of clean runs."""
    rows = []
    for model in (Transformer, Perceptron):
        for dtype in (torch.float32, torch.bfloat16):
            for seed in range(seeds):
                noise = (0.1, 0.0, 0.3)[seed % 3]
                run = Run(model, dtype, seed, noise)
                with (
                    tempfile.TemporaryDirectory() as folder,
                    isthmus_diagnostics.health.watch(folder, checksum_interval=20) as health,
                ):
                    losses = [run.step() for _ in range(steps)]
                row = {"model": model.__name__, "dtype": str(dtype)[6:], "seed": seed, "noise": noise}
                row |= {"steps": steps, "products checked": health.checksums.checked}
                row |= {"last loss": losses[-1], "alarms": len(health.alerts)}
                rows.append(row)
                print(row, [str(each) for each in health.alerts[:5]], flush=True)
    return rows


def cost(rounds: int) -> list[dict[str, Any]]:
    """Return the ratio of the time of steps with the watch to those without it."""
    rows = []
    for width, layers, steps in ((32, 2, 10), (256, 4, 2)):
        run = Run(lambda width=width, layers=layers: Transformer(width, layers), torch.float32)

        def timed(interval: int | None, run: Run = run, steps: int = steps) -> float:
            with tempfile.TemporaryDirectory() as folder:
                health = None if interval is None else Health(folder, checksum_interval=interval).start()
                run.step()
                start = time.perf_counter()
                for _ in range(steps):
                    run.step()
                taken = (time.perf_counter() - start) / steps
                if health:
                    health.stop()
            return taken

        peers = {"none": None, "unchecked": 0, "checked": 1}
        found = interleave(
            {name: lambda interval=interval: timed(interval) for name, interval in peers.items()},
            rounds=rounds,
        )
        row: dict[str, Any] = {"width": width, "layers": layers, "step ms": 1e3 * found["none"].median}
        for name in ("unchecked", "checked"):
            row[f"{name} ratio"] = ratio(found[name], found["none"])
            row[f"{name} adds ms"] = 1e3 * difference(found[name], found["none"])
        row["ratio at 100"] = (99 * row["unchecked ratio"] + row["checked ratio"]) / 100
        rows.append(row)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for _ in range(200):
            status.write(Path(folder), status.take(0, 0.0, 0.0))
        rows.append({"status file ms": 1e3 * (time.perf_counter() - start) / 200})
    return rows


def main() -> None:
    """Print the tables and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="cost,flips,clean", help="those to make; others are kept")
    parser.add_argument("--flips", type=int, default=40, help="of each kind of bit, type and pass")
    parser.add_argument("--steps", type=int, default=2000, help="of each clean run")
    parser.add_argument("--seeds", type=int, default=2, help="clean runs of each model and type")
    parser.add_argument("--rounds", type=int, default=15, help="of timing")
    options = parser.parse_args()
    random.seed(0)
    torch.set_num_threads(1)
    make: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "cost": lambda: cost(options.rounds),
        "flips": lambda: [row for dtype in _BITS for row in flips(dtype, options.flips)],
        "clean": lambda: clean(options.steps, options.seeds),
    }
    unfair = (
        "flips are single and in a step that is checked; of other steps only the columns gradients, loss and nan "
        "hold. The models are small, so that a single element matters more than in a large one. Costs are of one "
        "thread of a CPU, where the host and the device are the same"
    )
    path = RESULTS / "health.json"
    for name in options.tables.split(","):
        found = make[name]()
        print_table([row for row in found if row.keys() == found[0].keys()])
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        rows = [row for row in rows if row["table"] != name] + [
            {"table": name, "commit": machine()["commit"], **row} for row in found
        ]
        save("health", rows, unfair=unfair, settings=vars(options))


if __name__ == "__main__":
    main()
