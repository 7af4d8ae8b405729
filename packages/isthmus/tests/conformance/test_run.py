"""``isthmus conform run``: a correct library passes, every kind of wrong one fails, and the reports show it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from safetensors import safe_open

from tests.helpers.conformance_jobs import check_refused, chip_with, conform, known_entry, without_torch
from tests.helpers.conformance_libraries import RIGHT, WRONG, write_library

CRASHING = ("crashes", "borrows_its_input")
_BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("torch is not installed here")
sys.meta_path.insert(0, Blocker())
sys.argv = ["isthmus", *sys.argv[1:]]
from isthmus_common.shell import main
try:
    main()
finally:
    assert "torch" not in sys.modules or sys.modules["torch"] is None, "torch was imported"
"""


@pytest.fixture(scope="module")
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, golden: Path, right: Path
) -> list[dict[str, Any]]:
    """Results of one run over the correct library and the wrong ones of which this run has tests."""
    folder = tmp_path_factory.mktemp("wrong")
    cases = (item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec"))
    names = {"strides_ignored", *CRASHING, *cases} & WRONG.keys()
    paths = [right, *(write_library(folder, name, WRONG[name][0]) for name in sorted(names))]
    options: list[object] = [option for path in paths for option in ("--library", path)]
    options += ["--golden", golden, "--operators", "aten::*", "--output", folder, "--jobs", 2]
    done = conform("run", "--driver", "host", *options)
    assert done.returncode == 1, done.stderr
    return json.loads((folder / "report.json").read_text())["results"]


def _of(judged: list[dict[str, Any]], library: str) -> list[dict[str, Any]]:
    return [row for row in judged if row["library"] == library]


def test_a_right_library_passes(judged: list[dict[str, Any]]) -> None:
    rows = _of(judged, "right")
    names = "add.Tensor mul.Tensor copy_ cat _foreach_add.Scalar uniform_ sum.dim_IntList"
    assert {row["operator"] for row in rows} == {f"aten::{name}" for name in names.split()}
    assert [row for row in rows if row["status"] not in ("passed", "not claimed")] == []
    assert {row["dtype"] for row in rows if row["status"] == "not claimed"} == {"int64"}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in WRONG if name not in CRASHING])
def test_a_wrong_library_is_caught(judged: list[dict[str, Any]], name: str) -> None:
    failed = [row for row in _of(judged, name) if row["status"] == "failed"]
    assert failed
    assert any(WRONG[name][1] in row["message"] for row in failed), failed[0]["message"]


def test_wrong_strides_fail_only_where_there_are_strides(judged: list[dict[str, Any]]) -> None:
    failed = {row["layout"] for row in _of(judged, "strides_ignored") if row["status"] == "failed"}
    assert failed == {"strided", "broadcast"}


def test_a_crash_is_a_result_and_the_run_goes_on(judged: list[dict[str, Any]]) -> None:
    crashed = [row for row in _of(judged, "crashes") if row["status"] == "crashed"]
    assert {row["case"] for row in crashed} == {"zero-size"}
    assert {row["dtype"] for row in crashed} == {"float32", "bfloat16", "int64"}
    assert all("SIGSEGV" in row["message"] for row in crashed)
    others = Counter(
        row["status"] for row in _of(judged, "crashes") if row["layout"] not in ("", "zero-size")
    )
    assert others == {"passed": 15}


def test_an_input_may_not_change_even_if_it_is_restored(judged: list[dict[str, Any]]) -> None:
    rows = [row for row in _of(judged, "borrows_its_input") if row["dtype"] == "float32"]
    assert {row["status"] for row in rows if row["layout"] not in ("", "zero-size", "broadcast")} == {
        "crashed"
    }
    crashed = [row["message"] for row in rows if row["status"] == "crashed"]
    assert all("SIGSEGV" in message for message in crashed)
    assert all(message.endswith(WRONG["borrows_its_input"][1]) for message in crashed)


