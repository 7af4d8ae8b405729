"""Kernels that accept a call that must fail are found: an index out of range, an empty reduction, two dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.conformance.cases import Case, Tensor
from isthmus.conformance.executor import Outcome
from isthmus.conformance.generate import golden_cases
from isthmus.conformance.invalid import invalid_calls
from isthmus.drivers.driver import Driver
from isthmus.drivers.interface import Status
from isthmus.opset import operators, schema_of
from tests.helpers.conformance_jobs import judge_case

LIBRARY = """
import numpy as np
from isthmus.drivers import find
from isthmus.drivers.driver import Driver
from isthmus.opset.dtypes import ALL
from isthmus.opset.library import Library

library = Library("selects", "for the tests")
driver = Driver(find("host").candidates[0].path, "host")


@library.operator("aten::index_select", dtypes=ALL, strided=True, host=HOST)
def select(self, dim, index, out, context):
    driver.stream_synchronize(context.stream or 0)
    size = self.shape[dim] if self.ndim else 1
    BODY
    out[...] = np.take(self, index, dim) if self.ndim else self
"""
CHECKED = "if index.size and (index.min() < 0 or index.max() >= size): raise IndexError('out of range')"
BODIES = {
    "checks": CHECKED,
    "wraps": "index = index % size if size else index",
    "clamps": "index = np.clip(index, 0, size - 1)",
    "fails its stream": CHECKED.replace(
        "raise IndexError('out of range')", "return driver.failures.append(1)"
    ),
    "only checks the upper end": "if index.size and index.max() >= size: raise IndexError('out of range')",
}


@pytest.fixture(scope="module")
def case() -> Case:
    return next(golden_cases(operators()["aten::index_select"], dtypes=("float32",)))


def outcome_of(case: Case, folder: Path, body: str, host: bool = False) -> Outcome:
    file = folder / "selects.py"
    file.write_text(LIBRARY.replace("BODY", BODIES[body]).replace("HOST", str(host)))
    return judge_case(file, case)


def test_a_kernel_that_refuses_them_passes(case: Case, tmp_path: Path) -> None:
    assert outcome_of(case, tmp_path, "checks").message == ""


@pytest.mark.parametrize("body", ["wraps", "clamps", "only checks the upper end"])
def test_a_kernel_that_accepts_one_fails(case: Case, tmp_path: Path, body: str) -> None:
    outcome = outcome_of(case, tmp_path, body)
    assert outcome.status == "failed"
    assert outcome.message == "index with the index -1 into a size of 5: accepted, expected an error"


def test_a_failure_that_a_query_returns_in_place_of_a_synchronization_counts(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []
    status = Driver.status

    def asked(driver: Driver, function: str, *arguments: Any) -> Status:
        if function == "stream_query" and failures:
            failures.pop()
            return Status.INVALID_ARGUMENT
        return status(driver, function, *arguments)

    monkeypatch.setattr(Driver, "status", asked)
    monkeypatch.setattr(Driver, "failures", failures, raising=False)
    assert outcome_of(case, tmp_path, "fails its stream").message == ""


def test_a_kernel_in_the_calling_thread_is_not_exempt(case: Case, tmp_path: Path) -> None:
    outcome = outcome_of(case, tmp_path, "wraps", host=True)
    assert outcome.message == "index with the index -1 into a size of 5: accepted, expected an error"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("aten::index.Tensor", "float32"),
        ("aten::nll_loss_forward", "float32"),
        ("aten::embedding_dense_backward", "float32"),
        ("aten::max_pool2d_with_indices_backward", "float32"),
        ("isthmus::scatter_rows", "float32"),
    ],
)
def test_each_changes_one_index_to_one_that_pytorch_refuses(name: str, dtype: str) -> None:
    schema = schema_of(name)
    given = next(golden_cases(operators()[name], dtypes=(dtype,)))
    calls = list(invalid_calls(schema, given))
    assert len(calls) >= (3 if "embedding" in name else 4)  # -1 is the padding of no row
    for text, call in calls:
        different = [
            (one, other)
            for one, other in zip(_tensors(given), _tensors(call), strict=True)
            if not np.array_equal(one.storage, other.storage, equal_nan=one.storage.dtype.kind == "f")
        ]
        assert len(different) == 1, text
        assert np.count_nonzero(different[0][0].storage != different[0][1].storage) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aten::argmax", "self of shape [3, 0]"),
        ("aten::mm", "mat2 of dtype float64 beside another"),
        ("aten::bernoulli_.float", "p = 1.5"),
    ],
)
def test_other_calls_that_must_fail(name: str, expected: str) -> None:
    cases = golden_cases(operators()[name], dtypes=("float32",))
    assert any(expected == text for case in cases for text, _ in invalid_calls(schema_of(name), case))


def _tensors(case: Case) -> list[Tensor]:
    flat = [x for a in case.arguments for x in (a if isinstance(a, (list, tuple)) else [a])]
    return [x for x in flat if isinstance(x, Tensor)]
