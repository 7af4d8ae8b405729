"""Every upstream test has a counterpart here or a reason why not."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.privateuse1.inventory import ELSEWHERE, GRAPHS_PAGE, REASONS, UPSTREAM, graphs_page


def upstream() -> list[str]:
    return [f"{file}.{name}" for file, names in UPSTREAM.items() for name in names.split()]


def restated() -> set[str]:
    """Return the upstream tests that the decorators ``covers`` of this folder name."""
    trees = (ast.parse(path.read_text()) for path in Path(__file__).parent.glob("test_*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    marks = (list(map(ast.literal_eval, each.args)) for each in calls if ast.unparse(each.func) == "covers")
    return {f"{file}.{name}" for file, *names in marks for name in names}


def test_every_upstream_test_has_a_counterpart_or_a_reason():
    covered = restated() | {name for names in ELSEWHERE.values() for name in names.split()}
    names = upstream()
    assert len(names) == len(set(names))
    assert sorted(covered - set(names)) == [], "counterparts of tests that upstream does not have"
    assert sorted(REASONS.keys() - set(names)) == [], "reasons for tests that upstream does not have"
    assert sorted(covered & REASONS.keys()) == []
    assert sorted(set(names) - covered - REASONS.keys()) == []


def test_counterparts_elsewhere_exist():
    for test in ELSEWHERE:
        file, _, name = test.partition("::")
        assert f"\ndef {name}(" in (Path(__file__).parents[1] / file).read_text(), test


def test_the_page_of_the_graph_tests_is_generated():
    assert GRAPHS_PAGE.read_text() == graphs_page(), "run `python -m tests.privateuse1.inventory`"
