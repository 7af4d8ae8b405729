"""Try mutants: run the cases of an operator until one fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor
from isthmus.conformance.golden import Case, Tensor
from isthmus.drivers import find
from isthmus.drivers import numpy as numpy_chip
from isthmus.opset.library import Entry
from tools.mutation import aten_kernels, calls, inputs, reports, results
from tools.mutation.kernel import Invocation, Switch, Target, target
from tools.mutation.mutant import Mutant, Mutation
from tools.mutation.source import Source

MUTATIONS: tuple[Mutation, ...] = (*inputs.MUTATIONS, *results.MUTATIONS, *calls.MUTATIONS)


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


class Bench:
    """Operators of one library on one device, each replaceable by its mutants.

    Args:
        source: the NumPy library with its mutants; PyTorch's kernels serve operators it lacks.
        cases: the cases of each operator.
    """

    def __init__(self, source: Source, cases: dict[str, list[Case]]) -> None:
        self.source = source
        self._device = Device.open(find("numpy").candidates[0])
        self._executor = Executor(self._device)
        self._cases = {name: sorted(each, key=_size) for name, each in cases.items()}
        self._switches: dict[str, Switch] = {}

    def close(self) -> None:
        """Close the device."""
        self._device.close()

    def entry(self, name: str) -> Entry:
        """Return the correct kernel of an operator."""
        return self.source.library.entries.get(name) or aten_kernels.entry(name)

    def target(self, name: str) -> Target:
        """Describe an operator for the mutations."""
        return target(name, self.entry(name), self._cases[name])

    def mutants(self, name: str) -> Iterator[Mutant]:
        """Yield the mutants around an operator's kernel."""
        here = self.target(name)
        for mutation in MUTATIONS:
            yield from mutation.apply(here)
        yield from reports.mutants(here)

    def false_alarm(self, name: str) -> str:
        """Try the correct kernel; return the first failure in one line, "" if all cases pass."""
        for case in self._cases[name]:
            problem = self._problem(name, case, 0)
            if problem:
                return f"{name} {case.dtype} {case.id}: {problem}"
        return ""

    def try_source(self, index: int, names: Sequence[str]) -> Trial:
        """Try a source mutant on the operators that reach it."""
        self.source.active = index
        try:
            for name in names:
                trial = self._until_failure(name, 0)
                if trial.caught:
                    return trial
        finally:
            self.source.active = -1
        return Trial(False)

    def try_mutant(self, mutant: Mutant) -> Trial:
        """Try a mutant on its operator."""
        switch = self._switch(mutant.operator)
        wrong = mutant.wrong()
        switch.current = lambda call: wrong(switch.right, call)
        if mutant.without:  # an executor keeps the second stream busy only for the first cases of a kernel
            self._executor = Executor(self._device)
        try:
            trial = self._until_failure(mutant.operator, mutant.without)
            return trial if trial.caught else Trial(False, "", self._difference(mutant))
        finally:
            switch.current = None

    def _until_failure(self, name: str, without: int) -> Trial:
        for case in self._cases[name]:
            problem = self._problem(name, case, without)
            if problem:
                raised = problem.startswith(f"{name} raised")
                return Trial(True, f"{name} {case.dtype} {case.id}", problem, raised)
        return Trial(False)

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
        switch = self._switch(mutant.operator)
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
        for case in self._cases[mutant.operator]:
            self._problem(mutant.operator, case, mutant.without)
        return f"differs within the tolerance, e.g. {found[0]}" if found else "bit-identical in every case"


def _differ(left: Any, right: Any) -> bool:
    return np.ascontiguousarray(left).tobytes() != np.ascontiguousarray(right).tobytes()


def _shapes(call: Invocation) -> str:
    return ", ".join(f"{x.dtype}{list(x.shape)}" for x in call.read())


def _size(case: Case) -> int:
    return sum(value.storage.size for value in case.arguments if isinstance(value, Tensor))


def load_source() -> Source:
    """Load the NumPy library with its mutants."""
    folder = Path(next(iter(numpy_chip.__path__)))
    return Source(folder / "operators.py", numpy_chip.__name__)
