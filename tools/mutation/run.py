"""Run mutants in child processes, which may crash or hang."""

from __future__ import annotations

import faulthandler
import fnmatch
import multiprocessing
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from isthmus import opset
from isthmus.conformance.cache import Opener
from isthmus.conformance.golden import Case, Reader
from tools.mutation.mutant import Mutant
from tools.mutation.score import Result, Score, complete
from tools.mutation.trial import COMPILED, Bench, Sources, Trial, mutants_around

_SECONDS = 180.0  # a mutant without an answer for so long hangs
_PER_TASK = 12  # mutants of a process
_NOT_REACHED = "no case executes this line"


class MutationError(RuntimeError):
    """A mutant could not be tried; the message is one line."""


class _Task(NamedTuple):
    """Work of a process: a function of a bench that yields answers, starting at the n-th."""

    names: tuple[str, ...]
    work: Callable[[Bench, int], Iterator[Any]]
    is_compiled: bool


class Selection:
    """Golden data of the operators that match one of the patterns, separated by commas.

    Args:
        golden: the data, or a function that opens that of some operators.

    Attributes:
        families: of each operator.
        opset: digest of the opset.
        untried: operators on complex tensors, which Python kernels do not support.
        is_all: whether all operators of the opset are selected.

    Raises:
        ValueError: unknown operator.
    """

    def __init__(self, golden: Reader | Opener, pattern: str = "*") -> None:
        names = [n for n in opset.operators() if any(fnmatch.fnmatchcase(n, p) for p in pattern.split(","))]
        reader = golden if isinstance(golden, Reader) else golden(names)
        self.opset: str = reader.manifest["opset"]
        found = [name for name in names if name in reader.operators]
        if not found:
            raise ValueError(f"--operators {pattern}: unknown operator")
        self._reader = reader
        self.untried = sorted(name for name in found if "complex" in opset.operators()[name].dtype)
        self.families = {name: reader.operators[name].family for name in found if name not in self.untried}
        self.is_all = len(found) == len(opset.operators())

    def cases(self, name: str) -> list[Case]:
        """Return the cases of an operator; those of all take ten gigabytes."""
        return list(self._reader.cases(name))


