"""The measurement of one pipeline stage, and what the solver makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from isthmus_diagnostics.plan import solver
from isthmus_diagnostics.plan.choices import WHOLE
from isthmus_diagnostics.plan.solver import Moment, Option


class Offload(Enum):
    """The data that may be on the host: nothing, activations, or activations and optimizer states."""

    NONE = 0
    ACTIVATIONS = 1
    STATES = 2


_GAP = 1e-3  # below the noise of measured times


@dataclass(frozen=True)
class Measured:
    """The measurement of a stage by one of its ranks.

    Attributes:
        ranks: of the stage.
        layers: names.
        choices: for each option of each layer, what it does to modules: ``{"mlp": "recompute"}``.
        options: for each layer.
        moments: of a step.
        static: bytes allocated at the begin of a step.
        total: bytes of the device.
        whole: seconds that the recompute of all layers adds to a step.
        forwards: of a layer in a step.
        all_peak: peak of a step in which all layers are recomputed, in bytes.
        all_step: its time in seconds.
        has_states: whether the states of the optimizer are on the device throughout.
        extra: seconds of a step for other copies of the states.
    """

    ranks: list[int]
    layers: list[str]
    choices: list[list[dict[str, str]]]
    options: list[list[Option]]
    moments: list[Moment]
    static: int
    total: int
    whole: float
    forwards: int
    all_peak: int
    all_step: float
    has_states: bool
    extra: float

    @staticmethod
    def from_ranks(ranks: Sequence[dict[str, Any]], offload: Offload) -> Measured:
        """Return the measurement of a stage; its first rank stands for all of them."""
        first = ranks[0]
        kinds = [
            [e for e in each if offload != Offload.NONE or "offload" not in e["actions"].values()]
            for each in first["choices"]
        ]
        moved = first["states"] if offload == Offload.STATES else 0
        choices = [kinds[kind] for kind in first["kinds"]]
        return Measured(
            ranks=[each["rank"] for each in ranks],
            layers=first["layers"],
            choices=[[each["actions"] for each in options] for options in choices],
            options=[[Option(o["time"], o["kept"], o["transient"]) for o in options] for options in choices],
            moments=[
                Moment(m["base"] - (moved if any(m["counts"]) else 0), tuple(m["counts"]), m["layer"])
                for m in first["moments"]
            ],
            static=first["static"],
            total=first["total"],
            whole=first["forwards"] * sum(first["times"][kind] for kind in first["kinds"]),
            forwards=first["forwards"],
            all_peak=max(each["all"]["allocated"] for each in ranks),
            all_step=max(each["all"]["step"] for each in ranks),
            has_states=not moved,
            extra=sum(moved / rate for rate in first["bandwidth"]),
        )

    def solve(self, memory: int) -> list[int] | None:
        """Return the fastest choice that fits; None if none does."""
        return solver.solve(self.options, self.moments, memory, _GAP)

    def smallest_choice(self) -> list[int]:
        """Return the choice that keeps least."""
        return [min(range(len(o)), key=lambda i: o[i].kept) for o in self.options]

    def peak(self, choice: Sequence[int]) -> int:
        """Return the predicted peak of a choice, in bytes."""
        return solver.peak(self.options, self.moments, choice)

    def speed(self, choice: Sequence[int]) -> float:
        """Return the predicted speed relative to recomputing every layer."""
        step = self.all_step - self.whole + self.forwards * solver.time(self.options, choice) + self.extra
        return self.all_step / step

    def in_flight(self) -> int:
        """Return the most micro-batches whose activations are alive at once."""
        return max(max(each.counts) for each in self.moments)

    def actions(self, choice: Sequence[int]) -> dict[str, dict[str, str]]:
        """Return what a choice does to the layers, for a plan file."""
        chosen = {name: c[i] for name, c, i in zip(self.layers, self.choices, choice, strict=True)}
        return {name: actions for name, actions in chosen.items() if actions}

    def describe(self, choice: Sequence[int]) -> list[str]:
        """Return a line for each way in which layers are run, with their number."""
        counts: dict[str, int] = {}
        for choices, index in zip(self.choices, choice, strict=True):
            parts = [
                f"{action} {'the layer' if name == WHOLE else name}"
                for name, action in choices[index].items()
            ]
            text = ", ".join(parts) or "keep everything"
            counts[text] = counts.get(text, 0) + 1
        lines = [f"{count} of {len(choice)} layers: {text}" for text, count in counts.items()]
        return lines if self.has_states else [*lines, "optimizer states: offload"]
