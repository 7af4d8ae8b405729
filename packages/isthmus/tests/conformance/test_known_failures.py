"""Known failures explain a cause, not a case: another error, a larger one or another machine is a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.conformance.known_failures import KnownFailure, KnownFailureError, load, mark, stale_entries
from isthmus.conformance.results import FAILED, KNOWN, NOT_CLAIMED, NOT_RUN, PASSED, CaseResult
from tests.helpers.conformance_jobs import conform, known_entry

_OPERATORS = ("aten::add.Tensor", "aten::rsqrt")
_LOSS = "out: 2 of 9 elements are wrong; [1] is 2, expected 3 (1.2 ulp, 2.4 x the tolerance)"


def _entries(folder: Path, **keys: str | float) -> list[KnownFailure]:
    text = known_entry(operator="aten::rsqrt", **keys, reason="rounds twice")
    (folder / "known.toml").write_text(text)
    return load(str(folder / "known.toml"), _OPERATORS, "pytorch")


def _failure(message: str, tolerances: float | None = 2.4) -> CaseResult:
    worst = {"tolerances": tolerances}
    return CaseResult(
        "pointwise", "x", "aten::rsqrt", "float16", "0", status=FAILED, message=message, worst=worst
    )


@pytest.mark.parametrize(
    ("keys", "message", "tolerances", "known"),
    [
        ({}, "raised RuntimeError: no", None, True),
        ({"within": 2.5}, _LOSS, 2.4, True),
        ({"within": 2.3}, _LOSS, 2.4, False),
        ({"within": 3}, f"{_LOSS}; total_weight: {_LOSS[5:]}", 2.4, True),
        ({"within": 2.5}, f"{_LOSS}; the input self was modified", 2.4, False),
        ({"within": 2.5}, f"{_LOSS}; out: the same call on another stream gave different bits", 2.4, False),
        ({"within": 2.5}, "out: 2 of 9 elements are wrong; [1] is nan, expected 3", None, False),
        ({"error": "*not implemented*"}, 'rsqrt "x" not implemented for Half', None, True),
        ({"error": "*not implemented*"}, _LOSS, 2.4, False),
    ],
)
def test_an_entry_explains_only_its_error(
    tmp_path: Path, keys: dict[str, str | float], message: str, tolerances: float | None, known: bool
) -> None:
    result = _failure(message, tolerances)
    mark(_entries(tmp_path, **keys), result)
    assert (result.status == KNOWN) == known
    assert ("rounds twice" in result.message) == known


def test_an_entry_that_explains_no_failure_is_stale(tmp_path: Path) -> None:
    entries = _entries(tmp_path, within=2.0)
    results = [_failure(_LOSS)]
    mark(entries, results[0])
    names = set(_OPERATORS)
    (line,) = stale_entries(entries, results, names, names)
    assert "explains no failure; remove it" in line
    results[0].status = PASSED
    (line,) = stale_entries(entries, results, names, names)
    assert "all 1 matching cases pass" in line


def test_an_entry_for_cases_that_could_not_run_is_not_stale(tmp_path: Path) -> None:
    entries = _entries(tmp_path)
    names = set(_OPERATORS)
    result = _failure("needs 2 devices")
    result.status = NOT_CLAIMED
    assert stale_entries(entries, [result], names, names) == []


def test_an_entry_of_another_machine_does_not_apply(tmp_path: Path) -> None:
    (entry,) = _entries(tmp_path, machine="*rev A*")
    libraries = [{"description": "kernels"}]
    assert entry.applies({"device": "chip rev A1", "devices": 2, "libraries": libraries})
    assert not entry.applies({"device": "chip rev B", "devices": 2, "libraries": libraries})


def _not_run_entry(folder: Path, **keys: str | bool) -> KnownFailure:
    text = known_entry("not_run", operator="aten::rsqrt", **keys, reason="no such unit")
    (folder / "known.toml").write_text(text)
    (entry,) = load(str(folder / "known.toml"), _OPERATORS, "kernels")
    return entry


def test_an_entry_allows_a_case_that_is_not_run(tmp_path: Path) -> None:
    entry = _not_run_entry(tmp_path, why="no kernel for float16")
    other, result = _failure("no library has a kernel", None), _failure("no kernel for float16", None)
    other.status = result.status = NOT_RUN
    for each in (other, result):
        mark([entry], each)
    assert (result.status, other.status) == (NOT_CLAIMED, NOT_RUN)
    assert result.message == "no such unit (no kernel for float16)"
    names = set(_OPERATORS)
    assert stale_entries([entry], [result, other], names, names) == []


def test_an_entry_for_cases_that_run_is_stale(tmp_path: Path) -> None:
    result, names = _failure(""), set(_OPERATORS)
    result.status = PASSED
    assert stale_entries([_not_run_entry(tmp_path)], [result], names, names) == []  # it was not demanded
    (line,) = stale_entries([_not_run_entry(tmp_path)], [result], names, names, names)
    assert "not_run 1 (aten::rsqrt): matches no case that is demanded and not run; remove it" in line
    assert stale_entries([_not_run_entry(tmp_path, sometimes=True)], [result], names, names, names) == []


def test_an_entry_does_not_allow_a_failure(tmp_path: Path) -> None:
    result = _failure("no kernel for float16", None)
    mark([_not_run_entry(tmp_path)], result)
    assert result.status == FAILED


def test_an_entry_may_be_about_the_number_of_devices(tmp_path: Path) -> None:
    entry = _not_run_entry(tmp_path, machine="*, 1 device*")
    assert entry.applies({"device": "chip", "devices": 1, "libraries": []})
    assert not entry.applies({"device": "chip", "devices": 2, "libraries": []})


def test_a_limit_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KnownFailureError, match="within is not a number"):
        _entries(tmp_path, within="much")


@pytest.mark.full
def test_the_known_failures_of_pytorch_are_those_that_fail(tmp_path: Path) -> None:
    """Every failure of PyTorch's CPU kernels is explained, and every entry explains one."""
    done = conform("run", "--driver", "host", "--through", "pytorch", "--output", tmp_path)
    assert done.returncode == 0, done.stdout
    rows = json.loads((tmp_path / "report.json").read_text())["results"]
    assert any(row["status"] == KNOWN for row in rows)


def test_a_file_includes_another_with_a_condition_of_its_own(tmp_path: Path) -> None:
    entry = known_entry(operator="aten::rsqrt", machine="*rev A*", reason="rounds twice")
    (tmp_path / "known.toml").write_text(f'include = ["shared.toml"]\n\n{entry}')
    (tmp_path / "shared.toml").write_text(f'machine = "*CPU kernels*"\n\n{entry}')
    own, shared = load(str(tmp_path / "known.toml"), _OPERATORS, "kernels")
    libraries = [{"description": "CPU kernels"}]
    assert own.applies({"device": "chip rev A", "devices": 2, "libraries": []})
    assert not shared.applies({"device": "chip rev A", "devices": 2, "libraries": []})
    assert not shared.applies({"device": "chip rev B", "devices": 2, "libraries": libraries})
    assert shared.applies({"device": "chip rev A", "devices": 2, "libraries": libraries})


@pytest.mark.parametrize("line", ["machine = 3", 'include = "shared.toml"', 'include = ["absent.toml"]'])
def test_a_wrong_condition_or_include_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "known.toml").write_text(line)
    with pytest.raises(KnownFailureError, match=r"machine is a string|absent\.toml: no such file"):
        load(str(tmp_path / "known.toml"), _OPERATORS, "kernels")
