"""The operator libraries of a driver as a test target: kernels called by their C interface, without PyTorch."""

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
    """A device of a driver with its operator libraries.

    Attributes:
        device: the first device.
        libraries: in order of preference.

    Args:
        libraries: paths that replace the driver's own libraries, if any.
        note: see :class:`~isthmus.conformance.executor.Executor`.

    Raises:
        LoaderError: the driver or a library cannot be loaded.
        ValueError: two libraries of one name.
    """

    def __init__(
        self, candidate: Candidate, libraries: Sequence[str] = (), note: Callable[[str], None] | None = None
    ) -> None:
        self.device = Device.open(candidate)
        self.libraries = [load(path) for path in libraries or candidate.operators]
        names = [library.name for library in self.libraries]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two libraries have the name {twice}; give each its own")
        self._executor = Executor(self.device, note)

    def describe(self) -> dict[str, Any]:
        """Describe driver, device and libraries, with dtypes and flags of each operator."""
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
        """Yield each library with the operator of a case, and a function that runs the case on it."""
        for library in self.libraries:
            kernel = library.operators.get(case.operator)
            if kernel is not None:
                yield library.name, partial(self._executor.run, kernel, schema, case)
