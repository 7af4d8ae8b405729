"""Runs the original and the converted program and compares them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus_migrate.convert import project
from isthmus_migrate.rules.data_parallel import DataParallel
from isthmus_migrate.verify import scratch
from isthmus_migrate.verify.compare import compare, compare_spread
from isthmus_migrate.verify.limits import MULTIPLE, Reference
from isthmus_migrate.verify.omissions import left_out
from isthmus_migrate.verify.record import Request
from isthmus_migrate.verify.run import Run, Runner, Side
from isthmus_migrate.verify.scratch import Converted
from isthmus_migrate.verify.tally import Comparison

_AGAIN = {
    0: "the original again, to test whether it is deterministic",
    1: "the original with rounding noise of one unit in the last place",
    MULTIPLE: f"the original with rounding noise of {MULTIPLE} units in the last place",
}


class Task(NamedTuple):
    """A script to verify, with options.

    Attributes:
        script: path of the script.
        arguments: arguments of the script.
        root: folder to copy; None is the current one if it contains the script, else the script's.
        steps: optimizer steps after which a process exits; 0 means no limit.
        shim: compare with the unchanged script under `isthmus run` instead of the converted one.
        target: device type that the conversion pins; "" for none.
        ddp: convert to DistributedDataParallel; the original is one process, and ranks share its batches.
        ranks: number of processes of each run.
        seed: seed of all generators.
        timeout: time limit of a run, in seconds.
        module: name of the module to run with ``-m``; the script is then its file.
    """

    script: Path
    arguments: Sequence[str] = ()
    root: Path | None = None
    steps: int = 10
    shim: bool = False
    target: str = ""
    ddp: bool = False
    ranks: int = 1
    seed: int = 0
    timeout: float = 600.0
    module: str = ""


class Residual(NamedTuple):
    """An executed line that refers to CUDA.

    Attributes:
        path: path within the program's folder.
        line: line in the executed source.
        subject: the name of CUDA.
    """

    path: str
    line: int
    subject: str


class Verdict(NamedTuple):
    """The result of a verification.

    Attributes:
        original: run of the original.
        other: the other run; None if the original failed.
        comparisons: comparisons of the two; empty if one failed.
        conversion: the conversion; None under the shim.
        residuals: CUDA references executed by the other run.
        repeats: whether a second run of the original agreed with the first; None if not needed.
        problem: why the runs cannot be compared, in one line, or "".
        left_out: what was not compared, one line each.
    """

    original: Run
    other: Run | None
    comparisons: list[Comparison]
    conversion: Converted | None
    residuals: list[Residual]
    repeats: bool | None
    problem: str
    left_out: Sequence[str] = ()

    @property
    def same(self) -> bool:
        """Whether all comparisons agree."""
        return not self.problem and all(each.same for each in self.comparisons)

    @property
    def noisy(self) -> bool:
        """Whether values differ within rounding noise."""
        return any(each.noisy for each in self.comparisons)


class Session:
    """Runs of one script; the original runs once for all devices.

    Args:
        task: the task.
        folder: an empty folder for the copies.
        say: called with each step.

    Raises:
        isthmus_migrate.verify.scratch.ScratchError: the script is not in the folder to copy.
    """

    def __init__(self, task: Task, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._task = task
        self._folder = folder
        self._say = say
        self._root = scratch.root_of(task.script, task.root)
        self._compare = compare_spread if task.ddp else compare
        self._runner = Runner(folder, Request(task.steps, task.seed, in_order=task.ddp), task.timeout)
        self._copies = 0
        self._originals: dict[tuple[bool, int | None], Run] = {}

    def verify(self, device: str = "") -> Verdict:
        """Compare the results of the original with those on a device.

        The original runs under the shim on the CPU; for ``cpu`` it runs unchanged if it does not need CUDA.

        Raises:
            isthmus_migrate.verify.scratch.ScratchError: the program's folder cannot be copied.
        """
        task = self._task
        first = self._run_original(device)
        if problem := first.failure() or _nothing_to_compare(first):
            return Verdict(first, None, [], None, [], None, problem)
        kind = "the original under the shim" if task.shim else "the converted one"
        other = self._side(f"{kind} on {device or 'the accelerator'}", task.shim, device, task.ranks)
        results = {} if task.shim else scratch.convert(other.root, task.target, ("ddp",) if task.ddp else ())
        names = scratch.references(other.root)
        second = self._runner.run(other, {path: sorted(lines) for path, lines in names.items()})
        used = [result for path, result in results.items() if path in second.files]
        conversion = None if task.shim else Converted.of(used)
        residuals = _residuals(second, names, other.root)
        if problem := second.failure() or (_not_spread(used) if task.ddp else ""):
            return Verdict(first, second, [], conversion, residuals, None, problem)
        comparisons, repeats = self._compare_runs(first, second)
        compared = any(each.compared for each in comparisons)
        problem = "" if compared else "no value could be compared; see the list of what was left out"
        left = left_out(first, second, comparisons, task.ddp)
        return Verdict(first, second, comparisons, conversion, residuals, repeats, problem, left)

    def _compare_runs(self, first: Run, second: Run) -> tuple[list[Comparison], bool | None]:
        """Compare two runs; as long as they differ, run the original again for the limits of differences.

        Returns:
            The comparisons, and whether the original repeats itself; None if it did not run again.
        """
        references: list[Reference] = []
        repeats = None
        comparisons = self._compare(first, second)
        for ulps in (0, 1, MULTIPLE):
            if all(each.same for each in comparisons):
                break
            run = self._run_once(_AGAIN[ulps], first.side.shim, ulps)
            failed = bool(run.failure())
            if not ulps:
                known = [Reference(run, ulps)]
                repeats = not failed and all(each.same for each in compare(first, run, known))
            if not failed:
                references.append(Reference(run, ulps))
                comparisons = self._compare(first, second, references)
        return comparisons, repeats

    def _run_original(self, device: str) -> Run:
        if device == "cpu" and not self._task.shim:
            plain = self._run_once("the original without CUDA", shim=False)
            if not (plain.failure() or _nothing_to_compare(plain)):
                return plain
        return self._run_once("the original on the CPU", shim=True)

    def _run_once(self, name: str, shim: bool, ulps: int | None = None) -> Run:
        """Return a run of the original, with rounding noise or, for None, the one that is compared."""
        if (shim, ulps) not in self._originals:
            ranks = 1 if self._task.ddp else self._task.ranks
            side = self._side(name, shim, ranks=ranks)
            self._originals[shim, ulps] = self._runner.run(side, noise=ulps or 0)
        return self._originals[shim, ulps]

    def _side(self, name: str, shim: bool = True, device: str = "cpu", ranks: int = 1) -> Side:
        """Make a side with its own copy of the program's folder."""
        self._say(name)
        self._copies += 1
        copy = self._folder / f"copy-{self._copies}"
        scratch.copy(self._root, copy)
        here = Path.cwd()
        place = here.relative_to(self._root) if here.is_relative_to(self._root) else "."
        script = copy / self._task.script.resolve().relative_to(self._root)
        task = self._task
        return Side(name, script, task.arguments, copy, copy / place, shim, device, ranks, task.module)


def _residuals(run: Run, names: dict[str, dict[int, str]], root: Path) -> list[Residual]:
    found = {
        Residual(str(Path(path).relative_to(root)), line, names[path][line])
        for record in run.processes
        for path, lines in record.executed.items()
        for line in lines
    }
    return sorted(found)


def _not_spread(used: Sequence[project.Converted]) -> str:
    """Return why the ranks would train independently, which no comparison shows; "" if they share the work."""
    if any(change.code == DataParallel.code for result in used for change in result.changes):
        return ""
    reasons = [each for result in used for each in result.findings if each.code == DataParallel.code]
    why = f": {reasons[0].path}:{reasons[0].line}: {reasons[0].message}" if reasons else ""
    return f"--ddp did not convert the training{why}; verify without --ddp"


def _nothing_to_compare(run: Run) -> str:
    trained = any(record.losses or record.steps for record in run.records)
    if trained or any(run.output):
        return ""
    return f"{run.side.name}: no optimizer step and no output; raise --timeout or check the arguments"
