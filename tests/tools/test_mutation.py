"""Mutation testing: mutants are as described, and the suite detects them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from isthmus import opset
from isthmus.conformance.generate import generate
from isthmus.conformance.golden import Reader
from tests.helpers.conformance_data import write_golden
from tests.helpers.planted import PLANTED
from tools.mutation import bank, classes, equivalent, kernel_mutants, ranks, reductions, source
from tools.mutation.__main__ import app
from tools.mutation.classes.accumulation import toward_zero
from tools.mutation.classes.layout import dense, with_strides
from tools.mutation.draw import choose_named, draw
from tools.mutation.kernel import Call, Invocation, target
from tools.mutation.mutant import CLASSES, Mutant
from tools.mutation.source import Source
from tools.mutation.trial import Sources, mutants_around
from tools.repository import ROOT

Array = np.ndarray[Any, np.dtype[Any]]
# A sum, a product, random numbers, a choice.
SOME = "aten::add.Tensor,aten::addmm,aten::uniform_,aten::gather"
LIBRARY = """
import numpy as np
from isthmus.opset.dtypes import FLOATS
from isthmus.opset.library import Library

library = Library("small")

@library.operator("aten::sub.Tensor", dtypes=FLOATS)
def subtract(x, y, alpha, out):
    out[...] = x - alpha * y

@library.operator("aten::rsqrt", dtypes=FLOATS)
def rsqrt(x, out):
    out[...] = 1 / np.sqrt(x + 0.5)
"""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(write_golden(tmp_path_factory.mktemp("golden")))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The opset's own cases of a few operators."""
    folder = tmp_path_factory.mktemp("samples")
    generate(folder, SOME)
    return Reader(folder)


@pytest.fixture
def small(tmp_path: Path) -> Source:
    file = tmp_path / "small.py"
    file.write_text(LIBRARY)
    return Source(file)


def subtract(small: Source) -> list[float]:
    out = np.zeros(2)
    small.library.entries["aten::sub.Tensor"].function(np.array([5.0, 1.0]), np.array([2.0, 3.0]), 2.0, out)
    return [float(x) for x in out]


def test_each_source_mutant_is_active_alone(small: Source) -> None:
    right = subtract(small)
    assert right == [1.0, -5.0]
    found = {}
    for site in small.sites:
        if site.number in small.reached:
            small.active = site.number
            found[site.mutation, site.after] = subtract(small)
    assert found["operator replaced", "x + alpha * y"] == [9.0, 7.0]
    assert found["source operands swapped", "alpha * y - x"] == [-1.0, 5.0]
    assert found["term dropped", "x"] == [5.0, 1.0]
    assert found["term dropped", "y"] == [3.0, -2.0]
    assert found["statement dropped", ""] == [0.0, 0.0]
    small.active = -1
    assert subtract(small) == right


def test_reached_mutants_are_recorded(small: Source) -> None:
    subtract(small)
    reached = {site.before for site in small.sites if site.number in small.reached}
    assert "x - alpha * y" in reached
    assert "np.sqrt(x + 0.5)" not in reached


def test_eps_moves_outside_the_root(small: Source) -> None:
    (site,) = [s for s in small.sites if s.mutation == "eps outside the root"]
    small.active, out = site.number, np.zeros(1)
    small.library.entries["aten::rsqrt"].function(np.array([4.0]), out)
    assert out[0] == 1 / 2.5


def test_truncation_is_toward_zero() -> None:
    values = np.array([1 + 2**-8 + 2**-9, -1 - 2**-7 - 2**-9, 1e39, -np.inf, 2.0**-140])
    expected = [1.0, -1 - 2**-7, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), -np.inf, 0.0]
    assert toward_zero(values, "bfloat16").astype(np.float64).tolist() == expected


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources()


@pytest.fixture(scope="module")
def everything(sources: Sources) -> list[Mutant]:
    names = list(sources.numpy.library.entries)
    return [*mutants_around(names, sources), *sources.mutants()]


def test_every_family_of_the_opset_has_kernels_to_mutate(sources: Sources) -> None:
    library = sources.numpy.library.entries
    covered = {operator.family for name, operator in opset.operators().items() if name in library}
    assert covered == set(opset.FAMILIES)


def test_every_class_has_mistakes_and_reports() -> None:
    reported = [report.kind for report in bank.REPORTS]
    for kind in CLASSES:
        assert len(classes.MUTATIONS[kind]) + len(source.MUTATIONS.get(kind, ())) >= 5
        assert reported.count(kind) >= 10


