"""The progress line of a job, from the lines that its ranks print, and the ranks that are late.

Nothing here imports torch.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from isthmus_common.training import metrics
from isthmus_common.training.iteration_lines import IterationRecord, parse_bar, parse_line, parse_trainer
from isthmus_common.training.model_arguments import ModelArguments
from isthmus_common.units import format_step_time

_SHORTEST_SILENCE = 5.0  # seconds without an iteration before a rank counts as late


class Report(NamedTuple):
    """Whether a line reports an iteration, and whether it is the first report of it."""

    is_iteration: bool
    is_new: bool


class Throughput(NamedTuple):
    """Seconds of an iteration; tokens per device and second; 10^12 operations per device and second; a fraction."""

    seconds: float | None = None
    tgs: float | None = None
    tflops: float | None = None
    mfu: float | None = None


@dataclass
class _Cadence:
    """The last iteration of a rank, its time, and the longest pause between two so far, in seconds."""

    iteration: int
    at: float
    longest: float | None = None

    def update(self, iteration: int, now: float) -> None:
        if iteration != self.iteration:
            self.longest = max(self.longest or 0.0, now - self.at)
            self.iteration, self.at = iteration, now


@dataclass
class Progress:
    """The progress of a job.

    Attributes:
        model: sizes of the model, from the program's arguments.
        peak_tflops: peak of a device, in 10^12 operations per second; None for unknown.
    """

    model: ModelArguments
    peak_tflops: float | None = None
    world_size: int = 1
    ranks: list[int] = field(default_factory=list)
    newest: IterationRecord | None = None
    throughput: Throughput = field(default_factory=Throughput)
    _reporter: int | None = None
    _cadences: dict[int, _Cadence] = field(default_factory=dict)
    _bar: str = ""
    _steps: tuple[int, int] | None = None
    _before: tuple[IterationRecord, float] | None = None

    def start(self, world_size: int, ranks: list[int]) -> None:
        """Begin anew with these ranks, of world_size."""
        self.world_size, self.ranks = world_size, ranks
        self.newest = self._reporter = self._steps = self._before = None
        self._cadences, self._bar = {}, ""

    @property
    def iteration(self) -> int | None:
        """The last reported iteration, if any."""
        return self.newest.iteration or None if self.newest else None

    def note_bar(self, rank: int, text: str) -> None:
        """Note that a rank has redrawn a progress bar, or written the beginning of a line."""
        if rank == min(self.ranks):
            self._bar = text.strip()
            self._steps = parse_bar(text) or self._steps

    def note_line(self, rank: int, text: str, now: float) -> Report:
        """Note a line that a rank has written at `now`, in seconds since the epoch."""
        self.model.read_line(text)
        if steps := parse_bar(text):
            self._steps = steps
        record = parse_line(text) or self._parse_trainer(text)
        if record is None:
            return Report(False, False)
        cadence = self._cadences.setdefault(rank, _Cadence(record.iteration, now))
        cadence.update(record.iteration, now)
        # If several ranks report, the lowest one counts.
        if self._reporter is None or rank < self._reporter:
            self._reporter = rank
        if rank != self._reporter:
            return Report(True, False)
        self.throughput = self._throughput(record, now)
        self.newest, self._before = record, (record, now)
        return Report(True, True)

    def _parse_trainer(self, text: str) -> IterationRecord | None:
        record = parse_trainer(text)
        if record is None or self._steps is None:
            return record
        return replace(record, iteration=self._steps[0], total_iterations=self._steps[1])

    def _throughput(self, record: IterationRecord, now: float) -> Throughput:
        seconds, tokens = None, self.model.tokens(record)
        if self._before is not None and (steps := record.iteration - self._before[0].iteration) > 0:
            seconds = (now - self._before[1]) / steps
            before = self._before[0].consumed_tokens
            if tokens is None and record.consumed_tokens and before:
                tokens = (record.consumed_tokens - before) / steps
        if record.elapsed_ms is not None:
            seconds = record.elapsed_ms / 1000
        if seconds is None or seconds <= 0:
            return Throughput(None, record.tgs, record.tflops, self._mfu(record, record.tflops))
        tgs = record.tgs
        if tgs is None and tokens:
            tgs = metrics.tgs(tokens, seconds, self.world_size)
        tflops, flops = record.tflops, self.model.flops(record)
        if tflops is None and flops is not None:
            tflops = metrics.tflops(flops, seconds, self.world_size)
        return Throughput(seconds, tgs, tflops, self._mfu(record, tflops))

    def _mfu(self, record: IterationRecord, tflops: float | None) -> float | None:
        if record.mfu is not None or tflops is None:
            return record.mfu
        return metrics.mfu(tflops, self.peak_tflops)

    def late_ranks(self, now: float) -> dict[int, str]:
        """Ranks that are behind the newest iteration, for much longer than an iteration used to take, with a text."""
        newest = max((each.iteration for each in self._cadences.values()), default=0)
        found = {}
        for rank, each in sorted(self._cadences.items()):
            patience = max(_SHORTEST_SILENCE, 3 * each.longest) if each.longest else None
            if each.iteration < newest and patience is not None and now - each.at > patience:
                found[rank] = f"rank {rank} is late: at iteration {each.iteration}, others at {newest}"
        return found

    def text(self, now: float, alive: int, late: dict[int, str]) -> str:
        """``iteration 120/1000 · loss 3.41 · 812 ms · tgs 1234 · 1.2 TFLOPs · MFU 31% · 2 of 2 ranks``.

        Args:
            now: seconds since the epoch.
            alive: ranks of this node that run.
            late: a text for each late rank.
        """
        if self.newest is None:
            return " · ".join([self._bar, *late.values()]).removeprefix(" · ")
        parts = [*_place(self.newest), *_figures(self.newest, self.throughput)]
        if alive:  # not in the final line
            parts.append(f"{alive} of {len(self.ranks)} ranks")
        if self._before is not None and self.throughput.seconds is not None:
            silence = now - self._before[1]
            if silence > max(30.0, 10 * self.throughput.seconds):
                parts.append(f"no iteration for {silence:.0f} s")
        return " · ".join([*parts, *late.values()])


def _place(record: IterationRecord) -> list[str]:
    if record.iteration:
        total = "" if record.total_iterations is None else f"/{record.total_iterations}"
        return [f"iteration {record.iteration}{total}"]
    return [] if record.epoch is None else [f"epoch {record.epoch:.4g}"]


def _figures(record: IterationRecord, throughput: Throughput) -> list[str]:
    found = []
    if record.loss is not None:
        found.append(f"loss {record.loss:.4g}")
    if throughput.seconds is not None:
        found.append(format_step_time(throughput.seconds))
    if throughput.tgs is not None:
        found.append(f"tgs {throughput.tgs:.0f}")
    if throughput.tflops is not None:
        found.append(f"{throughput.tflops:{'.1f' if throughput.tflops >= 1 else '.2g'}} TFLOPs")
    if throughput.mfu is not None:
        found.append(f"MFU {throughput.mfu:{'.0%' if throughput.mfu >= 0.1 else '.1%'}}")
    return found
