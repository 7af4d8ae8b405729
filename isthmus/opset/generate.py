"""Regenerates what is made from the opset: ``python -m isthmus.opset.generate [--check]``.

schemas.json (needs PyTorch's torchgen) and the pages of docs/operators. ``--check`` writes nothing, names what is
stale and fails if anything is.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from isthmus import opset
from isthmus.opset import pages, torchgen_schemas

HERE = Path(__file__).parent
MODELS = HERE / "models.json"


def generated() -> dict[Path, str]:
    """Every generated file with what it should contain."""
    names = [o.name for family in opset.FAMILIES for o in _family(family)]
    models = json.loads(MODELS.read_text())
    table = torchgen_schemas.records(names, models)
    files = {HERE / "schemas.json": torchgen_schemas.text(table)}
    folder = HERE.parents[1] / "docs" / "operators"
    return files | {folder / name: text for name, text in pages.pages(table, models).items()}


def _family(name: str) -> list[opset.Operator]:
    return importlib.import_module(f"isthmus.opset.families.{name}").OPERATORS


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(text)
    beside.chmod(0o640)
    beside.replace(file)


def main(arguments: list[str]) -> int:
    """Command line; returns the exit status."""
    files = generated()
    stale = [file for file, text in files.items() if not file.exists() or file.read_text() != text]
    for file in stale:
        print(f"{'stale' if '--check' in arguments else 'written'}: {file.relative_to(HERE.parents[1])}")
    if "--check" in arguments:
        return bool(stale)
    for file in stale:
        _write(file, files[file])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
