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

import numpy as np

from isthmus.conformance.golden import Case, Expected, Reader, Tensor
from tools.mutation.score import Result, Score, settled, unused_proofs
from tools.mutation.source import Source
from tools.mutation.trial import Bench, Trial, load_source

SOURCE_FAMILY = "library"  # of source mutants that no operator reaches
_SECONDS = 180.0  # a mutant without an answer for so long hangs
_NOT_REACHED = "no case executes this line"


class MutationError(RuntimeError):
    """A mutant could not be tried; the message is one line."""


class _Task(NamedTuple):
    """Work of a process: a function of a bench that yields answers, starting at the n-th."""

    names: tuple[str, ...]
    work: Callable[[Bench, int], Iterator[Any]]


class Selection:
    """Golden data of the selected operators.

    Args:
        golden: the data.
        pattern: pattern of operator names.
        family: only this family; "" for all.

    Attributes:
        cases: of each operator.
        families: of each operator.
        untried: operators on complex tensors, which Python kernels do not support.
        is_all: whether all operators are selected.

    Raises:
        ValueError: unknown operator or family.
    """

    def __init__(self, golden: Reader, pattern: str = "*", family: str = "") -> None:
        families = [family] if family else golden.families
        self.families: dict[str, str] = {}
        self.cases: dict[str, list[Case]] = defaultdict(list)
        if family and family not in golden.families:
            raise ValueError(
                f"--family {family}: unknown family; expected one of {', '.join(golden.families)}"
            )
        for each in families:
            for case in golden.cases(each):
                if fnmatch.fnmatchcase(case.operator, pattern):
                    self.cases[case.operator].append(case)
                    self.families[case.operator] = each
        if not self.cases:
            raise ValueError(f"--operators {pattern}: unknown operator")
        self.untried = sorted(name for name, cases in self.cases.items() if any(map(_is_complex, cases)))
        for name in self.untried:
            del self.cases[name], self.families[name]
        self.is_all = pattern == "*" and not family


def _is_complex(case: Case) -> bool:
    dtypes = [value.storage.dtype.kind for value in case.arguments if isinstance(value, Tensor)]
    dtypes += [np.dtype(result.dtype).kind for result in case.outputs if isinstance(result, Expected)
               and result.dtype.startswith("complex")]  # fmt: skip
    return "c" in dtypes