def test_exit_codes_summary_and_reports_without_torch(tmp_path: Path, golden: Path, right: Path) -> None:
    """The command never imports PyTorch."""
    options = ("conform", "run", "--driver", "host", "--golden", golden, "--library", right)
    options += ("--operators", "aten::*,driver::set_async", "--output", tmp_path)
    command = [sys.executable, "-c", _BLOCKED, *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed: driver host" in done.stdout
    assert "driver\t" in done.stdout
    data = json.loads((tmp_path / "report.json").read_text())
    families = {row["family"] for row in data["results"]}
    assert families == {"driver", "pointwise", "shape", "random", "reduction"}
    assert data["environment"]["numpy"]
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert sum(int(suite.get("tests", "")) for suite in suites) == len(data["results"])
    assert sum(len(suite) for suite in suites) == len(data["results"])
    page = (tmp_path / "report.html").read_text()
    assert "aten::_foreach_add.Scalar" in page
    assert not any(word in page for word in ("http:", "https:", "src=", "@import", "url(")) or page.count(
        "http"
    ) == page.count("http://www.w3.org/2000/svg")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o640}


def test_a_report_is_regenerated_with_a_mutation_score(tmp_path: Path, golden: Path, right: Path) -> None:
    options = ("--golden", golden, "--library", right, "--operators", "aten::cat", "--output", tmp_path)
    assert conform("run", "--driver", "host", *options).returncode == 0
    (tmp_path / "report.html").unlink()
    (tmp_path / "mutation.json").write_text('{"score": 0.975}')
    done = conform("report", tmp_path, "--mutation", tmp_path / "mutation.json")
    assert done.returncode == 0, done.stderr
    assert '"score":0.975' in (tmp_path / "report.html").read_text()
    assert conform("report", tmp_path / "nowhere").returncode == 2


@pytest.mark.full
def test_text_of_a_kernel_cannot_end_the_script_of_the_page(tmp_path: Path, golden: Path) -> None:
    raises = 'def cat(*args):\n    raise ValueError("</script><b>\\x07")'
    body = f'@library.operator("aten::cat", dtypes=NUMBERS)\n{raises}'
    path = write_library(tmp_path, "hostile", body)
    options = ("--golden", golden, "--library", path, "--operators", "aten::cat", "--output", tmp_path)
    assert conform("run", "--driver", "host", *options).returncode == 1
    assert (tmp_path / "report.html").read_text().count("</script>") == 2
    ElementTree.parse(tmp_path / "junit.xml")


def test_operators_and_tiers_narrow_the_run(tmp_path: Path, golden: Path, right: Path) -> None:
    def operators(*options: str) -> set[str]:
        base = ("--driver", "host", "--golden", golden, "--library", right, "--output", tmp_path)
        assert conform("run", *base, *options).returncode == 0
        return {row["operator"] for row in json.loads((tmp_path / "report.json").read_text())["results"]}

    assert operators("--operators", "*add*") == {"aten::add.Tensor", "aten::_foreach_add.Scalar"}
    of_three = operators("--operators", "mul", "--operators", "cat", "--operators", "driver::set_async")
    assert of_three == {"aten::mul.Tensor", "aten::cat", "driver::set_async"}


# ---- Not run -------------------------------------------------------------------------------------------

ALL_RIGHT = RIGHT.replace('dtypes=("float32", "bfloat16"))\ndef mul', "dtypes=DTYPES)\ndef mul")
ADD = '@library.operator("aten::add.Tensor", dtypes=DTYPES)\ndef add(self, other, alpha, out):\n    '
MUL = '@library.operator("aten::mul.Tensor", dtypes=DTYPES)\ndef mul(self, other, out):\n    '
# Chips for a tier of two operators: kernels, exit status, words of the summary.
CHIPS: dict[str, tuple[str, int, list[str]]] = {
    "complete": (
        ALL_RIGHT,
        0,
        ["demands 2 operators and 36 cases", "passed: driver host, 2 operators, 58 passed"],
    ),
    "empty": (
        "",
        3,
        ["not run: 36 cases: no library has a kernel", "NOT RUN: driver host, 0 operators, 36 not"],
    ),
    "one kernel": (
        f"{ADD}store(out, wide(self) + alpha * wide(other))",
        3,
        ["not run: 18 cases: no library has a kernel: aten::mul.Tensor", "29 passed, 18 not run"],
    ),
    "a dtype less": (
        RIGHT,
        3,
        ["not run: 6 cases: no kernel for int64: aten::mul.Tensor", "50 passed, 6 not run"],
    ),
    "zeros": (
        f"{ADD}out[...] = 0\n\n{MUL}out[...] = 0",
        1,
        ["FAILED: driver host, 2 operators, 10 passed, 30 fail"],
    ),
    "copies": (
        f"{ADD}out[...] = self\n\n{MUL}out[...] = self",
        1,
        ["FAILED: driver host, 2 operators, 8 passed"],
    ),
}


