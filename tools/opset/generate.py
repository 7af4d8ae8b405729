"""Regenerates what is made from the opset: ``python -m tools.opset.generate [--check]``.

schemas.json (needs PyTorch's torchgen), the pages of docs/results/operators and isthmus_ops.h. ``--check``
writes nothing, names what is stale and fails if anything is.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from isthmus import opset
from isthmus._support.files import make_folder, write_file
from isthmus.opset.operator import Operator
from tools.opset import header, pages, torchgen_schemas

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "isthmus" / "opset"
MODELS = FOLDER / "models.json"


def schemas() -> dict[Path, str]:
    """schemas.json with what it should contain."""
    operators = [operator for family in opset.FAMILIES for operator in _family(family)]
    table = torchgen_schemas.records([each.name for each in operators if not each.schema], _models())
    table |= {each.name: _extension(each) for each in operators if each.schema}
    return {FOLDER / "schemas.json": torchgen_schemas.text(table)}


def _extension(operator: Operator) -> dict[str, Any]:
    """The record of an operator that is not PyTorch's own."""
    return {
        "schema": operator.schema,
        "variants": [],
        "tags": [],
        "differentiable": list(operator.differentiable),
        "models": [],
    }


def derived() -> dict[Path, str]:
    """Pages and header, which are made from schemas.json, with what they should contain."""
    folder = ROOT / "docs" / "results" / "operators"
    made = pages.pages(opset.records(), _models())
    return {**{folder / name: text for name, text in made.items()}, header.HEADER: header.opset()}


def _models() -> dict[str, list[str]]:
    return json.loads(MODELS.read_text())


def _family(name: str) -> list[Operator]:
    return importlib.import_module(f"isthmus.opset.families.{name}").OPERATORS


def _update(files: dict[Path, str], check: bool) -> int:
    """Write what is stale, or only name it; returns how many files that are."""
    stale = [file for file, text in files.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        print(f"{'stale' if check else 'written'}: {file.relative_to(ROOT)}")
        if not check:
            make_folder(file.parent)
            write_file(file, files[file].encode())
    return len(stale)


def main(arguments: list[str]) -> int:
    """Command line; returns the exit status."""
    check = "--check" in arguments
    stale = _update(schemas(), check)
    opset.forget()
    stale += _update(derived(), check)
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
