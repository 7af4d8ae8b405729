"""Helpers for tests of the analysis."""

import json
from pathlib import Path
from typing import Any

from isthmus_migrate.analyse.engine import examine
from isthmus_migrate.flow.study import surroundings_of_module
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.parse import parse


def source(text: str, name: str = "train.py") -> Source:
    kind = Kind.NOTEBOOK if name.endswith(".ipynb") else Kind.PYTHON
    return Source(Path(name), name, kind, text.encode(), text, "utf-8")


def findings(text: str, name: str = "train.py") -> list[Finding]:
    """Return what is found in a valid source that is a project of its own, but what is right as it is."""
    module, problems = parse(source(text, name))
    assert module
    assert not problems
    module.around = surroundings_of_module(module)
    return [each for each in examine(module) if each.severity is not Severity.NONE]


def code_subject_line(text: str) -> set[tuple[str, str, int]]:
    """Code, subject and line."""
    return {(finding.code, finding.subject, finding.line) for finding in findings(text)}


def notebook(*cells: str | dict[str, Any]) -> str:
    """Text of a notebook with these code cells."""
    made = [
        cell if isinstance(cell, dict) else {"cell_type": "code", "source": cell.splitlines(keepends=True)}
        for cell in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
