"""The kernel of an operator with its golden cases, which load cases and laws call."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from isthmus.conformance.cases import Case, results_of, tensors_of
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Executor
from isthmus.drivers.libraries import LoadedOperator
from isthmus.opset import dtypes as dt
from isthmus.opset.schema import Schema


class Subject:
    """An operator under check: its kernel, its cases, and the means to call it.

    Attributes:
        executor: makes the calls.
        kernel: kernel of the operator.
        schema: its schema.
        cases: its golden cases.
        kernels: all kernels of the library, by operator.
    """

    def __init__(
        self, executor: Executor, kernels: Mapping[str, LoadedOperator], schema: Schema, cases: Sequence[Case]
    ) -> None:
        self.executor, self.kernels, self.schema, self.cases = executor, kernels, schema, cases
        self.kernel = kernels[schema.name]

    @property
    def device(self) -> Device:
        """The device."""
        return self.executor.device

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of the cases, in their order; large cases are left out."""
        return list(self._by_dtype)

    def of_dtype(self, dtype: str) -> Sequence[Case]:
        """Return the cases of a dtype."""
        return self._by_dtype.get(dtype, ())

    def spread(self, dtypes: Sequence[str], nbytes: int, most: int) -> Iterator[Case]:
        """Yield cases of different sizes with results, from the largest of at most so many bytes to small ones."""
        sized: dict[int, Case] = {}
        for dtype in dtypes:
            for case in self.of_dtype(dtype):
                sized.setdefault(nbytes_of(case), case)
        sizes = sorted((n for n in sized if 0 < n <= nbytes), reverse=True)
        step = max(1, len(sizes) // most)
        yield from (sized[n] for n in sizes[::step][:most])

    @cached_property
    def _by_dtype(self) -> dict[str, list[Case]]:
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            if case.layout == "large":
                continue
            found.setdefault(case.dtype, []).append(case)
        return found


def nbytes_of(case: Case) -> int:
    """Return the bytes of a case's tensors; 0 if no result has elements."""
    written = sum(math.prod(e.shape) * dt.DTYPES[e.dtype].numpy.itemsize for e in results_of(case))
    return written and written + sum(tensor.storage.nbytes for tensor in tensors_of(case.arguments))
