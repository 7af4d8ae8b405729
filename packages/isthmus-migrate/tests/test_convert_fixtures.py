"""Every rule converts its fixtures as expected, and its output uses names that exist in PyTorch."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from isthmus_migrate.convert.engine import Result, convert_source
from isthmus_migrate.rules import registry
from isthmus_migrate.source.findings import Severity

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "before.py").exists())


def _read(case: str, name: str) -> str:
    return (FIXTURES / case / name).read_bytes().decode()


def _convert(case: str, name: str) -> Result:
    """Convert a file of a fixture; rules enabled by an option run only on their own fixtures."""
    options = [rule.option for rule in registry.all_rules() if rule.option and case.startswith(rule.name)]
    return convert_source(_read(case, name), name, options=options)


@pytest.mark.parametrize("case", CASES)
def test_before_becomes_after(case: str) -> None:
    result = _convert(case, "before.py")
    assert result.text == _read(case, "after.py")
    assert [each for each in result.findings if each.severity is Severity.MANUAL] == []


@pytest.mark.parametrize("case", CASES)
def test_changes_are_logged_where_they_were_made(case: str) -> None:
    before, after = _read(case, "before.py"), _read(case, "after.py")
    result = _convert(case, "before.py")
    codes = {rule.code for rule in registry.all_rules()}
    lines = range(1, len(before.splitlines()) + 1)
    assert result.changes or after == before
    for change in result.changes:
        assert change.code in codes
        assert change.line in lines
        assert change.end_line in lines
        assert change.message


@pytest.mark.parametrize("case", CASES)
def test_every_name_of_pytorch_exists(case: str) -> None:
    missing = sorted({name for name in _torch_names(_read(case, "after.py")) if not _exists(name)})
    assert not missing


def test_every_rule_that_changes_sources_has_a_fixture() -> None:
    used = {change.code for case in CASES for change in _convert(case, "before.py").changes}
    assert used == {rule.code for rule in registry.all_rules() if rule.before != rule.after}


def _torch_names(source: str) -> Iterator[str]:
    """Dotted names that begin with torch, and what is imported from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name.startswith("torch.") and name.replace(".", "").isidentifier():
                yield name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _exists(name: str) -> bool:
    owner: object = torch
    path = "torch"
    for part in name.split(".")[1:]:
        path += f".{part}"
        if hasattr(owner, part):
            owner = getattr(owner, part)
            continue
        try:
            owner = importlib.import_module(path)
        except ImportError:
            return False
    return True