class Runner:
    """Tries mutants of the selected operators in so many processes; ``progress`` gets a line for each step."""

    def __init__(self, selection: Selection, progress: Callable[[str], None], jobs: int = 2) -> None:
        self._selection, self._progress, self._jobs = selection, progress, jobs
        self._sources = Sources()
        self._forking = threading.Lock()
        self._compiled: list[str] = []
        self._users: dict[tuple[bool, int], list[str]] = defaultdict(list)

    def run(self, choose: Callable[[Sequence[Mutant]], list[Mutant]]) -> Score:
        """Compile kernels, try the correct ones, then the chosen mutants.

        Raises:
            MutationError: PyTorch is loaded, or a bench failed.
        """
        _refuse_pytorch()
        self._compile()
        score = Score(untried=self._selection.untried)
        self._right_kernels(score)
        score.results += self.trials(choose(self._mutants()))
        return score

    def trials(self, mutants: Sequence[Mutant]) -> Iterator[Result]:
        """Yield the result of each mutant, grouped by family; without :meth:`run`, only mutants around kernels.

        Raises:
            MutationError: PyTorch is loaded, or a bench failed.
        """
        _refuse_pytorch()
        with ThreadPoolExecutor(self._jobs) as pool:
            for results in pool.map(self._finish, list(self._tasks(mutants))):
                yield from results

    def _compile(self) -> None:
        """Build the compiled kernels of the selected operators, if there are any."""
        compiled = self._sources.compiled
        if compiled:
            self._compiled = [name for name in compiled.operators if name in self._selection.families]
        if compiled and self._compiled:
            self._progress("compiling kernels")
            compiled.build()

    def _right_kernels(self, score: Score) -> None:
        """Record false alarms, and the source mutants that each operator executes."""

        def work(names: Sequence[str]) -> Callable[[Bench, int], Iterator[Any]]:
            def answers(bench: Bench, start: int) -> Iterator[Any]:
                for name in names[start:]:
                    bench.reached()
                    alarm = bench.false_alarm(name)
                    yield bench.is_compiled, name, alarm, bench.reached()

            return answers

        groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
        for name, family in self._selection.families.items():
            groups[False, family].append(name)
        for name in self._compiled:
            groups[True, self._selection.families[name]].append(name)
        tasks = [_Task(tuple(names), work(names), key[0]) for key, names in groups.items()]
        with ThreadPoolExecutor(self._jobs) as pool:
            for answers in pool.map(self._answers, tasks):
                for answer in answers:
                    if isinstance(answer, _Broken):
                        score.false_alarms.append(answer.reason)
                        continue
                    is_compiled, name, alarm, sites = answer
                    score.false_alarms += [alarm] if alarm else []
                    for site in sites:
                        self._users[is_compiled, site].append(name)
        self._progress("correct kernels")

    def _mutants(self) -> list[Mutant]:
        """Return all mutants of the selected operators; those of lines that no case executes only in a full run."""
        sites = [m for m in self._sources.mutants() if self._selection.is_all or self._users_of(m)]
        return [*mutants_around(list(self._selection.families), self._sources), *sites]

    def _users_of(self, mutant: Mutant) -> list[str]:
        return self._users.get((mutant.kernel.startswith(COMPILED), mutant.site), [])

    def _tasks(self, mutants: Sequence[Mutant]) -> Iterator[tuple[_Task, list[Result]]]:
        """Group the mutants into tasks of a process each."""
        groups: dict[tuple[bool, str], list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            if mutant.wrong:
                groups[False, self._selection.families[mutant.kernel]].append(mutant)
            else:
                groups[mutant.kernel.startswith(COMPILED), mutant.kernel].append(mutant)
        for (is_compiled, _), grouped in groups.items():
            members = sorted(grouped, key=lambda mutant: mutant.kernel)  # whose cases are read once
            for start in range(0, len(members), _PER_TASK):
                rows = [(m, [] if m.wrong else self._users_of(m)) for m in members[start : start + _PER_TASK]]
                names = {name for m, users in rows for name in (users if not m.wrong else [m.kernel])}
                blanks = [Result(m.kernel, " ".join(users), m.kind, m.mutation, m.name) for m, users in rows]
                yield _Task(tuple(sorted(names)), _trying(rows), is_compiled), blanks

    def _finish(self, item: tuple[_Task, list[Result]]) -> list[Result]:
        task, blanks = item
        results = []
        for blank, answer in zip(blanks, self._answers(task), strict=True):
            trial = Trial(True, "", answer.reason) if isinstance(answer, _Broken) else answer
            results.append(complete(blank, trial))
        self._progress(f"{len(results)} of {blanks[0].kernel}")
        return results

    def _answers(self, task: _Task) -> list[Any]:
        """Return the answers of a task; restart the process whenever it dies."""
        answers: list[Any] = []
        while broken := self._serve(task, answers):
            answers.append(broken)
        return answers

    def _serve(self, task: _Task, answers: list[Any]) -> _Broken | None:
        """Append the answers that are left; return how the process died if it did."""
        context = multiprocessing.get_context("fork")
        with self._forking:  # a pipe's write end inherited by another child is never closed
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=self._child, args=(task, len(answers), theirs))
            process.start()
            theirs.close()
        try:
            while mine.poll(_SECONDS):
                answer = mine.recv()
                if answer is None:
                    return None
                if isinstance(answer, MutationError):
                    raise answer
                answers.append(answer)
            process.kill()
            return _Broken("the process hung")
        except EOFError:
            process.join()
            return _Broken(f"the process ended with exit code {process.exitcode}")
        finally:
            process.join()
            mine.close()

    def _child(self, task: _Task, start: int, answers: Connection) -> None:
        faulthandler.disable()
        with Path(os.devnull).open("w") as nowhere:  # the last output of a dying mutant is not useful
            os.dup2(nowhere.fileno(), 2)
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # compiled kernels need PyTorch, but not the chip
        bench = Bench(self._sources, self._selection.cases, task.is_compiled)
        try:
            for answer in task.work(bench, start):
                answers.send(answer)
            answers.send(None)
        except Exception as error:  # not raised by a kernel: the suite judges those
            answers.send(MutationError(f"{' '.join(task.names[:1])}: {type(error).__name__}: {error}"))
        os._exit(0)


def _refuse_pytorch() -> None:
    if "torch" in sys.modules:
        raise MutationError(
            "PyTorch is loaded in this process, and its threads do not survive a fork; "
            "run `python -m tools.mutation` in a process of its own"
        )


class _Broken(NamedTuple):
    """Stands for an answer: the process died."""

    reason: str


def _trying(rows: Sequence[tuple[Mutant, list[str]]]) -> Callable[[Bench, int], Iterator[Any]]:
    def answers(bench: Bench, start: int) -> Iterator[Any]:
        for mutant, users in rows[start:]:
            if mutant.wrong:
                yield bench.try_mutant(mutant)
            elif users:
                yield bench.try_source(mutant, users)
            else:
                yield Trial(False, "", _NOT_REACHED)

    return answers
