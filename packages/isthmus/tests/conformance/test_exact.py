"""Results computed in float64 and rounded once pass every case: no false alarm."""

from __future__ import annotations

import pytest

from tests.helpers.conformance_jobs import conform
from tools.repository import ROOT

LIBRARY = ROOT / "tests" / "helpers" / "exact_library.py"


@pytest.mark.full
@pytest.mark.parametrize("operators", ["aten::_softmax,aten::native_layer_norm,aten::sub.Tensor", "*"])
def test_the_reference_passes(operators: str) -> None:
    done = conform("run", "--driver", "host", "--library", LIBRARY, "--operators", operators, "--jobs", 1)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("passed: driver host")
