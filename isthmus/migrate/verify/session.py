"""Runs the original and the other program, and compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from isthmus.migrate.convert import project
from isthmus.migrate.convert.rules.data_parallel import DataParallel
from isthmus.migrate.verify import scratch
from isthmus.migrate.verify.compare import Comparison, compare, compare_spread
from isthmus.migrate.verify.record import Request
from isthmus.migrate.verify.run import Run, Runner, Side
from isthmus.migrate.verify.scratch import Converted


class Task(NamedTuple):
    """What to verify.

    Attributes:
        script: to run.
        arguments: of it.
        root: folder that is copied; None is the current one if the script is in it, or else the script's.
        steps: of optimizers after which a process ends; 0 is to its end.
        shim: compare with the script as it is under `isthmus run`, not with the converted one.
        target: device type that the conversion pins; "" for none.
        ddp: also make DistributedDataParallel of one process; then the original is one, and its batches are spread.
        ranks: number of processes on each side.
        seed: of every generator.
        timeout: seconds for a run.
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


class Residual(NamedTuple):
    """A line that refers to CUDA and was executed.

    Attributes:
        path: from the program's folder on.
        line: in the source as it ran.
        subject: the name that it uses.
    """

    path: str
    line: int
    subject: str


class Verdict(NamedTuple):
    """What came out.

    Attributes:
        original: run.
        other: run; None if the original failed.
        comparisons: of the two; none if one failed.
        conversion: what was converted; None under the shim.
        residuals: executed by the other side.
        repeats: whether a second run of the original gave the same; None if none was needed.
        problem: why there is nothing to compare, in a line.
    """

    original: Run
    other: Run | None
    comparisons: list[Comparison]
    conversion: Converted | None
    residuals: list[Residual]
    repeats: bool | None
    problem: str

    @property
    def same(self) -> bool:
        """Whether everything agrees."""
        return not self.problem and all(each.same for each in self.comparisons)


class Session:
    """Runs of one script; the original's is made once, however many devices it is compared with.

    Args:
        task: what to verify.
        folder: an empty one, for the copies.
        say: is told what is being done.

    Raises:
        isthmus.migrate.verify.scratch.ScratchError: the script is not in the folder that is to be copied.
    """

    def __init__(self, task: Task, folder: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._task = task
        self._folder = folder
        self._say = say
        self._root = scratch.root_of(task.script, task.root)
        self._compare = compare_spread if task.ddp else compare
        self._runner = Runner(folder, Request(task.steps, task.seed, in_order=task.ddp), task.timeout)
        self._copies = 0
        self._originals: dict[bool, Run] = {}

    def verify(self, device: str = "") -> Verdict:
        """Compare the original's results with those on a device.

        The original runs with the CPU in CUDA's place; for ``cpu`` it runs as it is where it does without CUDA.

        Raises:
            isthmus.migrate.verify.scratch.ScratchError: the program's folder cannot be copied.
        """
        task = self._task
        first = self._original(device)
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
        comparisons = self._compare(first, second)
        if all(each.same for each in comparisons):
            return Verdict(first, second, comparisons, conversion, residuals, None, "")
        name = "the original once more, as it may differ from itself"
        third = self._runner.run(self._side(name, first.side.shim, ranks=first.side.ranks))
        repeats = not third.failure() and all(each.same for each in compare(first, third, third))
        return Verdict(first, second, self._compare(first, second, third), conversion, residuals, repeats, "")

    def _original(self, device: str) -> Run:
        if device == "cpu" and not self._task.shim:
            plain = self._run_once("the original without CUDA", shim=False)
            if not (plain.failure() or _nothing_to_compare(plain)):
                return plain
        return self._run_once("the original on the CPU", shim=True)

    def _run_once(self, name: str, shim: bool) -> Run:
        if shim not in self._originals:
            ranks = 1 if self._task.ddp else self._task.ranks
            self._originals[shim] = self._runner.run(self._side(name, shim, ranks=ranks))
        return self._originals[shim]

    def _side(self, name: str, shim: bool = True, device: str = "cpu", ranks: int = 1) -> Side:
        """A side with a copy of the program's folder of its own."""
        self._say(name)
        self._copies += 1
        copy = self._folder / f"copy-{self._copies}"
        scratch.copy(self._root, copy)
        here = Path.cwd()
        place = here.relative_to(self._root) if here.is_relative_to(self._root) else "."
        script = copy / self._task.script.resolve().relative_to(self._root)
        return Side(name, script, self._task.arguments, copy, copy / place, shim, device, ranks)


def _residuals(run: Run, names: dict[str, dict[int, str]], root: Path) -> list[Residual]:
    found = {
        Residual(str(Path(path).relative_to(root)), line, names[path][line])
        for record in run.processes
        for path, lines in record.executed.items()
        for line in lines
    }
    return sorted(found)


def _not_spread(used: Sequence[project.Converted]) -> str:
    """Why the ranks would train each for itself, which no comparison shows; "" if they share the work."""
    if any(change.code == DataParallel.code for result in used for change in result.changes):
        return ""
    reasons = [each for result in used for each in result.findings if each.code == DataParallel.code]
    why = f": {reasons[0].path}:{reasons[0].line}: {reasons[0].message}" if reasons else ""
    return f"--ddp leaves the training as it is{why}; verify without --ddp"


def _nothing_to_compare(run: Run) -> str:
    trained = any(record.losses or record.steps for record in run.records)
    if trained or any(run.output):
        return ""
    return f"{run.side.name}: no optimizer stepped and nothing was printed; raise --timeout or check the arguments"
