"""``isthmus conform bench``: what it counts, skips and writes. No test depends on speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus import drivers
from isthmus.conformance import bench_cases
from isthmus.conformance.golden import Reader, Tensor
from tests.helpers.conformance_jobs import check_refused, conform

LIBRARY = """
from isthmus.opset.library import Library, Unsupported

library = Library("two", "")

@library.operator("aten::mm", "aten::tanh", dtypes=("float32", "bfloat16"))
def anything(*args):
    args[-1][...] = 0

@library.operator("aten::add.Tensor", dtypes=("float32",))
def add(self, other, alpha, out):
    raise Unsupported
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    done = conform("generate", "--output", folder, "--operators", "aten::mm,aten::add.Tensor,aten::tanh")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def result(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "operators.py").write_text(LIBRARY)
    host = Path(drivers.__file__).parent / "host/libisthmus_host.so"
    (folder / "driver.toml").write_text(
        f'name = "stated"\nlibrary = "{host}"\npeak_flops = {{ bfloat16 = 1e15 }}\n'
    )
    options = ("--library", folder / "operators.py", "--output", folder, "--rounds", 2)
    options = ("--driver", folder / "driver.toml", *options)
    done = conform("bench", "--golden", golden, *options)
    assert done.returncode == 0, done.stderr
    assert "left out: aten::add.Tensor float32 two" in done.stdout
    found: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    assert (folder / "bench.json").stat().st_mode & 0o777 == 0o640
    return found


def test_rows(result: dict[str, Any]) -> None:
    rows = {(row["operator"], row["dtype"]): row for row in result["rows"]}
    assert set(rows) == {
        (name, dtype) for name in ("aten::mm", "aten::tanh") for dtype in ("float32", "bfloat16")
    }
    size = bench_cases.MATMUL_SIZE
    product, tanh = rows["aten::mm", "float32"], rows["aten::tanh", "bfloat16"]
    assert (product["flops"], product["nbytes"]) == (2 * size**3, 3 * 4 * size**2)
    assert (tanh["flops"], tanh["nbytes"], tanh["bound"]) == (0, 2 * 2 * 1024 * 1024, "bytes")
    for row in rows.values():
        assert row["library"] == "two" and 0 < row["seconds"] <= row["median_seconds"]
        assert row["ratio"] == pytest.approx(row["limit_seconds"] / row["seconds"])


def test_limits(result: dict[str, Any]) -> None:
    bandwidth, peak = result["bandwidth_bytes_per_second"], result["matmul_flops_per_second"]
    assert all(value > 0 for value in (*bandwidth.values(), *peak.values()))
    product = next(
        row for row in result["rows"] if row["operator"] == "aten::mm" and row["dtype"] == "float32"
    )
    assert product["limit_seconds"] >= product["flops"] / peak["float32"]
    assert peak["float32"] >= product["flops"] / product["seconds"]  # not above the chip's own rate
    assert peak["bfloat16"] == 1e15  # as its maker states


def test_cases_refused_by_a_kernel_are_skipped_with_the_reason(result: dict[str, Any]) -> None:
    assert result["left_out"] == {
        "aten::add.Tensor float32 two": "returned status 5 (unsupported)",
        "aten::add.Tensor bfloat16 two": "no kernel for bfloat16",
    }


def test_enlarging_keeps_what_it_cannot_enlarge(golden: Path) -> None:
    cases = {case.layout: case for case in reversed([*Reader(golden).cases("aten::add.Tensor")])}  # the first
    broadcast, large = cases["broadcast"], cases["large"]
    assert bench_cases.enlarge(broadcast) is broadcast
    tensors = [value for value in bench_cases.enlarge(large).arguments if isinstance(value, Tensor)]
    assert {tensor.shape for tensor in tensors} == {bench_cases.POINTWISE_SHAPE}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--operators", "aten::nosuch"], "unknown operator"),
        (["--driver", "nosuch"], "unknown driver 'nosuch'"),
        (["--library", "absent.py"], "absent.py is not a file"),
    ],
)
def test_wrong_input_is_one_line(golden: Path, options: list[str], message: str) -> None:
    check_refused(conform("bench", "--golden", golden, *options), message)
