"""The cases through PyTorch's operators on chip tensors: routes other than kernels are judged too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import isthmus.drivers
from isthmus.conformance.generate import digest
from isthmus.conformance.golden import Case, Expected, OperatorEntry, Reader, Tensor, Writer, write_cases
from isthmus.opset import schema_of
from tests.helpers.conformance_data import HALF_ULP, write_golden
from tests.helpers.conformance_jobs import conform


def test_the_delegate_route_passes(tmp_path: Path) -> None:
    golden = write_golden(tmp_path / "golden")
    options = ("--golden", golden, "--operators", "aten::*", "--output", tmp_path)
    done = conform("run", "--driver", "host", "--through", "pytorch", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((tmp_path / "report.json").read_text())
    judged = data["results"]
    assert {row["operator"] for row in judged} == set(Reader(golden).operators)
    assert {(row["library"], row["status"]) for row in judged} == {("pytorch", "passed")}


def test_copies_to_the_cpu_do_not_pass_an_empty_chip(tmp_path: Path, golden: Path) -> None:
    done = conform("run", "--driver", _empty_chip(tmp_path), "--golden", golden, "--tier", "by hand")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not run: 36 cases: no route but copies to the CPU" in done.stdout


@pytest.mark.full
def test_results_that_differ_from_the_reference_fail(tmp_path: Path) -> None:
    golden = write_golden(tmp_path / "golden")
    cases = [case for case in Reader(golden).cases("aten::mul.Tensor") if case.id == "contiguous"]
    wrong = Writer(tmp_path / "wrong", digest(), 0)
    files = write_cases(tmp_path / "wrong", "aten::mul.Tensor", map(_altered, cases))
    wrong.operator(
        "aten::mul.Tensor", OperatorEntry(schema_of("aten::mul.Tensor").text, "pointwise", len(cases)), files
    )
    wrong.close()
    options = ("--golden", tmp_path / "wrong", "--operators", "aten::*")
    done = conform("run", "--driver", "host", "--through", "pytorch", *options)
    assert done.returncode == 1
    assert "1 of 20 elements are wrong; [1, 1]" in done.stderr
    # What the CPU computes on copies says nothing of the chip.
    done = conform("run", "--driver", _empty_chip(tmp_path), *options)
    assert done.returncode == 3 and "FAILED" not in done.stderr, done.stdout + done.stderr


def _empty_chip(folder: Path) -> Path:
    """Describe the host chip without a route but copies to the CPU."""
    library = Path(isthmus.drivers.__file__).parent / "host" / "libisthmus_host.so"
    chip = folder / "driver.toml"
    chip.write_text(f'name = "empty"\nlibrary = "{library}"\ndelegate = "none"\n')
    return chip


def _altered(case: Case) -> Case:
    """The case with another reference in one element."""
    (expected,) = case.outputs
    assert isinstance(expected, Expected)
    reference = expected.reference.copy()
    reference[1, 1] += 3
    arguments = [value for value in case.arguments if isinstance(value, Tensor)]
    altered = Expected(expected.dtype, expected.shape, reference)
    return Case(case.id, case.operator, case.dtype, case.layout, arguments, [altered], HALF_ULP)
