"""Try mutants: run the cases of an operator until one fails."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance.checks import checks_of, dtypes_of, run_check
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor
from isthmus.conformance.golden import Case, Tensor
from isthmus.conformance.relations import GRADIENTS
from isthmus.conformance.subject import Subject
from isthmus.drivers import find
from isthmus.drivers import numpy as numpy_chip
from isthmus.opset.library import Entry
from tools.mutation import bank, classes
from tools.mutation.kernel import Invocation, Switch, target
from tools.mutation.kernel_mutants import Compiled
from tools.mutation.mutant import Mutant
from tools.mutation.source import Source

COMPILED = "c++ "  # begins the name of a compiled kernel's source


@dataclass(frozen=True)
class Trial:
    """Outcome of a mutant.

    Attributes:
        caught: whether a case failed.
        case: the case that failed; "" for none.
        message: the suite's message; for a survivor, whether its results ever differed.
        raised: whether it was caught by an exception of the kernel.
    """

    caught: bool
    case: str = ""
    message: str = ""
    raised: bool = False


class Sources:
    """The kernels with the mutants of their source text: NumPy functions, and compiled kernels.

    Attributes:
        numpy: the NumPy library.
        compiled: the compiled kernels; None without a compiler.
    """

    def __init__(self) -> None:
        folder = Path(next(iter(numpy_chip.__path__)))
        self.numpy = Source(folder / "operators.py", numpy_chip.__name__)
        self.compiled = Compiled() if shutil.which("g++") else None

    def mutants(self) -> Iterator[Mutant]:
        """Yield the mutants of source text."""
        compiled = self.compiled.sites if self.compiled else []
        for origin, sites in (("numpy ", self.numpy.sites), (COMPILED, compiled)):
            seen: Counter[str] = Counter()
            for site in sites:
                file = site.place.partition(":")[0]
                detail = site.detail
                seen[file + detail] += 1
                if seen[file + detail] > 1:
                    detail += f" #{seen[file + detail]}"
                yield Mutant(origin + file, site.kind, site.mutation, detail, site=site.number)


def mutants_around(names: Sequence[str], sources: Sources) -> Iterator[Mutant]:
    """Yield the mutants around the kernels of operators of the NumPy library."""
    for name in names:
        here = target(name, sources.numpy.library.entries[name])
        yield from classes.mutants(here)
        yield from bank.mutants(here)


class Bench:
    """Operators on one device, each replaceable by its mutants.

    With ``compiled``, the compiled kernels are called instead of those of NumPy.
    """

    def __init__(self, sources: Sources, cases: Callable[[str], list[Case]], compiled: bool = False) -> None:
        self.sources, self.is_compiled = sources, compiled
        self._device = Device.open(find("numpy").candidates[0])
        # It protects inputs: a mutant that writes to them ends its process.
        self._executor = Executor(self._device, lambda note: None)
        # The cases of an operator, small ones first; of the last two operators, a gradient and its forward operator.
        self._cases = lru_cache(maxsize=2)(lambda name: sorted(cases(name), key=_size))
        self._switches: dict[str, Switch] = {}

    def entry(self, name: str) -> Entry:
        """Return the correct kernel of an operator."""
        compiled = self.sources.compiled if self.is_compiled else None
        return compiled.entry(name) if compiled else self.sources.numpy.library.entries[name]

    def false_alarm(self, name: str) -> str:
        """Try the correct kernel; return the first failure in one line, "" if all cases pass."""
        trial = self._until_failure(name, 0)
        return f"{trial.case}: {trial.message}" if trial.caught else ""

    def reached(self) -> set[int]:
        """Return the source mutants executed since the last call."""
        if self.is_compiled and self.sources.compiled:
            return self.sources.compiled.reached()
        found, self.sources.numpy.reached = self.sources.numpy.reached, set()
        return found

    def try_source(self, mutant: Mutant, names: Sequence[str]) -> Trial:
        """Try a mutant of source text on the operators that reach it."""
        self._activate(mutant.site)
        try:
            for name in names:
                trial = self._until_failure(name, 0)
                if trial.caught:
                    return trial
        finally:
            self._activate(-1)
        return Trial(False)

    def _activate(self, site: int) -> None:
        if self.is_compiled and self.sources.compiled:
            self.sources.compiled.set_active(site)
        else:
            self.sources.numpy.active = site

    def try_mutant(self, mutant: Mutant) -> Trial:
        """Try a mutant around a kernel."""
        assert mutant.wrong
        switch = self._switch(mutant.kernel)
        wrong = mutant.wrong()
        switch.current = lambda call: wrong(switch.right, call)
        try:
            trial = self._until_failure(mutant.kernel, mutant.without)
            return trial if trial.caught else Trial(False, "", self._difference(mutant))
        finally:
            switch.current = None

    def _until_failure(self, name: str, without: int) -> Trial:
        self._executor.forget_kernels()  # of the mutant before
        for case in self._cases(name):
            problem = self._problem(name, case, without)
            if problem:
                raised = problem.startswith(f"{name} raised")
                return Trial(True, f"{name} {case.dtype} {case.id}", problem, raised)
        subject = self._subject(name, without)
        for check in checks_of(name):
            for dtype in dtypes_of(check, subject):
                outcome = run_check(check, subject, dtype)
                if outcome and outcome.status == "failed":
                    return Trial(True, f"{name} {dtype} {check}", outcome.message)
        return Trial(False)

    def _subject(self, name: str, without: int) -> Subject:
        """Return what the checks call: the kernel with the forward operator of a backward one."""
        names = [name, *([GRADIENTS[name].forward] if name in GRADIENTS else [])]
        kernels = {each: self._switch(each).operator for each in names}
        kernels[name] = kernels[name]._replace(flags=kernels[name].flags & ~without)
        return Subject(self._executor, kernels, opset.schema_of(name), self._cases(name))

    def _problem(self, name: str, case: Case, without: int) -> str:
        kernel = self._switch(name).operator
        kernel = kernel._replace(flags=kernel.flags & ~without)
        try:
            outcome = self._executor.run(kernel, opset.schema_of(name), case)
        except Exception as error:  # the suite counts it as a crash
            return f"{type(error).__name__}: {error}"
        return outcome.message if outcome.status == "failed" else ""

    def _switch(self, name: str) -> Switch:
        if name not in self._switches:
            self._switches[name] = Switch(name, opset.schema_of(name), self.entry(name))
        return self._switches[name]

    def _difference(self, mutant: Mutant) -> str:
        """Describe whether a survivor's results ever differed from the correct kernel's."""
        assert mutant.wrong
        switch = self._switch(mutant.kernel)
        wrong = mutant.wrong()
        found: list[str] = []

        def compared(call: Invocation) -> None:
            before = [np.array(x) for x in call.results()]
            switch.right(call)
            right = [np.array(x) for x in call.results()]
            for x, old in zip(call.results(), before, strict=True):
                x[...] = old
            wrong(switch.right, call)
            if any(_differ(a, b) for a, b in zip(right, call.results(), strict=True)):
                found.append(_shapes(call))

        switch.current = compared
        for case in self._cases(mutant.kernel):
            self._problem(mutant.kernel, case, mutant.without)
        return f"differs within the tolerance, e.g. {found[0]}" if found else "bit-identical in every case"


def _differ(left: Any, right: Any) -> bool:
    return np.ascontiguousarray(left).tobytes() != np.ascontiguousarray(right).tobytes()


def _shapes(call: Invocation) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in call.read())


def _size(case: Case) -> int:
    return sum(value.storage.size for value in case.arguments if isinstance(value, Tensor))
