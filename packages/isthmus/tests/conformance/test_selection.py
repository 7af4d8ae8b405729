"""``isthmus conform``: exactly the selected cases are judged, and missing ones are reported."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

import isthmus.drivers
from isthmus import opset
from isthmus.conformance.selection import matching, nearest_name, split
from isthmus.opset.tiers import tiers_of
from tests.helpers.conformance_data import write_golden
from tests.helpers.conformance_jobs import check_refused, chip_with, conform, without_torch
from tests.helpers.conformance_libraries import write_library
from tools.repository import ROOT


def test_patterns_are_separated_by_commas_and_match_without_namespace() -> None:
    assert split(["add, mul", "cat", ""]) == ("add", "mul", "cat")
    names = ["aten::add.Tensor", "aten::add.Scalar", "aten::mul.Tensor"]
    assert matching(split(["add"]), names) == set(names[:2])
    assert nearest_name("aten::mul.Tensr", names) == nearest_name("mul", names) == "aten::mul.Tensor"


def test_golden_data_of_another_opset_is_refused(tmp_path: Path, right: Path) -> None:
    folder = write_golden(tmp_path / "golden")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("sha256")
    (folder / "manifest.json").write_text(json.dumps({**manifest, "opset": "0123456789abcdef"}))
    for command in ("run", "bench"):
        done = conform(command, "--driver", "host", "--golden", folder, "--library", right)
        check_refused(done, "made for opset 0123456789ab, installed is ")


@pytest.mark.full
def test_a_run_reports_that_the_data_is_incomplete(golden: Path, right: Path) -> None:
    done = conform(
        "run", "--driver", "host", "--golden", golden, "--library", right, "--operators", "add,cat"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "golden data has 7 of " in done.stdout
    assert ", 2 operators, " in done.stdout


def test_a_selection_without_cases_fails(tmp_path: Path, golden: Path) -> None:
    body = '@library.operator("aten::mul.Tensor", dtypes="uint8")\ndef mul(self, other, out): ...'
    library = write_library(tmp_path, "little", body)
    options = ("--driver", "host", "--golden", golden, "--library", library)
    done = conform("run", *options, "--operators", "cat,mul")
    assert done.returncode == 3, done.stdout
    assert "no library has a kernel: aten::cat" in done.stdout
    assert "aten::mul.Tensor" in done.stdout and "NOT RUN: driver host, 0 operators" in done.stdout


@pytest.mark.parametrize("folder", ["docs", "docs/zh"])
def test_the_page_has_the_sizes_of_the_tiers(folder: str) -> None:
    page = (ROOT / folder / "chip-makers" / "conformance.md").read_text()
    sizes = Counter(tier for name in opset.records() for tier in tiers_of(name))
    assert dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)) == {
        tier: str(size) for tier, size in sizes.items()
    }


def test_list_takes_patterns(right: Path) -> None:
    done = conform("list", "--driver", "host", "--library", right, "--operators", "mul,cat")
    names = {line.partition("\t")[0] for line in done.stdout.splitlines()[1:]}
    assert {"aten::mul.Tensor", "aten::cat"} <= names
    assert not any("add" in name for name in names)


def test_driver_functions_need_no_golden_data_and_names_are_checked_before_it_is_made(tmp_path: Path) -> None:
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    done = conform("run", "--driver", "host", "--operators", "driver::device_count", **cache)
    assert (done.returncode, "passed: driver host" in done.stdout) == (0, True), done.stderr
    done = conform("run", "--driver", "host", "--operators", "hypott", **cache)
    assert done.returncode == 2
    assert "making golden data" not in done.stderr
    assert not list(tmp_path.rglob("*.safetensors.xz"))


def test_generate_names_the_command_that_lists_operators(tmp_path: Path) -> None:
    done = conform("generate", "--output", tmp_path / "a", "--operators", "nosuchthing")
    assert done.returncode == 2
    assert "`isthmus conform list`" in done.stderr


@pytest.mark.full
def test_generate_takes_patterns_like_a_run(tmp_path: Path) -> None:
    done = conform(
        "generate", "--output", tmp_path / "a", "--operators", "neg,abs", "--operators", "aten::cos"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "a" / "manifest.json").read_text())["operators"]
    assert set(found) == {"aten::neg", "aten::abs", "aten::cos"}


def test_the_report_has_the_description_of_driver_toml(tmp_path: Path, golden: Path, right: Path) -> None:
    chip = chip_with(tmp_path, right, "")
    chip.write_text(chip.read_text() + 'description = "the best chip"\n')
    options = ("--golden", golden, "--operators", "cat", "--output", tmp_path / "a" / "b")
    old = os.umask(0)
    try:
        assert conform("run", "--driver", chip, *options).returncode == 0
    finally:
        os.umask(old)
    report = json.loads((tmp_path / "a" / "b" / "report.json").read_text())
    assert (
        report["description"] == isthmus.drivers.find(str(chip)).candidates[0].description == "the best chip"
    )
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o750


def test_without_torch_commands_that_need_it_explain_how_to_install_it(tmp_path: Path, golden: Path) -> None:
    for options in (
        ("conform", "generate", "--output", tmp_path / "x"),
        ("conform", "run", "--driver", "host", "--through", "pytorch", "--golden", golden),
    ):
        check_refused(without_torch(*options), "PyTorch is not installed; run `pip install")


@pytest.mark.full
def test_doctor_checks_the_drivers_without_torch() -> None:
    done = without_torch("doctor")
    assert done.returncode == 1
    assert "PyTorch is not installed" in done.stdout
    assert "driver       host: " in done.stdout
