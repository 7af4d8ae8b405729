"""``isthmus plan recompute``: runs a job for a few steps, solves, verifies the plan in another run, corrects it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.launch.run import Job, JobError
from isthmus_common.files import make_folder
from isthmus_common.progress import say
from isthmus_common.tables import align_columns
from isthmus_common.units import GIB
from isthmus_diagnostics.options import TABLE
from isthmus_diagnostics.plan.files import Plan, PlanError, Stage, write
from isthmus_diagnostics.plan.stage_measurement import Measured, Offload

_TRIES = 5
_TOLERANCE = 0.02  # share of the memory: smaller corrections are not worth a run
_RETREAT = 0.03  # share of the memory: the first reduction after a run out of memory; doubled each time


@dataclass(frozen=True)
class Verified:
    """A plan that ran within its memory.

    Attributes:
        stages: their measurements.
        choices: for each stage.
        peaks: allocated bytes of each stage.
        step: seconds.
        all_step: seconds with every layer recomputed, in the same run.
    """

    stages: Sequence[Measured]
    choices: list[list[int]]
    peaks: list[int]
    step: float
    all_step: float

    def speed(self) -> float:
        """Return the speed relative to recomputing every layer."""
        return self.all_step / self.step

    def slack(self) -> int:
        """Return the bytes by which the prediction exceeds the peak, of stages that do not keep everything."""
        parts = zip(self.stages, self.choices, self.peaks, strict=True)
        return max(0, min((s.peak(choice) - peak for s, choice, peak in parts if any(choice)), default=0))


def plan(job: Job, memory: int | None, output: Path, *, offload: bool = False) -> str:
    """Write a plan for a job; return the report.

    Args:
        job: a script or module; it is run several times, each for a few steps.
        memory: bytes of a device; None: all of it.
        output: the plan file.
        offload: also consider to keep the activations of layers on the host.

    Raises:
        PlanError: the job fails, has no repeated layers, or does not fit at all.
    """
    with tempfile.TemporaryDirectory(prefix="isthmus-plan-") as folder:
        runner = _Runner(job, Path(folder))
        ranks = runner.run("measure", "measuring the layers (11 steps)")
        if ranks is None:
            raise PlanError(f"out of memory with all but one layer recomputed; {runner.log_tail()}")
        limit = memory or min(each["total"] for each in ranks)
        found = _verify(runner, _stages(ranks, Offload.NONE), limit, output)
        if offload:
            found = _with_offload(runner, ranks, limit, output, found)
    if found is None:
        output.unlink()
        least = max(each["all"]["allocated"] for each in ranks)
        raise PlanError(
            f"out of memory even with recompute: {_gib(least)} GiB allocated with every layer recomputed, "
            f"{_gib(limit)} GiB given; raise --memory, lower the micro-batch, or add --offload"
        )
    write(output, _plan(found.stages, limit, found.choices))
    return _report(found, limit, output)


def _with_offload(
    runner: _Runner, ranks: Sequence[dict[str, Any]], memory: int, output: Path, found: Verified | None
) -> Verified | None:
    """Return the plan that was found without offload, or the better of those with it if that is faster."""
    variants = [_stages(ranks, offload) for offload in (Offload.ACTIVATIONS, Offload.STATES)]
    solved = [(stages, [each.solve(memory) for each in stages]) for stages in variants]
    speeds = [
        (min(stage.speed(c) for stage, c in zip(stages, choices, strict=True) if c), stages)
        for stages, choices in solved
        if all(choices)
    ]
    if not speeds:
        return found
    speed, stages = max(speeds, key=lambda each: each[0])
    if found and speed <= found.speed():
        return found
    other = _verify(runner, stages, memory, output)
    return other if other and (found is None or other.speed() > found.speed()) else found


def _stages(ranks: Sequence[dict[str, Any]], offload: Offload) -> list[Measured]:
    numbers = sorted({each["stage"] for each in ranks})
    return [Measured.from_ranks([r for r in ranks if r["stage"] == n], offload) for n in numbers]


def _plan(stages: Sequence[Measured], memory: int, choices: Sequence[list[int]]) -> Plan:
    parts = [
        Stage(each.ranks, each.actions(c), not each.has_states)
        for each, c in zip(stages, choices, strict=True)
    ]
    return Plan(memory, parts)


def _verify(runner: _Runner, stages: Sequence[Measured], memory: int, output: Path) -> Verified | None:
    """Return the fastest plan that was seen to run within the memory; None if none did."""
    best: Verified | None = None
    seen: list[list[list[int]]] = []
    cut, retreat = 0, int(_RETREAT * memory)
    fits: int | None = None
    fails: int | None = None
    for _ in range(_TRIES):
        choices = [each.solve(memory - cut) or each.smallest_choice() for each in stages]
        if choices in seen:
            break
        seen.append(choices)
        write(output, _plan(stages, memory, choices))
        ranks = runner.run("verify", f"verifying within {_gib(memory)} GiB (9 steps)", output)
        if ranks is None or max(each["allocated"] for each in ranks) > memory:
            fails = cut
        else:
            fits = cut
            found = _verified_stage(ranks, stages, choices)
            best = found if best is None or found.speed() > best.speed() else best
        if fits is None:
            cut, retreat = cut + retreat, 2 * retreat
        elif fails is None:
            assert best
            cut = fits - best.slack()
        else:
            cut = (fits + fails) // 2
        if fits is not None and abs(cut - fits) <= _TOLERANCE * memory:
            break
    return best


def _verified_stage(
    ranks: Sequence[dict[str, Any]], stages: Sequence[Measured], choices: list[list[int]]
) -> Verified:
    peaks = [max(r["allocated"] for r in ranks if r["rank"] in each.ranks) for each in stages]
    step, all_step = (max(each[name] for each in ranks) for name in ("step", "all"))
    return Verified(stages, choices, peaks, step, all_step - max(each.extra for each in stages))


class _Runner:
    """Runs the job as ``isthmus run`` does, with its output in a file."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self._log = folder / "log"

    def run(self, name: str, message: str, plan: Path | None = None) -> list[dict[str, Any]] | None:
        """Return what each rank found; None if the job ran out of memory.

        Raises:
            PlanError: the job failed otherwise, or ended too early.
        """
        folder = self._folder / name
        make_folder(folder)
        for file in folder.glob("*"):
            file.unlink()
        environment = self._job.environment()
        environment[TABLE.variable("plan_run")] = str(folder)
        if plan:
            environment[TABLE.variable("plan")] = str(plan.absolute())
        if self._job.ranks:
            del environment["ISTHMUS_SHIM"]
        try:
            command = self._job.command()
        except JobError as error:
            raise PlanError(str(error)) from None
        say(f"plan: {message}")
        with self._log.open("wb") as log:
            status = subprocess.run(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        files = sorted(folder.glob("rank*.json"))
        if status.returncode and b"out of memory" in self._log.read_bytes():
            return None
        if status.returncode:
            raise PlanError(f"the program failed; {self.log_tail()}")
        if not files:
            raise PlanError(
                "nothing measured: the program needs 11 optimizer steps of a model in training mode with a "
                "ModuleList or Sequential of layers of one class"
            )
        return sorted((json.loads(file.read_text()) for file in files), key=lambda each: each["rank"])

    def log_tail(self) -> str:
        """Return the end of the program's output."""
        return "its output ends with:\n" + "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def _report(found: Verified, memory: int, output: Path) -> str:
    lines = []
    for index, (stage, choice, peak) in enumerate(zip(found.stages, found.choices, found.peaks, strict=True)):
        if len(found.stages) > 1:
            lines.append(f"stage {index}: ranks {', '.join(map(str, stage.ranks))}")
        lines.append(f"{stage.in_flight()} micro-batches in flight, {_gib(memory)} GiB")
        keep = [0] * len(choice)
        rows = [
            ["recompute", "static GiB", "activations GiB", "peak GiB", "speed", ""],
            _row("without", stage, stage.peak(keep), stage.speed(keep), "predicted"),
            _row("all", stage, stage.all_peak, 1.0, "measured"),
            _row("selective", stage, stage.peak(choice), stage.speed(choice), "predicted"),
            _row("selective", stage, peak, found.speed(), "measured"),
        ]
        lines += [align_columns(rows, figures=True), *stage.describe(choice)]
    return "\n".join([*lines, f"{output}: run with `isthmus run --plan {output}`"])


def _row(name: str, stage: Measured, peak: int, speed: float, source: str) -> list[str]:
    return [name, _gib(stage.static), _gib(peak - stage.static), _gib(peak), f"{speed:.2f}x", source]


def _gib(size: int) -> str:
    return f"{size / GIB:.3f}"
