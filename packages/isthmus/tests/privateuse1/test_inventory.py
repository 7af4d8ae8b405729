"""Every upstream test has a counterpart here or a reason why not."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.privateuse1 import COVERED
from tests.privateuse1.inventory import GRAPHS_PAGE, REASONS, UPSTREAM, graphs_page


def upstream() -> list[str]:
    return [f"{file}.{name}" for file, names in UPSTREAM.items() for name in names.split()]


def test_every_upstream_test_has_a_counterpart_or_a_reason():
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.privateuse1.{path.stem}")
    names = upstream()
    assert len(names) == len(set(names))
    assert sorted(COVERED - set(names)) == [], "counterparts of tests that upstream does not have"
    assert sorted(REASONS.keys() - set(names)) == [], "reasons for tests that upstream does not have"
    assert sorted(COVERED & REASONS.keys()) == []
    assert sorted(set(names) - COVERED - REASONS.keys()) == []


def test_the_page_of_the_graph_tests_is_generated():
    assert GRAPHS_PAGE.read_text() == graphs_page(), "run `python -m tests.privateuse1.inventory`"