@pytest.mark.parametrize("name", CHIPS)
def test_a_tier_is_not_passed_by_not_running(tmp_path: Path, golden: Path, name: str) -> None:
    kernels, status, words = CHIPS[name]
    library = write_library(tmp_path, "chip", kernels)
    done = conform("run", "--driver", "host", "--golden", golden, "--library", library, "--tier", "by hand")
    assert done.returncode == status, done.stdout
    assert all(word in done.stdout for word in words), done.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", CHIPS)
def test_a_whole_run_demands_the_core_operators(tmp_path: Path, golden: Path, name: str) -> None:
    library = write_library(tmp_path, "chip", CHIPS[name][0])
    done = conform("run", "--driver", "host", "--golden", golden, "--library", library)
    assert done.returncode == CHIPS[name][1], done.stdout
    assert "tier core demands 2 operators and 36 cases" in done.stdout


def test_the_file_of_a_chip_names_what_is_not_run(tmp_path: Path, golden: Path) -> None:
    allowed = known_entry("not_run", operator="aten::mul.Tensor", dtype="int64", reason="floats only")
    chip = chip_with(tmp_path, write_library(tmp_path, "chip", RIGHT), allowed)
    done = conform("run", "--driver", chip, "--golden", golden, "--tier", "by hand")
    assert done.returncode == 0, done.stdout
    assert "not claimed: 6 cases: floats only (no kernel for int64): aten::mul.Tensor" in done.stdout
    write_library(tmp_path, "chip", ALL_RIGHT)
    done = conform("run", "--driver", chip, "--golden", golden, "--tier", "by hand")
    assert done.returncode == 1
    assert "not_run 1 (aten::mul.Tensor): matches no case that is demanded and not run" in done.stdout


def test_the_printed_entries_allow_what_is_not_run(tmp_path: Path, golden: Path) -> None:
    chip = chip_with(
        tmp_path, write_library(tmp_path, "chip", RIGHT.split('@library.operator("aten::cat"')[0]), ""
    )
    options = ("--driver", chip, "--golden", golden, "--operators", "add.Tensor,cat,driver::comm_*")
    done = conform("run", *options)
    assert done.returncode == 3, done.stdout + done.stderr
    entries = re.findall(r"^\[\[not_run\]\]\n(?:\w+ = .*\n)+", done.stdout, re.MULTILINE)
    assert len(entries) == 2, done.stdout
    (tmp_path / "known_failures.toml").write_text("".join(entries).replace('reason = ""', 'reason = "small"'))
    done = conform("run", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[[not_run]]" not in done.stdout


def test_a_function_that_a_driver_lacks_is_named_with_its_cases(tmp_path: Path) -> None:
    """And a run of driver cases makes no golden data."""
    sample = chip_with(tmp_path, write_library(tmp_path, "chip"), "")
    options = ("--driver", sample, "--operators", "driver::comm_reduces,driver::copy")
    done = conform("run", *options, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not run: 1 case: comm_reduces absent: driver::comm_reduces" in done.stdout
    assert "\ndriver\t1\t" in done.stdout and "NOT RUN: driver sample, 1 driver function, " in done.stdout
    assert not (tmp_path / "cache").exists()


# ---- A failure is a command ----------------------------------------------------------------------------


def test_a_failure_prints_the_command_that_repeats_it(tmp_path: Path, golden: Path) -> None:
    library = write_library(tmp_path, "last", WRONG["last_not_written"][0])
    base = ("--driver", "host", "--golden", golden, "--library", library, "--operators", "add", "--jobs", 1)
    done = conform("run", *base)
    assert "  probably: they are not written" in done.stderr or "a tail" in done.stderr
    assert "  first wrong: out[4, 3] is nan, expected " in done.stderr
    (command, *_) = [line.strip() for line in done.stderr.splitlines() if line.startswith("  isthmus ")]
    assert f"--library {library} --case aten::add.Tensor/float32/contiguous" in command
    again = conform(*shlex.split(command)[2:], "--keep", tmp_path / "kept", "--output", tmp_path)
    assert again.returncode == 1, again.stdout + again.stderr
    (row,) = json.loads((tmp_path / "report.json").read_text())["results"]
    assert (row["case"], row["dtype"], row["command"]) == ("contiguous", "float32", command)
    stem = tmp_path / "kept" / "last-aten.add.Tensor-float32-contiguous"
    arrays = safe_open(f"{stem}.safetensors", "np")
    assert {*arrays.keys()} >= {"input.self", "input.other", "expected.out", "seen.out"}
    about = json.loads(Path(f"{stem}.json").read_text())
    assert about["case"] == "aten::add.Tensor/float32/contiguous"
    assert about["arguments"]["alpha"] == 1
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "kept", *(tmp_path / "kept").iterdir())]
    assert modes == [0o750, 0o640, 0o640]


