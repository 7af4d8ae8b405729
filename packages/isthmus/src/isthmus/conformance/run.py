"""``isthmus conform run``: selects the cases, runs them in workers, and collects the results."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import isthmus
from isthmus import opset
from isthmus.conformance import known_failures
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.golden import GoldenError, Reader
from isthmus.conformance.processes import Job, WorkerProcess, serve_all
from isthmus.conformance.results import BAD, DRIVER_FAMILY, FAILED, NOT_CLAIMED, CaseResult
from isthmus.conformance.selection import UsageError, coverage, named_operators, select
from isthmus.doctor import NO_TORCH, has_torch
from isthmus.drivers import Candidate, find
from isthmus.opset.names import matches
from isthmus.opset.tiers import tiers

_FEWEST, _MOST = 24, 384  # cases of a job: few share the work evenly, many open few files
_JOBS_OF_A_WORKER = 16


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        driver: name or path; "" is the default driver.
        libraries: paths that replace the driver's own libraries.
        operators: patterns; empty means all. "driver::*" matches the driver functions.
        tier: only operators of this tier ("core", "llama" ...); "" means all. A model's tier requires all kernels.
        through: "kernels" calls the libraries' kernels, "pytorch" PyTorch's operators on chip tensors; "" means
            kernels if there are any, else PyTorch if it is installed.
        jobs: worker processes.
    """

    driver: str = ""
    libraries: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    tier: str = ""
    through: str = ""
    jobs: int = 1


@dataclass
class Run:
    """A finished run.

    Attributes:
        head: driver, device, libraries, golden data, environment.
        results: results of all cases.
        missing: selected operators without a kernel, by family.
        stale: stale entries of known failures.
    """

    head: dict[str, Any]
    results: list[CaseResult] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)

    @property
    def judged(self) -> set[str]:
        """Operators and driver functions with at least one judged case."""
        return {result.operator for result in self.results if result.status != NOT_CLAIMED}

    @property
    def failed(self) -> bool:
        """Whether the run failed; a run without judged cases fails."""
        bad = any(result.status in BAD for result in self.results)
        return bool(self.stale) or bad or not self.judged

    def to_json(self) -> dict[str, Any]:
        """Return the run as a dictionary for JSON."""
        return {
            **self.head,
            "missing": self.missing,
            "stale": self.stale,
            "results": [result.to_json() for result in self.results],
        }


