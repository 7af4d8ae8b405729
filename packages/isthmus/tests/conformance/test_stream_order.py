"""Kernels that enqueue: what the suite sees only while the stream works, or through later work of the stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.conformance import executor as module
from isthmus.conformance.device import Device
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Reader
from isthmus.conformance.workspace import Workspace
from tests.helpers.conformance_jobs import judge_case
from tests.helpers.enqueued_libraries import write_enqueued

LATE = ("reads_its_inputs_late", "reads_its_workspace_late")


def outcome_of(golden: Path, folder: Path, name: str) -> Outcome:
    """Judge one case of a library's kernel."""
    return judge_case(write_enqueued(folder, name), Reader(golden).cases("aten::add.Tensor")[0])


def test_a_right_kernel_passes(golden: Path, tmp_path: Path) -> None:
    assert outcome_of(golden, tmp_path, "right").message == ""


def test_an_input_that_is_restored_in_the_stream_is_seen(golden: Path, tmp_path: Path) -> None:
    outcome = outcome_of(golden, tmp_path, "restores_its_input")
    assert outcome.status == "failed"
    assert outcome.message.startswith("the input other was modified: ")
    assert outcome.message.endswith("(during the call)")


def test_nothing_else_sees_it(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "watch", lambda *_: "")
    assert outcome_of(golden, tmp_path, "restores_its_input").status == "passed"


@pytest.mark.parametrize("name", LATE)
def test_a_kernel_that_reads_after_later_work_is_seen(golden: Path, tmp_path: Path, name: str) -> None:
    outcome = outcome_of(golden, tmp_path, name)
    assert outcome.status == "failed"
    assert outcome.message == (
        "out: 20 elements changed after the stream had read them: it still works when later work of its stream runs"
    )


@pytest.mark.parametrize("name", LATE)
def test_only_overwriting_shows_it(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Device, "fill", lambda *_: None)
    monkeypatch.setattr(Workspace, "overwrite", lambda *_: None)
    assert outcome_of(golden, tmp_path, name).status == "passed"