def test_a_crash_keeps_its_inputs(tmp_path: Path, golden: Path) -> None:
    library = write_library(tmp_path, "crashes", WRONG["crashes"][0])
    case = "aten::add.Tensor/float32/zero-size"
    options = ("--driver", "host", "--golden", golden, "--library", library, "--case", case)
    done = conform("run", *options, "--keep", tmp_path / "kept")
    assert f"--case {case}" in done.stderr
    arrays = safe_open(tmp_path / "kept" / "crashes-aten.add.Tensor-float32-zero-size.safetensors", "np")
    assert "seen.out" not in arrays.keys()  # noqa: SIM118


def test_a_driver_case_runs_alone(tmp_path: Path) -> None:
    done = conform(
        "run", "--driver", "host", "--case", "driver::copy/copies.copy_within", "--output", tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "report.json").read_text())["results"]) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--case", "aten::mul.Tensor/float32/9"], ["unknown case", "aten::mul.Tensor/float32/"]),
        (["--case", "aten::ml/float32/9"], ["unknown operator aten::ml"]),
        (["--case", "driver::copy/x"], ["unknown case; did you mean driver::copy/"]),
        (["--case", "aten::mul.Tensor/float32/9", "--tier", "core"], ["leave out --operators and --tier"]),
        (["--operators", "aten::ad.Tensor"], ["unknown operator", "aten::add.Tensor"]),
        (["--tier", "lama"], ["unknown tier", "core"]),
        (["--driver", "none"], ["unknown driver 'none'", "host"]),
        (["--library", "/nowhere.so"], ["/nowhere.so", "no such file"]),
        (["--golden", "/nowhere"], ["/nowhere/manifest.json", "isthmus conform generate"]),
        (["--through", "air"], ["air", "pytorch"]),
        (["--through", "pytorch"], ["--library"]),
        (
            ["--tier", "core"],
            ["--tier core: no golden data for aten::", "more of the tier", "golden data has 7 of "],
        ),
        (["--operators", "cos"], ["--operators cos: golden data has 7 of "]),
        (["--operators", "driver::cpoy"], ["unknown operator", "driver::copy", "isthmus conform list"]),
        (["--mutation", "nofile.json"], ["nofile.json", "mutation.json"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    golden: Path, right: Path, options: list[str], words: list[str]
) -> None:
    done = conform("run", "--driver", "host", "--golden", golden, "--library", right, *options)
    check_refused(done, *words)


def test_a_library_that_cannot_be_used_is_one_line(tmp_path: Path, golden: Path) -> None:
    path = write_library(
        tmp_path, "odd", '@library.operator("aten::ad.Tensor", dtypes=NUMBERS)\ndef f(*args): ...'
    )
    done = conform("run", "--driver", "host", "--golden", golden, "--library", path)
    check_refused(done, "aten::ad.Tensor")


# ---- Known failures ------------------------------------------------------------------------------------


def test_known_failures_do_not_fail_the_run(tmp_path: Path, golden: Path) -> None:
    library = write_library(tmp_path, "truncates", WRONG["truncates"][0])
    known = known_entry(operator="aten::add*", dtype="bfloat16", reason="the chip truncates")
    chip = chip_with(tmp_path, library, known)
    kernels = ("--golden", golden, "--operators", "aten::*", "--output", tmp_path)
    done = conform("run", "--driver", chip, *kernels)
    assert done.returncode == 0, done.stdout
    rows = json.loads((tmp_path / "report.json").read_text())["results"]
    known_rows = [row for row in rows if row["status"] == "known failure"]
    assert {row["dtype"] for row in known_rows} == {"bfloat16"}
    assert all(row["message"].startswith("the chip truncates (") for row in known_rows)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("case", "why"), [("*", "matching cases pass"), ("no-such-case", "matches no case")])