def test_names_are_unique_and_chosen_again_in_the_same_order(everything: list[Mutant]) -> None:
    assert len({mutant.name for mutant in everything}) == len(everything) > 10_000
    chosen = draw(everything, [1], 10)
    assert len(chosen) == 10 * len(CLASSES)
    assert draw(reversed(everything), [1], 10) == chosen == choose_named(everything, [m.name for m in chosen])
    other = draw(everything, [2], 10)
    assert len({m.name for m in other} - {m.name for m in chosen}) > 50
    assert {m.name for m in draw(everything, [1, 2], 10)} == {m.name for m in [*chosen, *other]}
    with pytest.raises(ValueError, match="1 unknown mutants, the first is 'aten::none: no such'"):
        choose_named(everything, ["aten::none: no such"])


def test_a_draw_takes_turns_among_the_mistakes_of_a_class(everything: list[Mutant]) -> None:
    tail = [m.mutation for m in draw(everything, [3], 40) if m.kind == "tail"]
    assert all(tail.count(name) >= 4 for name in ("tail not written", "comparison moved"))


@pytest.mark.parametrize(
    ("operator", "mutation", "applies"),
    [
        ("aten::bmm", "ranks collapsed", True),
        ("aten::mm", "ranks dropped", False),
        ("aten::dot", "pitch of rows", False),
        ("aten::sum", "partial block lost", False),
        ("aten::_amp_update_scale_", "partial block lost", False),
        ("aten::max.dim", "row of -inf", True),
        ("aten::argmax", "row of -inf", False),
        ("aten::minimum", "row of -inf", False),
        ("aten::bitwise_and.Tensor", "NaN lost", False),
        ("aten::add.Tensor", "integers saturate", True),
        ("aten::relu", "integers saturate", False),
        ("aten::gather", "indices cut to 16 bits", True),
        ("aten::uniform_", "seed ignored", True),
        ("aten::relu", "seed ignored", False),
    ],
)
def test_a_mistake_applies_where_a_kernel_can_have_it(
    sources: Sources, operator: str, mutation: str, applies: bool
) -> None:
    found = {m.mutation for m in classes.mutants(target(operator, sources.numpy.library.entries[operator]))}
    assert (mutation in found) == applies


def changed(everything: list[Mutant], name: str, x: Array, *rest: Any) -> Array:
    """Call the mutant of a copying kernel; the outputs hold -1 before."""
    (mutant,) = [m for m in everything if m.name == name]
    assert mutant.wrong
    out = np.full(x.shape, -1, x.dtype)
    right: Call = lambda call: np.copyto(call.outputs[0], call.inputs[0])  # noqa: E731
    context: Any = None
    mutant.wrong()(right, Invocation(opset.schema_of(mutant.kernel), [x, *rest], [out], context))
    return out


def test_mistakes_of_blocks_tails_and_indices(everything: list[Mutant]) -> None:
    x = np.arange(70, dtype=np.int64)
    assert changed(everything, "aten::abs: partial block lost (32)", x).tolist() == [*range(64), *[-1] * 6]
    assert changed(everything, "aten::abs: second block repeats the first (32)", x)[32:64].tolist() == [
        *range(32)
    ]
    assert changed(everything, "aten::abs: tail not written (4)", x).tolist() == [*range(68), -1, -1]
    assert changed(everything, "aten::abs: tail shifted (4)", x)[-2:].tolist() == [66, 67]
    many = np.arange(70_000, dtype=np.int64)
    assert changed(everything, "aten::abs: element index cut (16)", many)[65536:65539].tolist() == [0, 1, 2]
    assert changed(everything, "aten::abs: sign of a 16-bit index", many)[32767:32769].tolist() == [32767, -1]
    rows = np.arange(6.0).reshape(2, 3)
    assert changed(everything, "aten::abs: pitch of rows (self)", rows).tolist() == [[0, 1, 2], [2, 3, 4]]


def test_an_unaligned_address_is_rounded_down(everything: list[Mutant]) -> None:
    memory = np.arange(64, dtype=np.float32)
    start = -memory.ctypes.data % 64 // 4 + 3  # 12 bytes behind an aligned address
    x = memory[start : start + 4]
    name = "aten::relu: read from an address rounded to 16 (self)"
    assert changed(everything, name, x).tolist() == memory[start - 3 : start + 1].tolist()
    assert (
        changed(everything, name, memory[start - 3 : start + 1]).tolist()
        == memory[start - 3 : start + 1].tolist()
    )


