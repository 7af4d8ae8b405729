"""The measurement of one pipeline stage, and what the solver makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.plan import solver
from isthmus.plan.choices import WHOLE
from isthmus.plan.solver import Moment, Option

_GAP = 1e-3  # below the noise of measured times


@dataclass(frozen=True)
class Measured:
    """The measurement of a stage by one of its ranks.

    Attributes:
        ranks: of the stage.
        layers: names.
        modules: for each option of each layer, the modules that it recomputes.
        options: for each layer.
        moments: of a step.
        static: bytes allocated at the begin of a step.
        total: bytes of the device.
        whole: seconds that the recompute of all layers adds to a step.
        forwards: of a layer in a step.
        all_peak: peak of a step in which all layers are recomputed, in bytes.
        all_step: its time in seconds.
    """

    ranks: list[int]
    layers: list[str]
    modules: list[list[tuple[str, ...]]]
    options: list[list[Option]]
    moments: list[Moment]
    static: int
    total: int
    whole: float
    forwards: int
    all_peak: int
    all_step: float

    @staticmethod
    def of(ranks: Sequence[dict[str, Any]]) -> Measured:
        """Return the measurement of a stage; that of its first rank stands for all of them."""
        first = ranks[0]
        choices = [first["choices"][kind] for kind in first["kinds"]]
        return Measured(
            ranks=[each["rank"] for each in ranks],
            layers=first["layers"],
            modules=[[tuple(each["recomputed"]) for each in options] for options in choices],
            options=[[Option(o["time"], o["kept"], o["transient"]) for o in options] for options in choices],
            moments=[Moment(m["base"], tuple(m["counts"]), m["layer"]) for m in first["moments"]],
            static=first["static"],
            total=first["total"],
            whole=first["forwards"] * sum(first["times"][kind] for kind in first["kinds"]),
            forwards=first["forwards"],
            all_peak=max(each["all"]["allocated"] for each in ranks),
            all_step=max(each["all"]["step"] for each in ranks),
        )

    def solve(self, memory: int) -> list[int] | None:
        """Return the fastest choice that fits; None if none does."""
        return solver.solve(self.options, self.moments, memory, _GAP)

    def smallest(self) -> list[int]:
        """Return the choice that keeps least."""
        return [min(range(len(o)), key=lambda i: o[i].kept) for o in self.options]

    def peak(self, choice: Sequence[int]) -> int:
        """Return the predicted peak of a choice, in bytes."""
        return solver.peak(self.options, self.moments, choice)

    def speed(self, choice: Sequence[int]) -> float:
        """Return the predicted speed relative to recomputing every layer."""
        step = self.all_step - self.whole + self.forwards * solver.time(self.options, choice)
        return self.all_step / step

    def in_flight(self) -> int:
        """Return the most micro-batches whose activations are alive at once."""
        return max(max(each.counts) for each in self.moments)

    def actions(self, choice: Sequence[int]) -> dict[str, dict[str, str]]:
        """Return what a choice does to the layers, for a plan file."""
        chosen = {name: m[i] for name, m, i in zip(self.layers, self.modules, choice, strict=True)}
        return {name: dict.fromkeys(modules, "recompute") for name, modules in chosen.items() if modules}

    def describe(self, choice: Sequence[int]) -> list[str]:
        """Return a line for each way in which layers are run, with their number."""
        counts: dict[str, int] = {}
        for modules, index in zip(self.modules, choice, strict=True):
            chosen = modules[index]
            text = "recompute " + ", ".join(chosen) if chosen else "keep everything"
            text = "recompute the layer" if chosen == (WHOLE,) else text
            counts[text] = counts.get(text, 0) + 1
        return [f"{count} of {len(choice)} layers: {text}" for text, count in counts.items()]
