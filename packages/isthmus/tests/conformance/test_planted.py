"""Right kernels with one mistake each, of the kinds that real kernels have, are caught by the derived cases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.conformance_jobs import conform
from tests.helpers.planted import PLANTS
from tools.repository import ROOT


@pytest.fixture(scope="module")
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Failed cases of each mistaken library of this run."""
    folder = tmp_path_factory.mktemp("planted")
    items = (item for item in request.session.items if item.path == request.path)
    names = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    operators = ",".join({PLANTS[name][0] for name in names})
    made = conform("generate", "--output", folder / "golden", "--operators", operators)
    assert made.returncode == 0, made.stderr
    options: list[object] = []
    for name in names:
        file = folder / f"{name}.py"
        file.write_text(f"from tests.helpers.planted import library_of\n\nlibrary = library_of({name!r})\n")
        options += ["--library", file]
    options += ["--golden", folder / "golden", "--output", folder, "--operators", operators]
    done = conform("run", "--driver", "numpy", *options, PYTHONPATH=str(ROOT))
    assert done.returncode == 1, done.stderr
    rows = json.loads((folder / "report.json").read_text())["results"]
    assert {row["library"] for row in rows} >= set(names)
    return {name: [r for r in rows if r["library"] == name and r["status"] == "failed"] for name in names}


@pytest.mark.full
@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_caught(failures: dict[str, list[dict[str, Any]]], name: str) -> None:
    assert failures[name], f"{PLANTS[name][0]} with {name} passed"


def test_there_are_mistakes_of_every_class() -> None:
    assert len(PLANTS) >= 28
