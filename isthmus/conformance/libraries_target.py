"""The operator libraries of a driver, as what is judged: kernels called by their C interface, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor, Outcome
from isthmus.conformance.golden import Case
from isthmus.drivers import Candidate
from isthmus.drivers.libraries import load
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema


class LibrariesTarget:
    """A device of a driver, and its libraries.

    Attributes:
        device: the first device.
        libraries: in the order of preference.

    Args:
        candidate: which driver.
        libraries: paths that take the place of the driver's own libraries, if there are any.

    Raises:
        LoaderError: the driver or a library cannot be used.
    """

    def __init__(self, candidate: Candidate, libraries: Sequence[str] = ()) -> None:
        self.device = Device.open(candidate)
        self.libraries = [load(path) for path in libraries or candidate.operators]
        self._executor = Executor(self.device)

    def describe(self) -> dict[str, Any]:
        """Driver and libraries; of each operator the dtypes and the flags."""
        table = self.device.driver.table
        return {
            "driver": self.device.name,
            "description": table.description.decode(),
            "device": self.device.driver.properties(self.device.index).name.decode(),
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
        """Each library that has the operator of a case, and what runs the case on it."""
        for library in self.libraries:
            kernel = library.operators.get(case.operator)
            if kernel is not None:
                yield library.name, partial(self._executor.run, kernel, schema, case)