class Runner:
    """Runs the suite.

    Args:
        golden: the data, or a function that makes it; called only after the driver cases, because it takes long.
        done: called with each result, from any thread; calls do not overlap.

    Raises:
        UsageError: unknown driver or library.
    """

    def __init__(
        self, options: Options, golden: Reader | Callable[[], Reader], done: Callable[[CaseResult], None]
    ) -> None:
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
        """Run the selected cases.

        Raises:
            UsageError: unknown operator or tier.
            WorkerError: the driver or a library cannot be loaded.
            GoldenError: the golden data is invalid.
            KnownFailureError: the file of known failures is invalid.
        """
        names = [*opset.records(), *(f"driver::{case.function}" for case in driver_cases())]
        self._known = known_failures.load(self._candidate.known_failures, names, self._through)
        given = self._options.operators, self._options.tier
        if isinstance(self._golden, Reader):
            select(self._golden, *given)
        needs_golden = isinstance(self._golden, Reader) or bool(named_operators(*given))
        worker = self._worker("kernels")
        description = self._candidate.description or worker.hello["description"]
        run = Run({**worker.hello, **_environment(), "description": description, "through": self._through})
        unused = self._run_driver_cases(run, worker)
        if needs_golden:
            self._run_golden(run, unused)
        elif unused:
            unused.close()
        run.stale = self._stale_failures(run)
        run.results.sort(key=lambda r: (r.family != DRIVER_FAMILY, r.family, r.operator, r.dtype))
        return run

    def _run_golden(self, run: Run, unused: WorkerProcess | None) -> None:
        """Run the selected operators on the golden data, which is made first if absent."""
        golden = self._golden if isinstance(self._golden, Reader) else self._golden()
        run.head["golden"] = {key: golden.manifest[key] for key in ("opset", "seed", "format")}
        run.head["golden"]["coverage"] = coverage(golden)
        self._covered = set(golden.operators)
        self._run_operators(run, golden, unused)

    def _stale_failures(self, run: Run) -> list[str]:
        """Return stale known failures; in a run with filters, only of operators whose cases it ran."""
        functions = {f"driver::{case.function}" for case in driver_cases()}
        narrowed = self._options.operators or self._options.tier or self._options.libraries
        ran = {result.operator for result in run.results if result.case}
        complete = ran if narrowed else functions | self._covered
        return known_failures.stale_entries(
            self._applicable_failures(run), run.results, complete, functions | set(opset.operators())
        )

    def _found_through(self) -> str:
        has_kernels = bool(self._options.libraries or self._candidate.operators)
        return "kernels" if has_kernels or not has_torch() else "pytorch"

    def _run_driver_cases(self, run: Run, worker: WorkerProcess) -> WorkerProcess | None:
        """Run the selected driver cases. Return the worker if there are none."""
        patterns = self._options.operators or ("*",)
        chosen = [
            c
            for c in driver_cases()
            if not self._options.tier and matches(f"driver::{c.function}", *patterns)
        ]
        if not chosen:
            return worker
        functions = {case.name: case.function for case in chosen}

        def blank(name: str) -> CaseResult:
            return CaseResult(DRIVER_FAMILY, "", f"driver::{functions[name]}", "", name)

        job = Job([case.name for case in chosen], blank)
        serve_all(iter([job]), [worker], lambda: self._worker("kernels"), self._make_done(run))
        return None

    def _run_operators(self, run: Run, golden: Reader, unused: WorkerProcess | None) -> None:
        selected = select(golden, self._options.operators, self._options.tier)
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
            family = golden.operators[name].family
            run.missing.setdefault(family, []).append(name)
            if self._options.tier in tiers():
                reason = f"no library has a kernel, which tier {self._options.tier} requires"
                self._make_done(run)(_failure(golden, name, reason))
        names = sorted(selected & claimed, key=lambda name: (golden.operators[name].family, name))
        broken: dict[str, str] = {}
        jobs = _jobs(golden, names, min(max(cases // (count * _JOBS_OF_A_WORKER), _FEWEST), _MOST), broken)
        serve_all(jobs, workers, lambda: self._worker(self._through), self._make_done(run))
        for name, problem in broken.items():
            self._make_done(run)(_failure(golden, name, problem))
        self._refuse_unjudged(run, golden, selected)

    def _refuse_unjudged(self, run: Run, golden: Reader, selected: set[str]) -> None:
        """Fail operators that were requested by name but not judged in any case."""
        for pattern in self._options.operators:
            names = {name for name in selected if matches(name, pattern)}
            if names & run.judged:
                continue
            for name in sorted(names - {result.operator for result in _failed_cases(run)}):
                absent = name in run.missing.get(golden.operators[name].family, ())
                reason = "no library has a kernel" if absent else _why_unclaimed(run, name)
                self._make_done(run)(
                    _failure(golden, name, f"--operators {pattern} judged nothing: {reason}")
                )

    def _worker(self, through: str) -> WorkerProcess:
        threads = max(1, (os.cpu_count() or 1) // self._options.jobs)
        setup = {
            "driver": self._options.driver or self._candidate.name,
            "libraries": [str(Path(path).absolute()) for path in self._options.libraries],
            "through": through,
        }
        return WorkerProcess(setup, threads)

    def _applicable_failures(self, run: Run) -> list[known_failures.KnownFailure]:
        """Return the known failures of the run's machine, once its libraries are described."""
        return [entry for entry in self._known if entry.applies(run.head)]

    def _make_done(self, run: Run) -> Callable[[CaseResult], None]:
        entries = self._applicable_failures(run)

        def done(result: CaseResult) -> None:
            known_failures.mark(entries, result)
            run.results.append(result)
            self._report(result)

        return done


def candidate(driver: str) -> Candidate:
    """Find a driver. Raises UsageError."""
    search = find(driver)
    if not search.candidates:
        raise UsageError(search.problem)
    return search.candidates[0]


def _failed_cases(run: Run) -> list[CaseResult]:
    return [result for result in run.results if result.status in BAD]


def _why_unclaimed(run: Run, name: str) -> str:
    """Return why no case of an operator was judged: dtypes count only if there is no other reason."""
    reasons = Counter(result.message for result in run.results if result.operator == name and result.message)
    others = Counter(
        {each: n for each, n in reasons.items() if not each.startswith("the library does not claim")}
    )
    most = (others or reasons).most_common(1)
    return "the libraries claim none of its cases" + (f": {most[0][0]}" if most else "")


def _failure(golden: Reader, name: str, reason: str) -> CaseResult:
    return CaseResult(golden.operators[name].family, "", name, "", "", status=FAILED, message=reason)


def _jobs(golden: Reader, names: Iterable[str], most: int, broken: dict[str, str]) -> Iterator[Job]:
    """Yield jobs of at most so many cases of one operator. Operators whose files are invalid go to ``broken``."""
    for name in names:
        try:
            golden.check(name)
        except GoldenError as error:
            broken[name] = str(error)
            continue
        cases = range(golden.operators[name].cases)
        for start in range(0, len(cases), most):
            yield Job(
                cases[start : start + most], partial(_blank_result, golden, name), name, str(golden.folder)
            )


def _blank_result(golden: Reader, name: str, index: int) -> CaseResult:
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
