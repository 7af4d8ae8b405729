"""Planted faults are named, and jobs that only compute otherwise are not accused."""

import math
from pathlib import Path

import pytest
import torch

import isthmus_diagnostics.accuracy
from isthmus_diagnostics.accuracy import gathering, report
from isthmus_diagnostics.accuracy.comparing import compare
from isthmus_diagnostics.accuracy.ordering import clocks
from isthmus_diagnostics.accuracy.reading import Content, Place, Rank, Recorded
from isthmus_diagnostics.accuracy.statistics import Statistics
from tests.accuracy import llama
from tests.accuracy.faults import FAULTS, planted, sites
from tests.accuracy.jobs import JOBS, all_jobs, is_named, judged, run
from tests.accuracy.variants import VARIANTS


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The dumps of the right job, by kind."""
    folder = tmp_path_factory.mktemp("right")
    for kind in ("statistics", "tensors"):
        with isthmus_diagnostics.accuracy.dump(folder / kind, kind):
            llama.train(2)
    return folder


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named(fault, right, tmp_path):
    check_fault(fault, right, tmp_path, "statistics")


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named_by_values(fault, right, tmp_path):
    check_fault(fault, right, tmp_path, "tensors")


def check_fault(fault, right, tmp_path, kind):
    with planted(fault) as hooks, isthmus_diagnostics.accuracy.dump(tmp_path, kind):
        llama.train(2, hooks=hooks)
    found = compare(right / kind, tmp_path)
    module = fault.module and fault.module.format(n=sites()[fault.name])
    assert is_named(found, fault.calls, module), report.as_text(found)
    assert ":" in found.guilty.call.at or found.guilty.call.operator.startswith("optimizer::")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VARIANTS)
def test_right_job_is_not_accused(name, right, tmp_path):
    with isthmus_diagnostics.accuracy.dump(tmp_path):
        VARIANTS[name]()
    found = compare(right / "statistics", tmp_path)
    assert found.guilty is None, report.describe_first_difference(found.guilty)
    assert found.counts["equal"] + found.counts["rounding"] > 300


# ---- Several ranks

SHORT = ("one", "tp", "dp", "tp_missing_all_reduce", "dp_wrong_reduction", "tp_epsilon_differs")


@pytest.fixture(scope="module")
def two_ranks(request, tmp_path_factory):
    """The dumps of the jobs that this run tests, and of those that they are compared with."""
    folder = tmp_path_factory.mktemp("ranks")
    items = [item for item in request.session.items if getattr(item, "function", None) is test_two_ranks]
    jobs = {name: all_jobs()[name] for name in (item.callspec.params["name"] for item in items)}
    names = {"tp", "one", *jobs, *(job.right for job in jobs.values())}
    run(folder, "statistics", [name for name in SHORT if name in names])
    return folder


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SHORT)
def test_two_ranks(name, two_ranks):
    for against, found, right in judged(two_ranks, name):
        assert right, f"{against}: {report.as_text(found)}"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["statistics", "tensors"])
def test_faults_of_several_ranks(kind, tmp_path):
    """At least 95 % of them are named; no right job is accused. Megatron's ranks draw other weights than one rank."""
    names = [name for name in all_jobs() if not name.startswith("megatron")]
    run(tmp_path, kind, names)
    verdicts = {(name, against): right for name in names for against, _, right in judged(tmp_path, name)}
    missed = [pair for pair, right in verdicts.items() if not right]
    assert not [name for name, _ in missed if not JOBS[name].right]
    assert len(missed) <= 0.05 * len(verdicts), missed


def test_results_of_collectives_are_recorded(two_ranks):
    from isthmus_diagnostics.accuracy import dumps

    ranks = dumps.read(two_ranks / "tp")
    first = [next(c for c in rank.calls if c.operator == "c10d::allreduce_") for rank in ranks]
    assert first[0].group == (0, 1)
    assert first[0].arguments["reduce_op"] == "SUM"
    results = [call.outputs["tensors[0]"].statistics for call in first]
    terms = [call.inputs["tensors[0]"].statistics for call in first]
    assert results[0] == results[1]
    assert results[0].mean == pytest.approx(terms[0].mean + terms[1].mean, abs=1e-6)


def rank_of(number: int, *calls: tuple[str, dict[str, int]], ranks: int = 2) -> Rank:
    """A dump of calls with arguments; collectives and messages are of one group."""
    rank = Rank(Path(), number, {})
    for index, (operator, arguments) in enumerate(calls):
        group = tuple(range(ranks)) if operator.startswith("c10d::") else ()
        place = Place(0, "forward", "", 0)
        rank.calls.append(Recorded(index, place, operator, "", "", arguments, {}, {}, group, rank=number))
    return rank


def test_calls_come_after_what_other_ranks_send_and_reduce():
    send, receive = ("c10d::send", {"dst": 1}), ("c10d::recv_", {"src": 0})
    add, reduce = ("aten::add", {}), ("c10d::allreduce_", {})
    first = rank_of(0, add, add, add, send, reduce, add)
    second = rank_of(1, receive, add, reduce)
    times = clocks([first, second])
    sent, received = times[id(first.calls[3])], times[id(second.calls[0])]
    assert sent < received < times[id(second.calls[1])]
    assert times[id(first.calls[5])] > times[id(second.calls[1])]  # through the all-reduce
    assert [times[id(call)] for call in first.calls] == sorted(times[id(call)] for call in first.calls)


def test_incomplete_dumps_are_ordered_too():
    waiting = rank_of(0, ("c10d::recv_", {"src": 1}), ("aten::add", {}))
    other = rank_of(1, ("c10d::allreduce_", {}), ("aten::add", {}))
    assert len(clocks([waiting, other])) == 4


# ---- Reports


def test_page_and_json_name_the_call(right, tmp_path):
    def change(model):
        model.layers[1].norm2.eps = 1e-6

    with isthmus_diagnostics.accuracy.dump(tmp_path / "b"):
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


def test_tensors_of_different_dimensions_are_not_put_together():
    def part(*shape: int) -> Content:
        rank = gathering._Values(torch.ones(shape))
        return Content(1, "float32", shape, Statistics(1, 1, 1, math.prod(shape) ** 0.5), rank, file="values")

    assert gathering.distance([part(5, 3), part(5)], [part(4, 5)]).error == math.inf
    assert gathering.distance([part(5, 3), part(5, 1)], [part(5, 4)]).error == 0
