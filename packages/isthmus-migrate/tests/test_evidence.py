"""Conversion by the record of a run: what it shows decides places that the source leaves open."""

from __future__ import annotations

import dataclasses
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from isthmus_common.application import app
from isthmus_migrate.flow.run_record import check
from isthmus_migrate.source.files import tree
from isthmus_migrate.trace.evidence import load
from tests.helpers.command import isthmus

FILES = {
    "train.py": """
        import importlib
        import sys

        import torch

        import batches

        é, place = 0, "cuda"  # device
        kernel = "cuda"  # word
        helpers = importlib.import_module("helpers")
        x = helpers.on(place)
        print(helpers.name(kernel))
        if helpers.kind(x) == "cuda":  # compared device
            print("on the accelerator")
        if helpers.name(kernel) == "cuda":  # compared word
            print("kernel")
        data = helpers.moved(batches.Batch(), x)
        unused = lambda: helpers.on("cuda")  # not executed
    """,
    "helpers.py": """
        import torch


        def on(what):
            return torch.zeros(2, device=what)


        def name(what):
            return what


        def kind(x):
            return x.device.type


        def moved(batch, x):
            batch.cuda()  # own
            return x.cuda()  # tensor
    """,
    "batches.py": """
        class Batch:
            def cuda(self):
                return "a batch"
    """,
    "stale.py": """
        import torch
        import helpers

        y = torch.zeros(1).cuda()
    """,
}


class Project(NamedTuple):
    folder: Path
    record: Path


def run(command: str, *arguments: object) -> Any:
    return CliRunner().invoke(app, ["migrate", command, *map(str, arguments)])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip())
    record = tmp_path_factory.mktemp("record") / "evidence.json"
    path = os.environ.get("PYTHONPATH", "")
    done = isthmus("migrate", "trace", "-o", record, folder / "train.py", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    yield Project(folder, record)


def ends(project: Project, *arguments: object) -> dict[str, tuple[str, str]]:
    """Return the end and evidence of the finding on each line with a comment."""
    result = run("analyse", "--no-probe", "--all", "--format", "json", project.folder, *arguments)
    found: dict[str, tuple[str, str]] = {}
    for each in json.loads(result.stdout)["findings"]:
        line = (project.folder / each["path"]).read_text().splitlines()[each["line"] - 1]
        if "  # " in line:
            found[line.partition("  # ")[2]] = each["severity"], each["evidence"]
    return found


def test_the_source_alone_leaves_the_places_open(project: Project) -> None:
    assert {name: end for name, (end, _) in ends(project).items()} == {
        "device": "review",
        "word": "review",
        "compared device": "review",  # targets of importlib are unknown
        "compared word": "review",
        "not executed": "review",
        "own": "review",
        "tensor": "review",
    }


def test_the_record_decides_what_was_executed(project: Project) -> None:
    found = ends(project, "--evidence", project.record)
    assert found == {
        "device": ("automatic", "recorded run: reached torch.zeros 1 time"),
        "word": ("none", "recorded run: was executed 1 time, and was never a device"),
        "compared device": ("automatic", "recorded run: was a device type 1 time"),
        "compared word": ("none", "recorded run: was executed 1 time, and was never a device"),
        "not executed": ("review", ""),
        "own": ("none", "recorded run: called batches.Batch.cuda 1 time"),
        "tensor": ("automatic", "recorded run: called torch.Tensor.cuda 1 time"),
    }


def test_the_conversion_and_its_log_rest_on_the_record(project: Project, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    patch = run("convert", project.folder, "--evidence", project.record, "--log", log).stdout
    for line in (
        "+é, place = 0, DEVICE.type  # device",
        '+if helpers.kind(x) == DEVICE.type != "cpu":  # compared device',
        "+    return x.to(DEVICE)  # tensor",
    ):
        assert line in patch
    assert "batch.to" not in patch
    assert "kernel = DEVICE" not in patch
    assert {"recorded run: reached torch.zeros 1 time", "recorded run: called torch.Tensor.cuda 1 time"} <= {
        each["evidence"] for each in json.loads(log.read_text())["changes"]
    }
    assert "+" not in run("convert", "--ignore", "IM101", project.folder).stdout


def test_a_run_that_failed_shows_devices_but_not_words(project: Project, tmp_path: Path) -> None:
    failed = tmp_path / "failed.json"
    failed.write_text(dataclasses.replace(load(project.record), status=1).text())
    found = ends(project, "--evidence", failed)
    assert (found["device"][0], found["word"][0]) == ("automatic", "review")


def test_a_changed_file_is_refused_and_the_rest_goes_on(project: Project, tmp_path: Path) -> None:
    before = (project.folder / "helpers.py").read_text()
    (project.folder / "helpers.py").write_text(f"{before}# changed\n")
    try:
        result = run("convert", project.folder, "--evidence", project.record)
    finally:
        (project.folder / "helpers.py").write_text(before)
    said = "helpers.py: changed since it was traced; run `isthmus migrate trace` again"
    assert result.stderr.splitlines()[0] == f"isthmus: {project.record}: {said}"
    assert result.stderr.count("changed since") == 1
    assert "+é, place = 0, DEVICE.type" in result.stdout
    assert "return x.to(DEVICE)" not in result.stdout


def test_a_record_of_another_project_is_one_line(project: Project, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("x.cuda()\n")
    result = run("convert", tmp_path / "other.py", "--evidence", project.record)
    said = f"the record has none of these files; it is of a run in {project.folder}"
    assert result.stderr.startswith(f"isthmus: {project.record}: {said}\n")
    (tmp_path / "broken.json").write_text("{}")
    result = run("analyse", tmp_path, "--evidence", tmp_path / "broken.json")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "version None, expected 1; run `isthmus migrate trace` again" in result.stderr


def test_only_files_of_the_project_are_kept(project: Project) -> None:
    checked = check(load(project.record), tree([project.folder / "helpers.py"]).files)
    assert [Path(name).name for name in checked.evidence.files] == ["helpers.py"]
    assert not checked.refused
