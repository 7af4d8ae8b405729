"""The operator libraries of a driver as a test target: kernels called by their C interface, without PyTorch."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from isthmus.conformance.checks import dtypes_of, run_check
from isthmus.conformance.device import Device
from isthmus.conformance.diagnosis import diagnose
from isthmus.conformance.executor import Executor, Outcome
from isthmus.conformance.golden import Case
from isthmus.conformance.subject import Subject
from isthmus.drivers import Candidate
from isthmus.drivers.libraries import LoadedOperator, OperatorLibrary, load
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema


class LibrariesTarget:
    """A device of a driver with its operator libraries.

    Attributes:
        device: the first device.
        libraries: in order of preference.

    Args:
        libraries: paths that replace the driver's own libraries, if any.
        note, progress: see :class:`~isthmus.conformance.executor.Executor`.

    Raises:
        LoaderError: the driver or a library cannot be loaded.
        ValueError: two libraries of one name.
    """

    def __init__(
        self,
        candidate: Candidate,
        libraries: Sequence[str] = (),
        note: Callable[[str], None] | None = None,
        progress: Callable[[], None] | None = None,
    ) -> None:
        self.device = Device.open(candidate)
        self.libraries = [load(path) for path in libraries or candidate.operators]
        names = [library.name for library in self.libraries]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two libraries have the name {twice}; give each its own")
        self._executor = Executor(self.device, note, progress)
        self._subjects: dict[str, Subject] = {}  # the last of each library

    def describe(self) -> dict[str, Any]:
        """Describe driver, device and libraries, with dtypes and flags of each operator."""
        table = self.device.driver.table
        return {
            "driver": self.device.name,
            "description": table.description.decode(),
            "device": self.device.driver.properties(self.device.index).name.decode(),
            "devices": self.device.driver.count(),
            "libraries": [
                {
                    "name": library.name,
                    "description": library.description,
                    "operators": {
                        name: {
                            "dtypes": [n for n, row in dt.DTYPES.items() if operator.dtypes >> row.code & 1],
                            "flags": operator.flags,
                        }
                        for name, operator in library.operators.items()
                    },
                }
                for library in self.libraries
            ],
        }

    def calls(self, schema: Schema, case: Case) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Yield each library with the operator of a case, and a function that runs the case on it."""
        for library in self.libraries:
            kernel = library.operators.get(case.operator)
            if kernel is not None:
                yield library.name, partial(self._judge, kernel, schema, case)

    def checks(
        self, schema: Schema, cases: Sequence[Case], name: str
    ) -> Iterator[tuple[str, str, Callable[[], Outcome | None]]]:
        """Yield each library with an operator, a dtype or "", and a function that runs a check of it."""
        for library in self.libraries:
            if schema.name in library.operators:
                subject = self._subject(library, schema, cases)
                for dtype in dtypes_of(name, subject):
                    yield library.name, dtype, partial(run_check, name, subject, dtype)

    def _subject(self, library: OperatorLibrary, schema: Schema, cases: Sequence[Case]) -> Subject:
        """Return what checks call, the same for all checks of an operator: it decodes the cases."""
        known = self._subjects.get(library.name)
        if known is None or known.cases is not cases:
            known = Subject(self._executor, library.operators, schema, cases)
            self._subjects[library.name] = known
        return known

    def _judge(self, kernel: LoadedOperator, schema: Schema, case: Case) -> Outcome:
        outcome = self._executor.run(kernel, schema, case)
        again = partial(self._executor.results, kernel, schema)
        outcome.guess = diagnose(schema, case, outcome.seen, again)
        return outcome
