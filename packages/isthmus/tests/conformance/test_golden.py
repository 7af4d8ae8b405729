"""Golden data: round trips, deterministic bytes, and one clear line for damaged files."""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isthmus.conformance import cache
from isthmus.conformance.generate import generate, golden_cases
from isthmus.conformance.golden import (
    Case,
    Expected,
    GoldenError,
    OperatorEntry,
    Reader,
    Tensor,
    Tolerance,
    Writer,
    write_cases,
)
from isthmus.opset import operators
from tests.helpers.conformance_data import EXACT, bfloat16, write_golden

SCHEMA = "aten::neg(Tensor self) -> Tensor"


def _one(folder: Path, case: Case) -> Case:
    writer = Writer(folder, "opset", 3)
    files = write_cases(folder, case.operator, [case])
    writer.operator(case.operator, OperatorEntry(SCHEMA, "pointwise", 1, ("core",)), files)
    writer.close()
    return Reader(folder).cases(case.operator)[0]


@pytest.mark.parametrize(
    "storage",
    [
        bfloat16(1.5, -2.0, float("nan"), 3.0, 4.0, 5.0, 6.0),
        np.arange(7, dtype=np.float16),
        np.array([1 + 2j, 3, 4, 5, 6, 7, 8], np.complex128),
        np.array([1 + 2j, 3, 4, 5, 6, 7, 8], np.complex64),
        np.array([True, False, True, True, False, True, True]),
        np.arange(7, dtype=np.int64) - 2**62,
    ],
    ids=lambda array: str(array.dtype),
)
def test_tensors_round_trip_bit_for_bit(tmp_path: Path, storage: np.ndarray) -> None:
    tensor = Tensor(storage, (2, 2), (3, 1), 1)
    back = _one(tmp_path, Case("a", "aten::neg", "x", "strided", [tensor], [None], EXACT)).arguments[0]
    assert isinstance(back, Tensor)
    assert (back.shape, back.strides, back.offset) == ((2, 2), (3, 1), 1)
    assert back.storage.dtype == storage.dtype
    assert back.storage.tobytes() == storage.tobytes()
    assert back.array.tobytes() == np.stack([storage[1:3], storage[4:6]]).tobytes()


def test_every_kind_of_argument_and_result_round_trips(tmp_path: Path) -> None:
    tensor = Tensor.contiguous(np.ones((), np.float32))
    arguments = [tensor, [tensor, None], [None], [], [1, 2.5], float("-inf"), True, 3, 2.0, "tanh", None]
    law = {"name": "normal", "mean": 0.0, "std": 1.0}
    outputs = [
        Expected("float32", (), np.array(2.0), np.array(3.0)),
        [Expected("int64", (2,), law=law), None],
    ]
    written = {"self": Expected("bool", (1,), np.array([True]))}
    case = Case("a", "aten::neg", "float32", "0-dim", arguments, outputs, Tolerance(1, 2, "why"), written)
    back = _one(tmp_path, case)
    assert list(back.arguments[3:]) == [[], [1, 2.5], float("-inf"), True, 3, 2.0, "tanh", None]
    assert [type(value) for value in back.arguments[5:9]] == [float, bool, int, float]
    assert isinstance(back.arguments[1], list)
    assert back.arguments[1][1] is None
    assert back.arguments[2] == [None]
    first, second = back.outputs
    assert isinstance(first, Expected)
    assert (float(first.reference), float(first.magnitude), first.reference.shape) == (2.0, 3.0, ())
    assert isinstance(second, list)
    assert second[0].law == law
    assert second[1] is None
    assert back.written["self"].dtype == "bool"
    assert back.tolerance == Tolerance(1, 2, "why")


