"""Operators that samplers of tokens call, without a fallback to the CPU."""

from __future__ import annotations

from tests.helpers.children import output
from tools.repository import ROOT

CHECK = "from tests.helpers import sampling_operators; sampling_operators.check_all(); print('checked')"


def test_on_the_numpy_chip() -> None:
    assert output(CHECK, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1", PYTHONPATH=str(ROOT)) == "checked"
