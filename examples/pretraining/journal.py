"""Metrics of a run: metrics.jsonl with one record per iteration, and its loss curve."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

from pretraining.files import append_line, replacing

matplotlib.use("Agg")
from matplotlib import pyplot as plt


class Journal:
    """The losses of a run by iteration, on disk and in memory; a later record replaces an earlier one.

    A loss is also written in hexadecimal, which is exact, so that a resumed run can be compared with the
    run that it repeats. Only the rank with `writes` touches the file.
    """

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.losses: dict[int, float] = {}
        self.eval_losses: dict[int, float] = {}
        text = path.read_text() if path.exists() else ""
        if writes and text and not text.endswith("\n"):
            append_line(path, "")
        for line in text.splitlines():
            try:
                record = json.loads(line)
                self._remember("loss" in record, record["iteration"], float.fromhex(record["hex"]))
            except (ValueError, KeyError, TypeError):  # truncated by a killed run
                continue
        self.earlier = dict(self.losses)

    def add(self, iteration: int, loss: float, **others: float) -> None:
        self._remember(True, iteration, loss)
        self._write({"iteration": iteration, "loss": loss, "hex": loss.hex(), **others})

    def add_evaluation(self, iteration: int, loss: float) -> None:
        self._remember(False, iteration, loss)
        self._write({"iteration": iteration, "eval_loss": loss, "hex": loss.hex()})

    def _remember(self, training: bool, iteration: int, loss: float) -> None:
        (self.losses if training else self.eval_losses)[iteration] = loss

    def _write(self, record: dict[str, float | str]) -> None:
        if self.writes:
            append_line(self.path, json.dumps(record))

    def compare(self, first: int, last: int) -> tuple[bool, str]:
        """Whether iterations first to last are bit-equal to the earlier run, and a line that says so."""
        repeated = [i for i in range(first, last + 1) if i in self.earlier]
        different = [i for i in repeated if self.losses[i] != self.earlier[i]]
        if not different:
            return True, f"iterations {repeated[0]}-{repeated[-1]} bit-equal to the earlier run"
        i = different[0]
        return False, (
            f"{len(different)} of iterations {repeated[0]}-{repeated[-1]} differ from the earlier run, first "
            f"{i} with loss {self.losses[i]!r} against {self.earlier[i]!r}; compare flags and threads"
        )

    def plot(self, path: Path) -> None:
        """Plot training and held-out loss as a PNG."""
        figure, axes = plt.subplots(figsize=(8, 4.5))
        for losses, label, marker in ((self.losses, "training", ""), (self.eval_losses, "held out", "o")):
            if losses:
                axes.plot(*zip(*sorted(losses.items()), strict=True), label=label, marker=marker)
        axes.set(xlabel="iteration", ylabel="loss (nats per token)")
        axes.grid(alpha=0.3)
        axes.legend()
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120, bbox_inches="tight")
        plt.close(figure)