def test_other_strides_stay_within_the_memory() -> None:
    x = np.arange(12).reshape(3, 4)[:, ::2]
    assert with_strides(x, dense(x.shape)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert with_strides(np.arange(3)[:, None], [2, 1]).tolist() == [[0], [2], [~2]]


def test_integers_saturate_and_numbers_lose_their_fraction(everything: list[Mutant]) -> None:
    chosen = {m.name: m for m in everything if m.kernel == "aten::add.Tensor"}

    def added(name: str, a: Any, b: Any, alpha: Any) -> list[Any]:
        out = np.zeros(len(a), a.dtype)
        right: Call = lambda call: np.copyto(  # noqa: E731
            call.outputs[0], call.inputs[0] + call.inputs[2] * call.inputs[1], casting="unsafe"
        )
        wrong, context = chosen[name].wrong, None
        assert wrong
        wrong()(right, Invocation(opset.schema_of("aten::add.Tensor"), [a, b, alpha], [out], context))  # type: ignore
        return list(out.tolist())

    large = np.array([120], np.int8)
    assert added("aten::add.Tensor: integers saturate", large, large, 1) == [127]
    ones = np.ones(1)
    assert added("aten::add.Tensor: integer part (alpha)", ones, ones, 2.5) == [3.0]
    assert added("aten::add.Tensor: replaced by its default (alpha)", ones, ones, 2.5) == [2.0]


def test_reductions_with_mistakes() -> None:
    ones = np.ones((2, 5000))
    assert reductions.mutants("sum")["stops at 4096"](ones, axis=1).tolist() == [4096, 4096]
    assert reductions.mutants("sum")["accumulated in float16"](ones, axis=1).tolist() == [2048, 2048]
    assert reductions.mutants("mean")["accumulated in float32"](
        ones, axis=(0, 1), keepdims=True
    ).tolist() == [[1]]
    assert reductions.mutants("amax")["NaN not propagated"](np.array([1.0, np.nan])) == 1
    assert reductions.mutants("matmul")["stops at 4096"](ones, ones.T).tolist() == [[4096] * 2] * 2
    spread = reductions.mutants("var")["variance in one pass"](np.array([1e4, 1e4 + 1]), ddof=1)
    assert abs(float(spread) - 0.5) > 0.1


def test_text_of_a_compiled_kernel_gets_its_mutants() -> None:
    text = "{\n  for (int64_t i = 0; i < n; ++i) y[i] = x[i] - 1;\n  constexpr int64_t k = n - 1;\n}\n"
    sites = [site._replace(number=n) for n, site in enumerate(kernel_mutants.sites_of("a.cpp", text))]
    assert [site.mutation for site in sites] == [
        "C++ loop starts late",
        "C++ loop ends early",
        "C++ sign changed",
    ]
    assert {site.place for site in sites} == {"a.cpp:2"}
    woven = kernel_mutants.weave_mutants("a.cpp", text, sites)
    assert "i = 0 + mutated(0); i < n - mutated(1); ++i" in woven
    assert "x[i] - (1 - 2 * mutated(2)) * 1" in woven


@pytest.mark.parametrize(
    "line",
    [
        "at::parallel_for(0, rows, rows_per_task(n * max(1, m)), [&](int64_t begin, int64_t end) {",
        "for (; i + kSize <= n; i += kSize) body(i, kSize);",
        "if (r != nullptr) prefetch(r + i);",
        "for (int64_t row = 0; row < rows; ++row)\n  TORCH_CHECK(row < 5);",
    ],
)
def test_what_holds_no_result_of_a_compiled_kernel_has_no_mutants(line: str) -> None:
    assert list(kernel_mutants.sites_of("a.cpp", line)) == []
    rounded = "const int64_t blocks = (length + kBlock - 1) / kBlock;"
    assert len(list(kernel_mutants.sites_of("a.cpp", rounded))) == 1  # fewer blocks, not more


def test_no_argument_exceeds_its_rank() -> None:
    assert ranks.largest_rank("aten::mm", "self") == 2
    assert ranks.largest_rank("aten::native_batch_norm", "weight") == 1
    assert ranks.largest_rank("aten::add.Tensor", "other") == ranks.ANY


def finished(job: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.mutation_jobs", job, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)


def outcome(job: str, folder: Path) -> dict[str, Any]:
    done = finished(job, folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.full
def test_the_suite_judges_some_mistakes_of_each_class(samples: Reader) -> None:
    score = outcome("some", samples.folder)
    assert score["false_alarms"] == []
    caught = {result["kind"] for result in score["results"] if result["status"] == "caught"}
    assert caught == {result["kind"] for result in score["results"]} == set(CLASSES)


@pytest.mark.full
def test_the_suite_judges_mistakes_of_single_kernels(tmp_path: Path) -> None:
    generate(tmp_path, ",".join({mutant.kernel for mutant in PLANTED}))
    score = outcome("score_of_planted", tmp_path)
    assert [r["name"] for r in score["results"] if r["status"] != "caught"] == score["false_alarms"] == []
    assert len(score["results"]) == len(PLANTED)


def test_a_mutant_that_kills_the_process_is_caught_and_the_next_is_tried(golden: Reader) -> None:
    results = outcome("crashes", golden.folder)["results"]
    assert [r["status"] for r in results] == ["caught", "caught", "survived", "caught"]
    assert "exit code -6" in results[0]["message"]
    assert results[1]["raised"] and "a bug of the kernel" in results[1]["message"]
    assert results[2]["message"] == "bit-identical in every case"


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("broken_bench", "MutationError: aten::mul.Tensor: KeyError: 'bench'"),
        ("with_pytorch", "MutationError: PyTorch is loaded in this process"),
    ],
)
def test_a_broken_bench_is_not_a_success(golden: Reader, job: str, message: str) -> None:
    done = finished(job, golden.folder)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.full
def test_a_right_kernel_that_is_refused_is_a_false_alarm(golden: Reader) -> None:
    assert outcome("refusing_suite", golden.folder)["false_alarms"] == ["aten::cat: refused"]


def test_proofs_are_sentences_about_operators_that_exist() -> None:
    names = list(opset.operators())
    for entry in equivalent.EQUIVALENCES:
        assert len(entry.proof.split()) >= 3
        assert bool(equivalent.names(entry, names)) == bool(entry.operators), entry.operators


@pytest.mark.full
def test_the_command_writes_a_score_and_repeats_it(tmp_path: Path, samples: Reader) -> None:
    file, again, text = (tmp_path / name for name in ("mutation.json", "again.json", "page.md"))
    command = [sys.executable, "-m", "tools.mutation", "--golden", str(samples.folder)]
    command += ["--operators", "aten::addmm"]
    first = [*command, "--per-class", "2", "--output", str(file)]
    done = subprocess.run(first, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    score = json.loads(file.read_text())
    enough = all(row["score"] is None or row["score"] >= 0.95 for row in score["classes"].values())
    assert done.returncode == (0 if enough and score["score"] >= 0.98 else 1), done.stderr
    assert score["mutants"] == score["caught"] + score["survived"] + score["equivalent"] >= 15
    assert file.stat().st_mode & 0o777 == 0o640
    second = [*command, "--mutants", str(file), "--against", str(file)]
    second += ["--output", str(again), "--page", str(text)]
    done = subprocess.run(second, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert json.loads(again.read_text())["classes"] == score["classes"], done.stderr
    assert "before" in done.stdout
    assert "| **all** |" in text.read_text()


@pytest.mark.full
def test_the_bank_alone_writes_its_result(tmp_path: Path, samples: Reader) -> None:
    file = tmp_path / "result.json"
    command = [sys.executable, "-m", "tools.mutation.bank", "tenstorrent/tt-metal#54138"]
    command += ["--golden", str(samples.folder), "--output", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 reports detected" in done.stdout
    (report,) = json.loads(file.read_text())["reports"]
    (result,) = report["results"]
    assert report["thread"] == "tenstorrent/tt-metal#54138"
    assert (result["operator"], result["status"]) == ("aten::add.Tensor", "caught")


def test_wrong_input_ends_in_one_line(samples: Reader) -> None:
    result = CliRunner().invoke(app, ["--golden", str(samples.folder), "--mutants", "/none.json"])
    assert result.exit_code == 2
    assert "/none.json: No such file or directory" in result.output
    result = CliRunner().invoke(app, ["--golden", str(samples.folder), "--operators", "aten::none"])
    assert result.exit_code == 2
    assert "--operators aten::none: unknown" in result.output
