"""The numpy chip, whose operators are NumPy functions, and the chip that the tutorial builds step by step."""

from __future__ import annotations

import doctest
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.drivers import find
from isthmus.drivers.libraries import load
from isthmus.drivers.numpy.operators import ABSENT, library
from isthmus.opset import operators
from isthmus.opset.tiers import tiers
from tests.helpers.children import output, start_module
from tools.repository import ROOT

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
NEVER = re.compile(r"(?!)")
ISTHMUS = (sys.executable, "-m", "isthmus")


def run(*command: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=environment, cwd=cwd
    )


def train(driver: str, output: Path, *flags: str) -> tuple[list[float], str]:
    """Losses of the tiny LLaMA by iteration, and its output."""
    example = str(ROOT / "examples" / "pretrain_llama.py")
    script = (example, "--tiny", "--output", str(output), *flags)
    result = run(*ISTHMUS, "run", "--driver", driver, *script, ISTHMUS_STRICT="1")
    assert result.returncode == 0, result.stderr[-2000:]
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record], result.stderr


# ---- The shipped chip ----------------------------------------------------------------------------------


def test_it_has_no_delegate_and_no_fallback() -> None:
    candidate = find("numpy").candidates[0]
    assert (candidate.delegate, candidate.fallback) == ("none", False)
    assert [Path(path).name for path in candidate.operators] == ["operators.py"]


@pytest.mark.full
def test_its_first_use_prints_nothing() -> None:
    code = "import torch; assert torch.ones(2, device='chip').to_sparse()._nnz() == 2"
    done = run(sys.executable, "-c", code, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("tier", sorted(tiers()))
def test_it_has_a_kernel_for_every_operator_of_a_tier(tier: str) -> None:
    claimed = load(find("numpy").candidates[0].operators[0]).operators
    assert not set(tiers()[tier]) - set(claimed)


def test_it_has_a_kernel_for_every_operator_but_those_absent_for_a_reason() -> None:
    assert set(operators()) - set(library.entries) == set(ABSENT)
    assert all(ABSENT.values())


@pytest.mark.full
def test_llama_trains_as_on_the_cpu(tmp_path: Path) -> None:
    found, printed = train("numpy", tmp_path / "numpy", "--no-bf16")
    expected, _ = train("host", tmp_path / "host", "--no-bf16")
    assert len(found) == len(expected) == 20
    assert found[-1] < found[0] - 0.5
    assert all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(found[:10], expected[:10], strict=True)), (
        found,
        expected,
    )
    assert re.search(r"operators: 0 delegate, \d+ kernel, \d+ decomposed, 0 fallback", printed)


@pytest.mark.full
def test_dropout_in_bfloat16_repeats_with_the_seed(tmp_path: Path) -> None:
    flags = ("--dropout", "0.1", "--iterations", "4", "--warmup", "1")
    first, again, other = (
        train("numpy", tmp_path / name, *flags, "--seed", seed)[0]
        for name, seed in (("first", "7"), ("again", "7"), ("other", "8"))
    )
    assert first == again
    assert first != other


def test_routes_are_native_kernel_decomposition_or_none() -> None:
    child = start_module("isthmus", "ops", ISTHMUS_DRIVER="numpy")
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0, err
    rows = [line.split("\t") for line in out.splitlines() if line.startswith("aten::")]
    assert {row[1] for row in rows} == {"native", "kernel", "decomposition", "none"}


def test_an_lstm_is_computed_without_onednn() -> None:
    code = """
        import torch
        layer = torch.nn.LSTM(4, 5)
        x = torch.randn(3, 2, 4)
        expected = layer(x)[0].detach()
        found = layer.to("chip")(x.to("chip"))[0]
        found.sum().backward()
        torch.testing.assert_close(found.detach().cpu(), expected)
        print(found.device.type)
    """
    assert output(code, ISTHMUS_DRIVER="numpy") == "chip"


HALVES_WITH_NUMBERS = """
    import torch
    from torch import div, floor_divide, mul

    def same(f, x, *arguments, **out):
        expected, found = f(x.clone(), *arguments), f(x.to("chip"), *arguments, **out)
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)

    def floor(x, y, **out): return div(x, y, rounding_mode="floor", **out)
    def trunc(x, y, **out): return div(x, y, rounding_mode="trunc", **out)
    def in_place(x): return x.mul_(0.1).div_(3).div_(0.7, rounding_mode="floor").floor_divide_(1e-2)

    bits = torch.randint(0, 256, (8192,), dtype=torch.uint8)
    for x in (bits.view(torch.float16), bits.view(torch.bfloat16), bits.view(torch.float16)[0]):
        same(in_place, x)
        same(lambda x: 0.1 * x, x)
        for number in (0.1, -0.7, 1e5, 1e-7, 7, torch.tensor(0.3)):
            for f in (mul, div, floor, trunc, floor_divide):
                same(f, x, number)
                same(f, x, number, out=torch.empty(x.shape, dtype=torch.result_type(x, number), device="chip"))
    print("same")
"""


def test_a_number_that_multiplies_or_divides_halves_is_not_rounded_to_one() -> None:
    assert output(HALVES_WITH_NUMBERS, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1") == "same"


# ---- The chip of the tutorial --------------------------------------------------------------------------


@pytest.mark.full
def test_the_tutorial_builds_a_chip_that_trains(tmp_path: Path) -> None:
    """Blocks run in order: toml is a file of the chip, python extends operators.py, console is run and compared."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    chip = tmp_path / "mychip"
    names = ("bring-up.md", "bring-up-failures.md", "bring-up-training.md")
    pages = [ROOT / "docs" / "chip-makers" / name for name in names]
    for match in BLOCK.finditer("".join(page.read_text() for page in pages)):
        if match["language"] == "toml":
            name = "known_failures.toml" if match["body"].startswith("[[failure]]") else "driver.toml"
            (chip / name).write_text(match["body"])
        elif match["language"] == "python":
            with (chip / "operators.py").open("a") as file:
                file.write(match["body"])
        elif match["language"] == "console":
            check_console(match["body"], tmp_path)
    lines = [len((chip / name).read_text().splitlines()) for name in ("driver.toml", "operators.py")]
    assert sum(lines) < 300


@pytest.mark.full
def test_the_page_of_conformance_shows_real_output(tmp_path: Path) -> None:
    """Python blocks are files, named by their first line. Numbers differ with the samples and are not compared."""
    page = (ROOT / "docs" / "chip-makers" / "conformance.md").read_text()
    for match in BLOCK.finditer(page):
        if match["language"] == "python":
            (tmp_path / match["body"].partition("\n")[0].removeprefix("# ")).write_text(match["body"])
        elif match["language"] == "console":
            check_console(match["body"], tmp_path, ignored=re.compile(r"\d[\d.]*(?:e[+-]\d+)?"))


def check_console(body: str, folder: Path, ignored: re.Pattern[str] = NEVER) -> None:
    """Run the commands of a console block and compare their output, without what matches ``ignored``."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        result = run("bash", "-euo", "pipefail", "-c", f"({command}) 2>&1", cwd=folder)
        printed = result.stdout.expandtabs()
        succeeds = "FAILED" not in expected and "NOT RUN" not in expected
        assert (result.returncode == 0) == succeeds, f"$ {command}\n{printed}"
        if expected.strip():
            expected, printed = ignored.sub("", expected), ignored.sub("", printed)
            matches = doctest.OutputChecker().check_output(expected.expandtabs(), printed, doctest.ELLIPSIS)
            assert matches, f"$ {command}\nexpected:\n{expected}\nprinted:\n{printed[-3000:]}"