def test_stale_known_failures_fail_the_run(
    tmp_path: Path, golden: Path, right: Path, case: str, why: str
) -> None:
    chip = chip_with(tmp_path, right, known_entry(operator="aten::add.Tensor", case=case, reason="long gone"))
    done = conform("run", "--driver", chip, "--golden", golden, "--operators", "aten::*")
    assert done.returncode == 1
    assert all(word in done.stdout for word in ("stale: ", "aten::add.Tensor", why)), done.stdout
    # A run without its cases does not report it.
    assert conform("run", "--driver", chip, "--golden", golden, "--operators", "aten::cat").returncode == 0


def test_entries_for_another_mode_are_ignored(tmp_path: Path, golden: Path, right: Path) -> None:
    chip = chip_with(
        tmp_path, right, known_entry(operator="aten::add.Tensor", through="pytorch", reason="of PyTorch")
    )
    options = ("--golden", golden, "--operators", "aten::add.Tensor")
    assert conform("run", "--driver", chip, *options).returncode == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (known_entry(operator="aten::add.Tensor"), ["failure 1", "the key 'reason' is missing"]),
        (known_entry(operator="aten::add.Tensor", reason=" "), ["the key 'reason' is missing"]),
        (
            known_entry(operator="aten::ad.Tensor", reason="x"),
            ["unknown operator 'aten::ad.Tensor'", "aten::add.Tensor"],
        ),
        (known_entry(reason="x"), ["'operator' is missing"]),
        (known_entry(operator="aten::cat", dtpye="int8", reason="x"), ["unknown key 'dtpye'"]),
        (known_entry(operator="aten::cat", through="x", reason="x"), ["kernels or pytorch"]),
        (known_entry(operator="aten::pow.Tensr", reason="x"), ["did you mean aten::pow.Tensor_"]),
        (
            known_entry(operator="aten::cat", dtype="flaot32", reason="x"),
            ["unknown dtype 'flaot32'", "float32"],
        ),
        ("[[failure", ["known_failures.toml"]),
        ("failures = 1", ["[[failure]]"]),
    ],
)
def test_an_invalid_file_of_known_failures_is_reported_in_one_line(
    tmp_path: Path, golden: Path, right: Path, text: str, words: list[str]
) -> None:
    check_refused(conform("run", "--driver", chip_with(tmp_path, right, text), "--golden", golden), *words)


# ---- Without PyTorch -----------------------------------------------------------------------------------


def test_without_torch_and_data_it_explains_where_to_generate_them(tmp_path: Path, right: Path) -> None:
    options = ("conform", "run", "--driver", "host", "--library", right, "--operators", "aten::cat")
    done = without_torch(*options, XDG_CACHE_HOME=str(tmp_path))
    check_refused(done, "isthmus conform generate --output DIR", str(tmp_path))


@pytest.mark.full
def test_a_known_failure_is_not_printed_as_a_failure(tmp_path: Path, golden: Path) -> None:
    library = write_library(tmp_path, "truncates", WRONG["truncates"][0])
    chip = chip_with(tmp_path, library, known_entry(operator="aten::add*", reason="it truncates"))
    done = conform("run", "--driver", chip, "--golden", golden, "--operators", "aten::add.Tensor")
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stderr + done.stdout
    # The failure is stale without the entry.
    (tmp_path / "known_failures.toml").write_text("")
    done = conform("run", "--driver", chip, "--golden", golden, "--operators", "aten::add.Tensor")
    assert done.returncode == 1
    assert "FAILED aten::add.Tensor bfloat16 contiguous" in done.stderr


def test_list_prints_the_declared_operators(right: Path) -> None:
    done = conform("list", "--driver", "host", "--library", right)
    assert done.returncode == 0, done.stderr
    rows = {line.split("\t")[0]: line.split("\t") for line in done.stdout.splitlines()}
    assert rows["aten::add.Tensor"][3:] == ["right", "int64,bfloat16,float32", "strided,in_place,host"]
    assert rows["aten::sub.Tensor"][3:] == ["-", "-", "-"]
    assert conform("list", "--driver", "host", "--tier", "lama").returncode == 2
