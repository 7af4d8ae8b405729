"""Planted faults are named, and jobs that only compute otherwise are not accused."""

import contextlib
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import isthmus.accuracy
from isthmus.accuracy import report
from isthmus.accuracy.comparing import compare
from tests.accuracy import llama
from tests.accuracy.faults import FAULTS, set_attribute
from tests.accuracy.parallel import JOBS
from tests.accuracy.variants import VARIANTS

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
SITES = {
    fault.name: site for fault, site in zip(FAULTS, random.Random(SEED).choices((0, 1), k=99), strict=False)
}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The dumps of the right job, by kind."""
    folder = tmp_path_factory.mktemp("right")
    for kind in ("statistics", "tensors"):
        with isthmus.accuracy.dump(folder / kind, kind):
            llama.train(2)
    return folder


def packet(call):
    return call.operator.partition("::")[2].partition(".")[0]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named(fault, right, tmp_path):
    check_fault(fault, right, tmp_path, "statistics")


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named_by_values(fault, right, tmp_path):
    check_fault(fault, right, tmp_path, "tensors")


def check_fault(fault, right, tmp_path, kind):
    site = SITES[fault.name]
    with contextlib.ExitStack() as stack:
        hooks = [] if fault.is_context else [lambda model: fault.plant(model, site)]
        if fault.is_context:
            stack.enter_context(fault.plant(None, site))
        with isthmus.accuracy.dump(tmp_path, kind):
            llama.train(2, hooks=hooks)
    found = compare(right / kind, tmp_path)
    assert found.guilty is not None
    text = report.accusation(found.guilty)
    assert packet(found.guilty.call) in fault.calls.split(), text
    if fault.module is not None:
        assert found.guilty.call.place.module.endswith(fault.module.format(n=site)), text
    assert ":" in found.guilty.call.at or found.guilty.call.operator.startswith("optimizer::")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", VARIANTS)
def test_right_job_is_not_accused(name, right, tmp_path):
    with isthmus.accuracy.dump(tmp_path):
        VARIANTS[name]()
    found = compare(right / "statistics", tmp_path)
    assert found.guilty is None, report.accusation(found.guilty)
    assert found.counts["equal"] + found.counts["rounding"] > 300


# ---- Two ranks

SHORT = ("tp", "dp", "tp_missing_all_reduce", "dp_wrong_reduction", "tp_epsilon_differs")


def run_ranks(folder, kind, names):
    command = [sys.executable, "-m", "tests.accuracy.parallel"]
    ranks = [
        subprocess.Popen([*command, str(rank), str(folder / "store"), str(folder), kind, *names], cwd=ROOT)
        for rank in (0, 1)
    ]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    unclipped = set_attribute(torch.nn.utils, "clip_grad_norm_", lambda *_: None)
    with unclipped, isthmus.accuracy.dump(folder / "one", kind):
        llama.train(2)
    return folder


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return run_ranks(tmp_path_factory.mktemp("ranks"), "statistics", SHORT)


def accused(a, b, calls):
    found = compare(a, b)
    if not calls:
        assert found.guilty is None, report.accusation(found.guilty)
        return
    assert found.guilty is not None
    assert packet(found.guilty.call) in calls.split(), report.accusation(found.guilty)


@pytest.mark.parametrize("name", SHORT)
def test_two_ranks(name, two_ranks):
    accused(two_ranks / "one", two_ranks / name, JOBS[name].against_one)
    if name[2:]:
        accused(two_ranks / name[:2], two_ranks / name, JOBS[name].calls)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["statistics", "tensors"])
def test_all_faults_of_two_ranks(kind, tmp_path):
    run_ranks(tmp_path, kind, JOBS)
    for name, job in JOBS.items():
        accused(tmp_path / "one", tmp_path / name, job.against_one)
        accused(tmp_path / name[:2], tmp_path / name, job.calls)


def test_results_of_collectives_are_recorded(two_ranks):
    from isthmus.accuracy import dumps

    ranks = dumps.read(two_ranks / "tp")
    first = [next(c for c in rank.calls if c.operator == "c10d::allreduce_") for rank in ranks]
    assert first[0].group == (0, 1)
    assert first[0].arguments["reduce_op"] == "SUM"
    results = [call.outputs["tensors[0]"].statistics for call in first]
    terms = [call.inputs["tensors[0]"].statistics for call in first]
    assert results[0] == results[1]
    assert results[0].mean == pytest.approx(terms[0].mean + terms[1].mean, abs=1e-6)


# ---- Reports


def test_page_and_json_name_the_call(right, tmp_path):
    def change(model):
        model.layers[1].norm2.eps = 1e-6

    with isthmus.accuracy.dump(tmp_path / "b"):
        llama.train(1, hooks=[change])
    found = compare(right / "statistics", tmp_path / "b")
    first = report.as_json(found)["first"]
    assert (first["operator"], first["module"]) == ("aten::add.Tensor", "Llama.layers.1.norm2")
    assert first["inputs_equal"]
    assert first["line"].startswith("llama.py:")
    report.write_page(tmp_path / "page.html", found)
    page = (tmp_path / "page.html").read_text()
    assert "other is 1e-05 in A and 1e-06 in B" in page
    assert "<script" not in page
    assert page.count('guilty"') == 1
