"""Tables of other projects' tests, and the runner of the vendor's, whose processes end and hang."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import types
from datetime import date
from pathlib import Path

import pytest

from tools import suites
from tools.ascend.vendor import runner
from tools.ascend.vendor.page import page
from tools.megatron import unit_page
from tools.megatron.checkout import Job
from tools.mindspeed.checkout import Versions
from tools.mindspeed.page import page as mindspeed_page

TESTS = """
import os, time, pytest
def test_passes(): pass
def test_fails(): assert 1 == 2
def test_ends_the_process(): os._exit(3)
@pytest.mark.skip(reason="no NPU of that kind")
def test_skips(): pass
def test_hangs(): time.sleep(600)
def test_makes_the_process_unusable():
    os.environ["UNUSABLE"] = "1"
    raise RuntimeError("The process exits for this inner error, and the current working operator name is Pad.")
def test_is_last(): assert "UNUSABLE" not in os.environ
"""


def test_a_reason_is_the_first_pattern_that_matches() -> None:
    patterns = {"a": "one", "b": "one|two"}
    assert [suites.reason(text, "failed", patterns) for text in ("one", "two", "x")] == ["a", "b", "other"]
    assert suites.reason("one", "crashed", patterns) == "crashed"


def test_results_of_an_interrupted_run_are_read(tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.write_text('{"file": "a", "tests": {}}\n{"file": "b", "te')
    assert suites.earlier_results(file) == [{"file": "a", "tests": {}}]


def test_the_reason_is_the_error_of_a_rank_before_that_of_torchrun() -> None:
    lines = "E   RuntimeError: torchrun failed", "E   [rank1]: a.NotFoundError: b", "E   x.ChildFailedError:"
    report = types.SimpleNamespace(skipped=False, longrepr="\n".join(lines))
    assert suites.reason_of(report) == "a.NotFoundError: b"


def suite_of(folder: Path) -> runner.Suite:
    """The files of a folder, by pytest alone."""
    return runner.Suite(
        sources=folder,
        folder=lambda file: folder,
        packages=lambda file: [],
        results=folder / "results.jsonl",
        command=[sys.executable, "-m", "pytest"],
    )


@pytest.mark.full
def test_a_test_that_ends_or_blocks_the_process_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("def test_passes(): pass")
    start = time.monotonic()
    row, other = runner.run_files(
        suite_of(tmp_path), ["test_all.py", "test_other.py"], test_seconds=8, seconds=100
    )
    assert time.monotonic() - start < 60
    assert other["tests"] == {"test_other.py::test_passes": ["passed", ""]}
    assert {name.partition("::")[2]: outcome for name, (outcome, _) in row["tests"].items()} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_ends_the_process": "crashed",
        "test_skips": "skipped",
        "test_hangs": "timed out",
        "test_makes_the_process_unusable": "failed",
        "test_is_last": "passed",
    }
    text = page([row], ["test_all.py"], {"pytorch": "0"})
    assert "| all | 7 | 2 | 2 | 1 | 2 | 0 | 40.0% |" in text
    assert json.loads(json.dumps(row)) == row


@pytest.mark.full
def test_a_file_that_another_makes_fail_runs_again_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import os\ndef test_leaves(): os.environ['LEFT'] = '1'")
    (tmp_path / "test_b.py").write_text("import os\ndef test_finds(): assert 'LEFT' not in os.environ")
    suite = dataclasses.replace(suite_of(tmp_path), group=lambda file: "both", again=True)
    options = argparse.ArgumentParser()
    options.add_argument("parts", nargs="*")
    runner.add_options(options, test_seconds=30, file_seconds=60)
    rows = runner.run(suite, options.parse_args(["test_a.py", "test_b.py"]))
    assert [suites.counts([row]) for row in rows] == [{"passed": 1}] * 2


def test_page_of_mindspeed() -> None:
    name = "tests_extend/unit_tests/ops/cann/test_one.py"
    tests = {
        f"{name}::test_a": ["passed", ""],
        f"{name}::test_b": ["failed", "CalledProcessError: Command '['false', '--version']' returned"],
        f"{name}::test_c": ["skipped", "not enough NPUs are available: 8 required, 2 available"],
    }
    rows = [{"ranks": 1, "file": name, "seconds": 1, "tests": tests}]
    jobs = [Job(1, "", 8.5, 0.0), Job(2, "--bf16", 8.6, 0.02, 0.01), Job(2, "--fp16", error="no such flag")]
    text = mindspeed_page(jobs, rows, [name, "other"], Versions("abc", "core"), 2)
    assert "| 1 | - | 8.500000 | 0.0e+00 | equal |" in text
    assert "| 2 | `--bf16` | 8.600000 | 2.0e-02 | differs |" in text
    assert "failed: no such flag" in text
    assert "1 of 2 files" in text
    assert "| ops/cann | 3 | 1 | 1 | 1 | 0 | 0 |" in text
    assert "| an extension that is compiled with CANN's headers | 1 |" in text
    assert "| more ranks than devices | 1 |" in text


def test_files_that_ran_again_are_a_section_of_megatrons_page() -> None:
    name = f"{unit_page.ROOT}transformer/test_a.py"
    tests = {"a": ["passed", ""], "b": ["failed", "RuntimeError: world_size (1) is not divisible by 2"]}
    about = (
        [{"ranks": 1, "file": name, "seconds": 1, "tests": tests}],
        [name],
        [1],
        "0.20.0",
        "Limits: none.",
    )
    page_before = unit_page.page(*about)
    text = unit_page.again(page_before, date(2026, 1, 2), *about)
    assert text == unit_page.again(text, date(2026, 1, 2), *about)
    before, _, section = text.partition("\n## Run again\n")
    assert before == page_before and "ran again on 2026-01-02, with Megatron-LM 0.20.0" in section
    assert "| transformer/test_a.py | 1 passed, 1 failed |" in section
    assert "| another number of ranks | 1 |" in section