class Runner:
    """Try mutants.

    Args:
        selection: the operators.
        progress: called with a line for each step.
        jobs: number of processes.
        one_of_each: try only one mutant of each mutation operator.
    """

    def __init__(
        self, selection: Selection, progress: Callable[[str], None], jobs: int = 2, one_of_each: bool = False
    ) -> None:
        self._selection, self._progress = selection, progress
        self._jobs, self._one_of_each = jobs, one_of_each
        self._source = load_source()
        self._seen: set[str] = set()
        self._forking = threading.Lock()

    def run(self) -> Score:
        """Try the correct kernels, then every mutant.

        Raises:
            MutationError: PyTorch is loaded, or a bench failed.
        """
        if "torch" in sys.modules:
            raise MutationError(
                "PyTorch is loaded in this process, and its threads do not survive a fork; "
                "run `python -m tools.mutation` in a process of its own"
            )
        score = Score(untried=self._selection.untried)
        reached = self._right_kernels(score)
        tasks = [*self._kernel_tasks(), *self._source_tasks(reached)]
        with ThreadPoolExecutor(self._jobs) as pool:
            for results in pool.map(self._finish, tasks):
                score.results += results
        if self._selection.is_all and not self._one_of_each:
            score.results += list(self._not_reached(reached))
            score.unused_proofs = unused_proofs(score.results)
        return score

    def _right_kernels(self, score: Score) -> dict[str, set[int]]:
        """Record false alarms; return the source mutants that each operator executes."""
        reached: dict[str, set[int]] = {}

        def work(names: Sequence[str]) -> Callable[[Bench, int], Iterator[Any]]:
            def answers(bench: Bench, start: int) -> Iterator[Any]:
                for name in names[start:]:
                    bench.source.reached.clear()
                    yield name, bench.false_alarm(name), set(bench.source.reached)

            return answers

        groups = self._by_family()
        with ThreadPoolExecutor(self._jobs) as pool:
            tasks = [_Task(tuple(names), work(names)) for names in groups.values()]
            for answers in pool.map(self._answers, tasks):
                for answer in answers:
                    if isinstance(answer, _Broken):
                        score.false_alarms.append(answer.reason)
                        continue
                    name, alarm, indices = answer
                    reached[name] = indices
                    score.false_alarms += [alarm] if alarm else []
        return reached

    def _by_family(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = defaultdict(list)
        for name, family in self._selection.families.items():
            groups[family].append(name)
        return groups

    def _kernel_tasks(self) -> Iterator[tuple[_Task, list[Result]]]:
        """Yield a task for each operator: its mutants around the kernel."""
        bench = _Planner(self._source, self._selection)
        for name in self._selection.cases:
            chosen = [n for n, mutant in enumerate(bench.mutants(name)) if self._wanted(mutant.mutation)]
            if not chosen:
                continue
            blanks = []
            mutants = list(bench.mutants(name))
            for n in chosen:
                mutant = mutants[n]
                blanks.append(
                    Result(self._selection.families[name], name, mutant.mutation, mutant.detail, "")
                )
            yield _Task((name,), _trying(name, chosen)), blanks

    def _source_tasks(self, reached: dict[str, set[int]]) -> Iterator[tuple[_Task, list[Result]]]:
        """Yield a task for each family: the source mutants that its operators execute."""
        for family, names in self._by_family().items():
            rows = []
            for site in self._source.sites:
                users = [name for name in names if site.number in reached.get(name, ())]
                if users and self._wanted(site.mutation):
                    rows.append((site, users))
            if rows:
                blanks = [
                    Result(family, " ".join(users), site.mutation, site.detail, "", place=site.place)
                    for site, users in rows
                ]
                yield _Task(tuple(names), _trying_source([(s.number, u) for s, u in rows])), blanks

    def _not_reached(self, reached: dict[str, set[int]]) -> Iterator[Result]:
        executed = set().union(*reached.values())
        for site in self._source.sites:
            if site.number not in executed:
                blank = Result(SOURCE_FAMILY, "", site.mutation, site.detail, "", place=site.place)
                yield settled(blank, Trial(False, "", _NOT_REACHED))

    def _wanted(self, mutation: str) -> bool:
        """Whether to try a mutant; with one_of_each only the first of its mutation operator."""
        if self._one_of_each and mutation in self._seen:
            return False
        self._seen.add(mutation)
        return True

    def _finish(self, item: tuple[_Task, list[Result]]) -> list[Result]:
        task, blanks = item
        results = []
        for blank, answer in zip(blanks, self._answers(task), strict=True):
            trial = Trial(True, "", answer.reason) if isinstance(answer, _Broken) else answer
            results.append(settled(blank, trial))
        self._progress(f"{blanks[0].family} {blanks[0].operator.split()[0]}")
        return results

    def _answers(self, task: _Task | tuple[_Task, list[Result]]) -> list[Any]:
        """Return the answers of a task; restart the process whenever it dies."""
        assert isinstance(task, _Task)
        answers: list[Any] = []
        while True:
            begin = len(answers)
            broken = self._serve(task, begin, answers)
            if broken is None:
                return answers
            answers.append(broken)

    def _serve(self, task: _Task, start: int, answers: list[Any]) -> _Broken | None:
        """Append answers from ``start`` on; return how the process died if it did."""
        context = multiprocessing.get_context("fork")
        with self._forking:  # a pipe's write end inherited by another child is never closed
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=self._child, args=(task, start, theirs))
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
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = (
            "0"  # correct kernels may need PyTorch, but not the chip
        )
        cases = {name: self._selection.cases[name] for name in task.names}
        bench = Bench(self._source, cases)
        try:
            for answer in task.work(bench, start):
                answers.send(answer)
            answers.send(None)
        except Exception as error:  # not raised by a kernel: the suite judges those
            answers.send(MutationError(f"{task.names[0]}: {type(error).__name__}: {error}"))
        os._exit(0)


class _Broken(NamedTuple):
    """Stands for an answer: the process died."""

    reason: str


class _Planner(Bench):
    """A bench without a device, for listing mutants."""

    def __init__(self, source: Source, selection: Selection) -> None:
        self.source = source
        self._cases = selection.cases


def _trying(name: str, chosen: Sequence[int]) -> Callable[[Bench, int], Iterator[Any]]:
    def answers(bench: Bench, start: int) -> Iterator[Any]:
        mutants = list(bench.mutants(name))
        for n in chosen[start:]:
            yield bench.try_mutant(mutants[n])

    return answers


def _trying_source(rows: Sequence[tuple[int, list[str]]]) -> Callable[[Bench, int], Iterator[Any]]:
    def answers(bench: Bench, start: int) -> Iterator[Any]:
        for index, users in rows[start:]:
            yield bench.try_source(index, users)

    return answers
