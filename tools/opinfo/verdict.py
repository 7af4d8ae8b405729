"""The verdict on one operator with one dtype."""

from __future__ import annotations

from dataclasses import dataclass, field

from .compare import Compared, Outcome, one_line, outcome_difference, same_message

PARTS = ("forward", "no_grad", "backward", "inplace", "out", "errors", "state")


@dataclass
class Part:
    """Counts of one judged part: calls that agreed, agreeing calls that raised on both, and failures."""

    agreed: int = 0
    raised: int = 0
    failed: int = 0
    messages_differ: int = 0
    first: str = ""  # the first disagreement

    def add(self, other: Part) -> None:
        """Add the counts of another part."""
        for name in ("agreed", "raised", "failed", "messages_differ"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first = self.first or other.first

    def fail(self, message: str) -> None:
        self.failed += 1
        self.first = self.first or message

    def judge(
        self, chip: Outcome, cpu: Outcome, where: str, values: Compared = "bits", placed: bool = True
    ) -> bool:
        """Compare two outcomes; return whether both returned the same result."""
        try:
            difference = outcome_difference(chip, cpu, values, placed)
        except Exception as error:  # a result that cannot be read back
            difference = f"comparison: {one_line(error)}"
        if difference:
            self.fail(f"{where}: {difference}")
            return False
        self.agreed += 1
        if chip.error is None or cpu.error is None:
            return True
        self.raised += 1
        if not same_message(chip.error, cpu.error):
            self.messages_differ += 1
            self.first = (
                self.first or f"{where}: message {one_line(chip.error)}, on CPU {one_line(cpu.error)}"
            )
        return False


@dataclass
class Verdict:
    """Results of one operator with one dtype."""

    op: str
    dtype: str
    samples: int = 0
    judged: int = 0
    parts: dict[str, Part] = field(default_factory=dict)
    seconds: float = 0.0

    def part(self, name: str) -> Part:
        return self.parts.setdefault(name, Part())

    @property
    def failures(self) -> dict[str, str]:
        """First disagreement of each part that failed, by part."""
        return {name: part.first for name, part in self.parts.items() if part.failed}

    @property
    def runs_on_cpu(self) -> bool:
        """Whether a sample returned on the CPU at all."""
        forward = self.parts.get("forward")
        return forward is not None and (forward.failed > 0 or forward.agreed > forward.raised)