def test_equal_cases_give_equal_bytes_and_one_copy(tmp_path: Path) -> None:
    first, second = write_golden(tmp_path / "a"), write_golden(tmp_path / "b")
    names = sorted(file.name for file in first.iterdir())
    assert names == sorted(file.name for file in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    large = np.random.default_rng(0).normal(size=10000)
    tensor = Tensor.contiguous(large)
    _one(tmp_path / "c", Case("a", "aten::neg", "float64", "large", [tensor, [tensor]], [None], EXACT))
    size = (tmp_path / "c" / "aten.neg.safetensors.xz").stat().st_size
    assert 0.9 * large.nbytes < size < 1.1 * large.nbytes


def test_digits_that_no_tolerance_shows_are_not_stored() -> None:
    cases = [*golden_cases(operators()["aten::mean"], dtypes=("bfloat16", "float64"))]
    assert max(_digits(case.outputs[0].reference) for case in cases if case.dtype == "bfloat16") == 24
    assert max(_digits(case.outputs[0].reference) for case in cases if case.dtype == "float64") == 53
    assert max(_digits(case.outputs[0].magnitude) for case in cases) == 12


def _digits(values: np.ndarray) -> int:
    """The binary digits of the longest of float64 numbers."""
    fractions = np.abs(np.frexp(values[np.isfinite(values)])[0])
    return max((len(f"{int(each * 2.0**53):b}".rstrip("0")) for each in fractions.flat), default=0)


def test_data_of_more_operators_joins_that_of_the_same_opset_and_seed(tmp_path: Path) -> None:
    generate(tmp_path, "aten::neg")
    before = (tmp_path / "aten.neg.safetensors.xz").stat().st_mtime_ns
    generate(tmp_path, "aten::abs")
    assert set(Reader(tmp_path).operators) == {"aten::neg", "aten::abs"}
    assert (tmp_path / "aten.neg.safetensors.xz").stat().st_mtime_ns == before
    generate(tmp_path, "aten::abs", seed=1)
    assert set(Reader(tmp_path).operators) == {"aten::abs"}


def test_the_cache_makes_only_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[list[str]] = []

    def make(here: Path, names: list[str], *_: object) -> None:
        made.append(names)
        write_golden(here)

    monkeypatch.setattr(cache, "_make", make)
    opened = cache.golden(None, lambda line: None)
    assert callable(opened)
    for names in (["aten::cat", "aten::copy_"], ["aten::cat"], ["aten::cat", "aten::neg"]):
        opened(names)
    assert made == [["aten::cat", "aten::copy_"], ["aten::neg"]]


def test_files_and_folders_are_private_to_owner_and_group(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = write_golden(tmp_path / "a" / "b" / "golden")
    finally:
        os.umask(old)
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "a", tmp_path / "a/b", folder)} == {0o750}
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o640}


def test_a_duplicate_case_or_one_of_another_operator_is_refused(tmp_path: Path) -> None:
    case = Case("a", "aten::neg", "float32", "0-dim", [], [None], EXACT)
    with pytest.raises(ValueError, match="aten::neg float32 a: written as a case of aten::abs"):
        write_cases(tmp_path, "aten::abs", [case])
    with pytest.raises(ValueError, match="duplicate"):
        write_cases(tmp_path, "aten::neg", [case, case])


def _with_a_wider_tolerance(data: bytes) -> bytes:
    return lzma.compress(lzma.decompress(data).replace(b'"ulp":0.5', b'"ulp":5.5'))


@pytest.mark.parametrize(
    ("file", "damaged", "what"),
    [
        ("aten.add.Tensor.safetensors.xz", lambda data: data[:-9], "modified or truncated"),
        (
            "aten.add.Tensor.safetensors.xz",
            lambda data: data[:-5] + b"!" + data[-4:],
            "modified or truncated",
        ),
        ("aten.add.Tensor.json.xz", _with_a_wider_tolerance, "modified or truncated"),
        ("aten.add.Tensor.json.xz", None, "no such file"),
        ("manifest.json", lambda data: json.dumps({**json.loads(data), "format": 99}).encode(), "format 99"),
        ("manifest.json", lambda data: data[:-200], "not a manifest"),
        ("manifest.json", lambda data: data.replace(b'"seed": 0', b'"seed": 7'), "manifest.json: modified"),
    ],
)
def test_damaged_data_is_reported_in_one_line(
    tmp_path: Path, file: str, damaged: Callable[[bytes], bytes] | None, what: str
) -> None:
    folder = write_golden(tmp_path / "golden")
    before = (folder / file).read_bytes()
    (folder / file).unlink()
    if damaged:
        assert damaged(before) != before
        (folder / file).write_bytes(damaged(before))
    with pytest.raises(GoldenError) as error:
        Reader(folder).cases("aten::add.Tensor")
    text = str(error.value)
    assert file in text
    assert what in text
    assert "isthmus conform generate" in text
    assert "\n" not in text


def test_a_folder_without_data_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="isthmus conform generate"):
        Reader(tmp_path)


def test_the_cache_keeps_the_newest_sets_and_those_in_use(tmp_path: Path) -> None:
    now = time.time()
    for name, age in {"one": 1, "two": 20, "three": 30, "four": 40, "five": 50}.items():
        write_golden(tmp_path / name)
        os.utime(tmp_path / name, (now - age * 3600, now - age * 3600))
    reading = os.open(tmp_path / "four", os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_SH)
    cache.prune(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"one", "two", "four"}
    os.close(reading)
    cache.prune(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"one", "two"}
