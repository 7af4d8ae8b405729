"""``isthmus conform run``: chooses the cases, has them run by workers, and sums up."""

from __future__ import annotations

import difflib
import fnmatch
import importlib.util
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Queue
from typing import Any

import isthmus
from isthmus import opset
from isthmus.conformance import known
from isthmus.conformance.driver_cases import cases as driver_cases
from isthmus.conformance.golden import Reader
from isthmus.conformance.processes import Job, WorkerProcess, serve_all
from isthmus.conformance.results import BAD, DRIVER_FAMILY, FAILED, CaseResult
from isthmus.drivers import Candidate, find
from isthmus.opset.tiers import tiers

_CASES_OF_A_JOB = 24


class UsageError(ValueError):
    """What was asked for does not exist; the message is one line."""


@dataclass(frozen=True)
class Options:
    """What to run.

    Attributes:
        driver: name or path; "" is whatever is there.
        libraries: paths that take the place of the driver's own.
        operators: patterns; empty is all. "driver::*" is the driver functions.
        tier: only operators of this tier ("core", "llama" ...); "" is all. A model's tier also needs all kernels.
        through: "kernels" calls the libraries' kernels; "pytorch" the operators of PyTorch on chip tensors; "" is
            kernels where there are any, else PyTorch where it is installed.
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
        results: of all cases.
        missing: selected operators, by family, that no library has.
        stale: entries of known failures that are none any more.
    """

    head: dict[str, Any]
    results: list[CaseResult] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.stale) or any(result.status in BAD for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """As a dictionary that JSON can hold."""
        return {
            **self.head,
            "missing": self.missing,
            "stale": self.stale,
            "results": [result.to_json() for result in self.results],
        }


class Runner:
    """One run.

    Args:
        options: what to run.
        golden: the data, or a function that makes it; called when the driver cases are done, since it takes long.
        done: called with each result, from any thread, one at a time.

    Raises:
        UsageError: there is no such driver or library.
    """

    def __init__(
        self, options: Options, golden: Reader | Callable[[], Reader], done: Callable[[CaseResult], None]
    ) -> None:
        self._options, self._golden, self._report = options, golden, done
        self._known: list[known.KnownFailure] = []
        self._candidate = candidate(options.driver)
        self._through = options.through or self._found_through()
        if options.libraries and self._through == "pytorch":
            raise UsageError("--library is for --through kernels; PyTorch takes the driver's own libraries")
        for path in options.libraries:
            if not Path(path).is_file():
                raise UsageError(f"--library {path}: no such file")

    def run(self) -> Run:
        """Run everything.

        Raises:
            UsageError: no such operator or tier.
            WorkerError: the driver or a library cannot be used.
            GoldenError: the golden data cannot be used.
            KnownFailureError: the file of known failures cannot be used.
        """
        names = [*opset.records(), *(f"driver::{case.function}" for case in driver_cases())]
        self._known = known.load(self._candidate.known_failures, names, self._through)
        if isinstance(self._golden, Reader):
            select(self._golden, self._options)
        worker = self._worker("kernels", None)
        run = Run({**worker.hello, **_environment(), "through": self._through})
        self._run_driver_cases(run, worker)
        golden = self._golden if isinstance(self._golden, Reader) else self._golden()
        run.head["golden"] = {key: golden.manifest[key] for key in ("opset", "seed", "format")}
        self._run_operators(run, golden)
        narrowed = self._options.operators or self._options.tier or self._options.libraries
        run.stale = known.stale(self._known, run.results, [] if narrowed else list(golden.operators))
        run.results.sort(key=lambda r: (r.family != DRIVER_FAMILY, r.family, r.operator, r.dtype))
        return run

    def _found_through(self) -> str:
        has_kernels = bool(self._options.libraries or self._candidate.operators)
        return "kernels" if has_kernels or importlib.util.find_spec("torch") is None else "pytorch"

    def _run_driver_cases(self, run: Run, worker: WorkerProcess) -> None:
        patterns = self._options.operators or ("*",)
        chosen = [
            c
            for c in driver_cases()
            if not self._options.tier and _matches(f"driver::{c.function}", patterns)
        ]
        functions = {case.name: case.function for case in chosen}
        jobs: Queue[Job] = Queue()
        if chosen:
            jobs.put(
                Job(
                    DRIVER_FAMILY,
                    [case.name for case in chosen],
                    lambda name: CaseResult(DRIVER_FAMILY, "", f"driver::{functions[name]}", "", name),
                )
            )
        serve_all(jobs, 1, worker, lambda: self._worker("kernels", None), self._done(run))

    def _run_operators(self, run: Run, golden: Reader) -> None:
        selected = select(golden, self._options)
        if not selected:
            return
        worker = self._worker(self._through, golden)
        run.head["libraries"] = worker.hello["libraries"]
        claimed = {name for library in worker.hello["libraries"] for name in library["operators"]}
        if self._through == "pytorch":
            claimed = set(golden.operators)
        for name in sorted(selected - claimed):
            family = golden.operators[name].family
            run.missing.setdefault(family, []).append(name)
            if self._options.tier in tiers():
                reason = f"no library has a kernel, and the tier {self._options.tier} needs one"
                self._done(run)(CaseResult(family, "", name, "", "", status=FAILED, message=reason))
        jobs: Queue[Job] = Queue()
        for family in sorted({golden.operators[name].family for name in selected & claimed}):
            for job in _jobs(golden, family, selected & claimed):
                jobs.put(job)
        serve_all(
            jobs,
            self._options.jobs,
            worker,
            lambda: self._worker(self._through, golden),
            self._done(run),
        )

    def _worker(self, through: str, golden: Reader | None) -> WorkerProcess:
        threads = max(1, (os.cpu_count() or 1) // self._options.jobs)
        setup = {
            "driver": self._options.driver or self._candidate.name,
            "libraries": [str(Path(path).absolute()) for path in self._options.libraries],
            "golden": str(golden.folder) if golden else "",
            "through": through,
        }
        return WorkerProcess(setup, threads)

    def _done(self, run: Run) -> Callable[[CaseResult], None]:
        def done(result: CaseResult) -> None:
            known.mark(self._known, result)
            run.results.append(result)
            self._report(result)

        return done


def candidate(driver: str) -> Candidate:
    """The driver that is meant. Raises UsageError."""
    search = find(driver)
    if not search.candidates:
        raise UsageError(search.problem)
    return search.candidates[0]


def select(golden: Reader, options: Options) -> set[str]:
    """Operators of the golden data that are meant. Raises UsageError for a pattern or tier that there is none of."""
    known_tiers = sorted({tier for entry in golden.operators.values() for tier in entry.tiers})
    if options.tier and options.tier not in known_tiers:
        raise UsageError(f"--tier {options.tier}: no such tier; there are {', '.join(known_tiers)}")
    found = {n for n, e in golden.operators.items() if not options.tier or options.tier in e.tiers}
    patterns = [p for p in options.operators if not p.startswith("driver::")]
    for pattern in patterns:
        if not any(_matches(name, [pattern]) for name in golden.operators):
            near = difflib.get_close_matches(pattern, golden.operators, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; `isthmus conform list` prints them"
            raise UsageError(f"--operators {pattern}: no such operator{hint}")
    return {name for name in found if _matches(name, patterns)} if options.operators else found


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether an overload matches a pattern, with or without namespace and overload name."""
    bare = name.partition("::")[2]
    texts = (name, name.partition(".")[0], bare, bare.partition(".")[0])
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in texts)


def _jobs(golden: Reader, family: str, names: set[str]) -> list[Job]:
    rows = golden.rows(family)
    cases = [i for i, row in enumerate(rows) if row["operator"] in names]

    def blank(index: int) -> CaseResult:
        row = rows[index]
        return CaseResult(family, "", row["operator"], row["dtype"], row["id"], row["layout"])

    return [Job(family, cases[i : i + _CASES_OF_A_JOB], blank) for i in range(0, len(cases), _CASES_OF_A_JOB)]


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
