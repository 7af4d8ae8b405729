"""``isthmus conform run``: selects the cases, runs them in workers, and collects the results."""

import os
import platform
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import isthmus
from isthmus import opset
from isthmus.conformance import known_failures
from isthmus.conformance.cache import Opener
from isthmus.conformance.checks import checks_of
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.golden import GoldenError, Reader
from isthmus.conformance.kept import keep
from isthmus.conformance.processes import Job, WorkerProcess, serve_all
from isthmus.conformance.results import (
    BAD,
    CRASHED,
    DRIVER_FAMILY,
    FAILED,
    NO_KERNEL,
    NOT_CLAIMED,
    NOT_RUN,
    CaseResult,
)
from isthmus.conformance.selection import UsageError, coverage, named_operators, nearest_name, select
from isthmus.doctor import has_torch
from isthmus.drivers import Candidate, find
from isthmus.opset.names import matches
from isthmus.opset.schema import parse
from isthmus_common.text import NO_TORCH

_CORE = "core"  # the tier of PyTorch's core operators, into which it decomposes the others
_FEWEST, _MOST = 24, 384  # cases of a job: few share the work evenly, many open few files
_JOBS_OF_A_WORKER = 16


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        driver: name or path; "" is the default driver.
        libraries: paths that replace the driver's own libraries.
        operators: patterns; empty means all. "driver::*" matches the driver functions.
        tier: only operators of this tier ("core", "llama" ...), each of whose cases must run; "" means all.
        cases: only these, by :attr:`CaseResult.id`; empty means all.
        through: "kernels" calls the libraries' kernels, "pytorch" PyTorch's operators on chip tensors; "" means
            kernels if there are any, else PyTorch if it is installed.
        jobs: worker processes.
        keep: folder for the inputs and results of failed cases; "" for none.
        command: words of the command that runs a case again, before the case.
    """

    driver: str = ""
    libraries: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    tier: str = ""
    cases: tuple[str, ...] = ()
    through: str = ""
    jobs: int = 1
    keep: str = ""
    command: tuple[str, ...] = ("isthmus", "conform", "run")


@dataclass
class Run:
    """A finished run.

    Attributes:
        head: driver, device, libraries, golden data, environment.
        results: results of all cases; an operator without a kernel has one for all of its cases.
        stale: stale entries of known failures.
    """

    head: dict[str, Any]
    results: list[CaseResult] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def judged(self) -> set[str]:
        """Operators and driver functions with at least one judged case."""
        return {result.operator for result in self.results if result.judged}

    @property
    def failed(self) -> bool:
        """Whether a case failed, or an entry of known failures is stale."""
        return bool(self.stale) or any(result.status in BAD for result in self.results)

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped; its results are those until then."""
        return bool(self.head.get("interrupted"))

    @property
    def incomplete(self) -> bool:
        """Whether a demanded case was not run, or none was."""
        return not self.judged or any(result.status == NOT_RUN for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """Return the run as a dictionary for JSON."""
        return {**self.head, "stale": self.stale, "results": [result.to_json() for result in self.results]}


class Runner:
    """Runs the suite.

    Args:
        golden: the data, or a function that makes it for some operators; called only after the driver cases, because
            it takes long.
        done: called with each result, from any thread; calls do not overlap.

    Raises:
        UsageError: unknown driver or library.
    """

    def __init__(self, options: Options, golden: Reader | Opener, done: Callable[[CaseResult], None]) -> None:
        self._options, self._golden, self._report = options, golden, done
        self._known: list[known_failures.KnownFailure] = []
        self._covered: set[str] = set()  # operators of the golden data
        self._candidate = candidate(options.driver)
        self._through = options.through or self._found_through()
        if options.libraries and self._through == "pytorch":
            raise UsageError("--library needs --through kernels; PyTorch uses the driver's own libraries")
        for path in options.libraries:
            if not Path(path).is_file():
                raise UsageError(f"--library {path}: no such file")
        if self._through == "pytorch" and not has_torch():
            raise UsageError(f"--through pytorch: {NO_TORCH}")

    def run(self) -> Run:
        """Run the selected cases; after a KeyboardInterrupt return the results until then.

        Raises:
            UsageError: unknown operator or tier.
            WorkerError: the driver or a library cannot be loaded.
            GoldenError: the golden data is invalid.
            KnownFailureError: the file of known failures is invalid.
        """
        names = [*opset.records(), *(f"driver::{case.function}" for case in driver_cases())]
        for case in self._options.cases:
            if (operator := case.partition("/")[0]) not in names:
                raise UsageError(f"--case {case}: unknown operator {operator}")
        self._known = known_failures.load(self._candidate.known_failures, names, self._through)
        patterns = self._patterns()
        if isinstance(self._golden, Reader):
            select(self._golden, patterns, self._options.tier)
        needs_golden = isinstance(self._golden, Reader) or bool(named_operators(patterns, self._options.tier))
        worker = self._worker("kernels")
        description = self._candidate.description or worker.hello["description"]
        run = Run({**worker.hello, **_environment(), "description": description, "through": self._through})
        try:
            unused = self._run_driver_cases(run, worker)
            if needs_golden:
                self._run_golden(run, unused)
            elif unused:
                unused.close()
        except KeyboardInterrupt:
            run = Run({**run.head, "interrupted": True}, list(run.results))  # threads still add to the former
        else:
            self._settle(run)
            run.stale = self._stale_failures(run)
        run.results.sort(key=lambda r: (r.family != DRIVER_FAMILY, r.family, r.operator, r.dtype))
        return run

    def _patterns(self) -> tuple[str, ...]:
        """Return the patterns of operators and driver functions, those of single cases included."""
        return self._options.operators or tuple(sorted({case.split("/")[0] for case in self._options.cases}))

    def _run_golden(self, run: Run, unused: WorkerProcess | None) -> None:
        """Run the selected operators on the golden data, which is made first if absent."""
        opened, chosen = self._golden, (self._patterns(), self._options.tier)
        golden = opened if isinstance(opened, Reader) else opened(named_operators(*chosen))
        run.head["golden"] = {key: golden.manifest[key] for key in ("opset", "seed", "format")}
        run.head["golden"]["coverage"] = coverage(golden) if golden is opened else ""
        self._covered = set(golden.operators)
        self._run_operators(run, golden, unused)
        self._keep_crashed(run, golden)

    def _stale_failures(self, run: Run) -> list[str]:
        """Return stale known failures; in a run with filters, only of operators whose cases it ran."""
        functions = {f"driver::{case.function}" for case in driver_cases()}
        if self._options.cases:
            return []
        narrowed = self._options.operators or self._options.tier or self._options.libraries
        ran = {result.operator for result in run.results if result.case}
        complete = ran if narrowed else functions | self._covered
        return known_failures.stale_entries(
            self._applicable_failures(run),
            run.results,
            complete,
            functions | set(opset.operators()),
            self._demands(run),
        )

    def _found_through(self) -> str:
        has_kernels = bool(self._options.libraries or self._candidate.operators)
        return "kernels" if has_kernels or not has_torch() else "pytorch"

    def _run_driver_cases(self, run: Run, worker: WorkerProcess) -> WorkerProcess | None:
        """Run the selected driver cases. Return the worker if there are none."""
        patterns = self._patterns() or ("*",)
        chosen = [
            c
            for c in driver_cases()
            if not self._options.tier and matches(f"driver::{c.function}", *patterns)
        ]
        if self._options.cases:
            named = {f"driver::{c.function}/{c.name}": c for c in chosen}
            chosen = [named[case] for case in self._named(named, lambda case: case.startswith("driver::"))]
        if not chosen:
            return worker
        functions = {case.name: case.function for case in chosen}

        def blank(name: str) -> CaseResult:
            return CaseResult(DRIVER_FAMILY, "", f"driver::{functions[name]}", "", name)

        job = Job([case.name for case in chosen], blank)
        serve_all(iter([job]), [worker], lambda: self._worker("kernels"), self._make_done(run))
        return None

    def _run_operators(self, run: Run, golden: Reader, unused: WorkerProcess | None) -> None:
        selected = select(golden, self._patterns(), self._options.tier)
        if unused and not (selected and self._through == "kernels"):
            unused.close()
            unused = None
        if not selected:
            return
        cases = sum(golden.operators[name].cases for name in selected)
        count = max(1, min(self._options.jobs, cases // _FEWEST))
        started = [unused] if unused else []
        workers = started + [self._worker(self._through) for _ in range(count - len(started))]
        run.head["libraries"] = workers[0].hello["libraries"]
        claimed = {name for library in run.head["libraries"] for name in library["operators"]}
        if self._through == "pytorch":
            claimed = set(golden.operators)
        for name in sorted(selected - claimed):
            self._make_done(run)(_whole_operator(golden, name, NOT_CLAIMED, NO_KERNEL))
        names = sorted(selected & claimed, key=lambda name: (golden.operators[name].family, name))
        broken: dict[str, str] = {}
        size = min(max(cases // (count * _JOBS_OF_A_WORKER), _FEWEST), _MOST)
        jobs = _jobs(golden, names, self._chosen(golden), size, broken)
        serve_all(jobs, workers, lambda: self._worker(self._through), self._make_done(run))
        for name, problem in broken.items():
            self._make_done(run)(_whole_operator(golden, name, FAILED, problem))
        if tier := self._demanded_tier():
            names = sorted(name for name in selected if tier in golden.operators[name].tiers)
            total = sum(golden.operators[name].cases for name in names)
            run.head["demands"] = {"tier": tier, "operators": names, "cases": total}

    def _demanded_tier(self) -> str:
        """Return the tier all of whose cases must run: without any choice PyTorch's core operators."""
        return self._options.tier or ("" if self._patterns() else _CORE)

    def _demands(self, run: Run) -> set[str]:
        """Return the operators and driver functions whose cases must run.

        These are the driver's functions, the operators of the tier, and those of a pattern of which no case ran.
        Other operators, and dtypes, have other routes in PyTorch.
        """
        names = {result.operator for result in run.results}
        found = {name for name in names if name.startswith("driver::")}
        found |= set(run.head.get("demands", {}).get("operators", ()))
        for pattern in self._patterns():
            of_pattern = {name for name in names if matches(name, pattern)}
            found |= set() if of_pattern & run.judged else of_pattern
        return found

    def _settle(self, run: Run) -> None:
        """Mark the demanded cases that no library ran, unless the chip's file allows it."""
        demanded, entries = self._demands(run), self._applicable_failures(run)
        ran = {result.id for result in run.results if result.judged}
        for result in run.results:
            if result.operator in demanded and result.id not in ran:
                ran.add(result.id)  # once, whatever the number of libraries
                result.status = NOT_RUN
                known_failures.mark(entries, result)

    def _named(self, known: Iterable[str], about: Callable[[str], bool]) -> list[str]:
        """Return the chosen cases that are about something, of known ones. Raises UsageError."""
        chosen, among = [case for case in self._options.cases if about(case)], list(known)
        for case in chosen:
            if case not in among:
                near = nearest_name(case, among)
                raise UsageError(f"--case {case}: unknown case{f'; did you mean {near}?' if near else ''}")
        return chosen

    def _chosen(self, golden: Reader) -> Callable[[str], Sequence[int | str]]:
        """Return a function that returns the chosen cases of an operator: indices, and names of checks."""

        def chosen(name: str) -> Sequence[int | str]:
            checks = checks_of(name) if self._through == "kernels" else []
            if not self._options.cases:
                return [*range(golden.operators[name].cases), *checks]
            known: dict[str, int | str] = {
                f"{name}/{case.dtype}/{case.id}": i for i, case in enumerate(golden.cases(name))
            }
            dtypes = ["", *dict.fromkeys(case.dtype for case in golden.cases(name))]
            known |= {
                "/".join(filter(None, (name, dtype, each))): each for dtype in dtypes for each in checks
            }
            found = [known[case] for case in self._named(known, lambda c: c.split("/")[0] == name)]
            return list(dict.fromkeys(found))

        return chosen

    def _worker(self, through: str) -> WorkerProcess:
        threads = max(1, (os.cpu_count() or 1) // self._options.jobs)
        setup = {
            "driver": self._options.driver or self._candidate.name,
            "libraries": [str(Path(path).absolute()) for path in self._options.libraries],
            "through": through,
            "keep": self._options.keep and str(Path(self._options.keep).absolute()),
        }
        return WorkerProcess(setup, threads)

    def _applicable_failures(self, run: Run) -> list[known_failures.KnownFailure]:
        """Return the known failures of the run's machine, once its libraries are described."""
        return [entry for entry in self._known if entry.applies(run.head)]

    def _keep_crashed(self, run: Run, golden: Reader) -> None:
        """Write the inputs of cases whose worker died; it has written those of the others."""
        if not self._options.keep:
            return
        for result in run.results:
            if result.status == CRASHED and result.dtype:
                schema = parse(golden.operators[result.operator].schema)
                cases = golden.cases(result.operator)
                case = next(c for c in cases if (c.dtype, c.id) == (result.dtype, result.case))
                keep(Path(self._options.keep), schema, case, result)

    def _make_done(self, run: Run) -> Callable[[CaseResult], None]:
        entries = self._applicable_failures(run)

        def done(result: CaseResult) -> None:
            known_failures.mark(entries, result)
            if result.status in BAD and result.case:
                result.command = shlex.join([*self._options.command, "--case", result.id])
            run.results.append(result)
            self._report(result)

        return done


def candidate(driver: str) -> Candidate:
    """Find a driver. Raises UsageError."""
    search = find(driver)
    if not search.candidates:
        raise UsageError(search.problem)
    return search.candidates[0]


def _whole_operator(golden: Reader, name: str, status: str, message: str) -> CaseResult:
    """Return a result for all cases of an operator."""
    entry = golden.operators[name]
    return CaseResult(entry.family, "", name, "", "", status=status, message=message, cases=entry.cases)


def _jobs(
    golden: Reader,
    names: Iterable[str],
    chosen: Callable[[str], Sequence[int | str]],
    most: int,
    broken: dict[str, str],
) -> Iterator[Job]:
    """Yield jobs of at most so many cases of one operator, and of its checks.

    Operators whose files are invalid go to ``broken``.
    """
    for name in names:
        try:
            golden.check(name)
        except GoldenError as error:
            broken[name] = str(error)
            continue
        given = chosen(name)
        cases = [each for each in given if isinstance(each, int)]
        parts: list[Sequence[int | str]] = [
            cases[start : start + most] for start in range(0, len(cases), most)
        ]
        checks = [each for each in given if isinstance(each, str)]
        for part in [*parts, checks] if checks else parts:
            yield Job(part, partial(_blank_result, golden, name), name, str(golden.folder))


def _blank_result(golden: Reader, name: str, index: int | str) -> CaseResult:
    if isinstance(index, str):
        return CaseResult(golden.operators[name].family, "", name, "", index)
    case = golden.cases(name)[index]
    return CaseResult(golden.operators[name].family, "", name, case.dtype, case.id, case.layout)


def _environment() -> dict[str, Any]:
    packages = {}
    for name in ("numpy", "ml_dtypes", "apache-tvm-ffi", "torch"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "isthmus": isthmus.__version__,
        "environment": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processors": str(os.cpu_count()),
            **packages,
        },
    }
