"""Mutation testing: mutants are as described, and the suite detects them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from isthmus import opset
from isthmus.conformance.generate import generate
from isthmus.conformance.golden import Reader
from tests.helpers.conformance_data import write_golden
from tools.mutation import equivalent, reports, trial
from tools.mutation.__main__ import app
from tools.mutation.results import toward_zero
from tools.mutation.source import MUTATIONS as SOURCE_MUTATIONS
from tools.mutation.source import Source

ROOT = Path(__file__).parents[2]
# A sum, a product, a norm with gradients, a list, random numbers, moved bits, a choice.
SOME = (
    "aten::add.Tensor,aten::addmm,aten::native_layer_norm,aten::native_layer_norm_backward,aten::uniform_,"
    "aten::_foreach_addcmul.ScalarList,aten::gather,aten::index_put"
)
LIBRARY = """
import numpy as np
from isthmus.opset.dtypes import FLOATS
from isthmus.opset.library import Library

library = Library("small")

@library.operator("aten::sub.Tensor", dtypes=FLOATS)
def subtract(x, y, alpha, out):
    out[...] = x - alpha * y

@library.operator("aten::rsqrt", dtypes=FLOATS)
def rsqrt(x, out):
    out[...] = 1 / np.sqrt(x + 0.5)
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(write_golden(tmp_path_factory.mktemp("golden")))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The opset's own cases of a few operators."""
    folder = tmp_path_factory.mktemp("samples")
    generate(folder, SOME)
    return Reader(folder)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    file = tmp_path / "small.py"
    file.write_text(LIBRARY)
    return Source(file)


def subtract(source: Source) -> list[float]:
    out = np.zeros(2)
    source.library.entries["aten::sub.Tensor"].function(np.array([5.0, 1.0]), np.array([2.0, 3.0]), 2.0, out)
    return [float(x) for x in out]


def test_each_source_mutant_is_active_alone(source: Source) -> None:
    right = subtract(source)
    assert right == [1.0, -5.0]
    found = {}
    for site in source.sites:
        if site.number in source.reached:
            source.active = site.number
            found[site.mutation, site.after] = subtract(source)
    assert found["operator replaced", "x + alpha * y"] == [9.0, 7.0]
    assert found["source operands swapped", "alpha * y - x"] == [-1.0, 5.0]
    assert found["term dropped", "x"] == [5.0, 1.0]
    assert found["term dropped", "y"] == [3.0, -2.0]
    assert found["statement dropped", ""] == [0.0, 0.0]
    source.active = -1
    assert subtract(source) == right


def test_reached_mutants_are_recorded(source: Source) -> None:
    subtract(source)
    reached = {site.before for site in source.sites if site.number in source.reached}
    assert "x - alpha * y" in reached
    assert "np.sqrt(x + 0.5)" not in reached


def test_eps_moves_outside_the_root(source: Source) -> None:
    (site,) = [s for s in source.sites if s.mutation == "eps outside the root"]
    source.active, out = site.number, np.zeros(1)
    source.library.entries["aten::rsqrt"].function(np.array([4.0]), out)
    assert out[0] == 1 / 2.5


def test_truncation_is_toward_zero() -> None:
    values = np.array([1 + 2**-8 + 2**-9, -1 - 2**-7 - 2**-9, 1e39, -np.inf, 2.0**-140])
    expected = [1.0, -1 - 2**-7, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), -np.inf, 0.0]
    assert toward_zero(values, "bfloat16").astype(np.float64).tolist() == expected


def test_every_family_of_the_opset_has_kernels_to_mutate() -> None:
    library = trial.load_source().library.entries
    covered = {operator.family for name, operator in opset.operators().items() if name in library}
    assert covered == set(opset.FAMILIES)


def test_the_numbers_of_mutations_and_reports() -> None:
    names = [mutation.name for mutation in trial.MUTATIONS] + list(SOURCE_MUTATIONS)
    assert len(set(names)) == len(names) >= 12
    sources = {report.source for report in reports.REPORTS}
    assert len(sources) >= 20
    assert all("/" in source and source.partition("#")[2].isdigit() for source in sources)
    assert all(name in opset.operators() for report in reports.REPORTS for name in report.operators)


def finished(job: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.mutation_jobs", job, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def outcome(job: str, folder: Path) -> dict[str, Any]:
    done = finished(job, folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_suite_notices_one_mistake_of_each_kind(samples: Reader) -> None:
    score = outcome("one_of_each", samples.folder)
    assert score["false_alarms"] == []
    # Some source mutants are correct for these operators and wrong for others that share the line.
    kinds = {mutation.name for mutation in trial.MUTATIONS}
    planted = [result for result in score["results"] if result["mutation"] in kinds]
    assert [r for r in planted if r["status"] == "survived"] == []
    assert len(planted) >= 25
    assert score["score"] >= 0.9


def test_a_mutant_that_kills_the_process_is_caught_and_the_next_is_tried(golden: Reader) -> None:
    results = outcome("crashes", golden.folder)["results"]
    assert [r["status"] for r in results] == ["caught", "caught", "survived", "caught"]
    assert "exit code -6" in results[0]["message"]
    assert results[1]["raised"] and "a bug of the kernel" in results[1]["message"]
    assert results[2]["message"] == "bit-identical in every case"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("broken_bench", "MutationError: aten::mul.Tensor: KeyError: 'bench'"),
        ("with_pytorch", "MutationError: PyTorch is loaded in this process"),
    ],
)
def test_a_broken_bench_is_not_a_success(golden: Reader, job: str, message: str) -> None:
    done = finished(job, golden.folder)
    assert done.returncode == 1
    assert message in done.stderr


def test_a_right_kernel_that_is_refused_is_a_false_alarm(golden: Reader) -> None:
    assert outcome("refusing_suite", golden.folder)["false_alarms"] == ["aten::cat: refused"]


def test_proofs_are_sentences_about_operators_that_exist() -> None:
    names = list(opset.operators())
    for entry in equivalent.EQUIVALENCES:
        assert len(entry.proof.split()) >= 3
        assert bool(equivalent.names(entry, names)) == bool(entry.operators), entry.operators


def test_the_command_writes_a_score(tmp_path: Path, samples: Reader) -> None:
    file = tmp_path / "mutation.json"
    command = [sys.executable, "-m", "tools.mutation", "--golden", str(samples.folder)]
    command += ["--operators", "aten::addmm", "--output", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    score = json.loads(file.read_text())
    assert done.returncode == (0 if score["score"] >= 0.95 else 1), done.stderr
    assert score["mutants"] == score["caught"] + score["survived"] + score["equivalent"] > 40
    assert file.stat().st_mode & 0o777 == 0o640
    assert "all" in done.stdout


def test_wrong_input_ends_in_one_line(samples: Reader) -> None:
    for option, value in (("--operators", "aten::none"), ("--family", "none")):
        result = CliRunner().invoke(app, ["--golden", str(samples.folder), option, value])
        assert result.exit_code == 2
        assert f"{option} {value}: unknown" in result.output
