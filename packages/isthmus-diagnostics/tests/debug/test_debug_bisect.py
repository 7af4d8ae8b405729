"""`isthmus bisect`: compared numbers, guilty operators, and operators that are never forced."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from isthmus_diagnostics.debug import readings
from isthmus_diagnostics.debug.bisect import Bisect
from isthmus_diagnostics.debug.errors import DebugError
from tests.helpers.debug_jobs import TRAINING, isthmus
from tests.helpers.debug_jobs import job as job  # noqa: PLC0414 - a fixture

PROGRAM = """
import json, os, random, sys
from pathlib import Path
route = os.environ.get("ISTHMUS_ROUTE", "@")[1:]
forced = {line.partition("=")[0] for line in Path(route).read_text().split()} if route else set()
names = [f"aten::op{i}" for i in range(16)]
calls = {f"{n}.out": {"route": "kernel", "calls": 1} for n in names}
calls["aten::view"] = {"route": "native", "calls": 1}
Path(os.environ["ISTHMUS_DEBUG_CALLS"], "1.json").write_text(json.dumps(calls))
own = set(names) - forced
BODY
"""


def bisect(tmp_path: Path, body: str, **options: float) -> tuple[Bisect, list[str]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("BODY", body))
    lines: list[str] = []
    return Bisect([sys.executable, str(path)], dict(os.environ), tell=lines.append, **options), lines  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "guilty", [{"aten::op3"}, {"aten::op0", "aten::op15"}, {"aten::op6", "aten::op7", "aten::op8"}]
)
def test_bisect_finds_every_guilty_operator(tmp_path: Path, guilty: set[str]) -> None:
    search, lines = bisect(tmp_path, f"print('step 1 lm loss: %.8E' % (2 + 0.1 * len(own & {guilty!r})))")
    found = search.find()
    assert {name for group in found.guilty for name in group} == guilty
    assert all(len(group) == 1 for group in found.guilty)
    assert found.runs == sum(line.startswith("run ") for line in lines) and found.runs <= 4 + 8 * len(guilty)
    assert found.reason.endswith(", ".join(sorted(guilty, key=lambda n: int(n[8:]))))


def test_bisect_finds_operators_that_are_wrong_together(tmp_path: Path) -> None:
    search, _ = bisect(tmp_path, "print('loss', 1.0 + 0.5 * ({'aten::op2', 'aten::op12'} <= own))")
    assert search.find().guilty == (("aten::op12", "aten::op2"),)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print('loss:', 1.5)", "no difference: 1.5"),
        ("print('loss:', 10 ** random.uniform(0, 300))", "not deterministic"),
        (
            "print('loss:', 10 ** random.uniform(1, 300) if forced else 1.0)",
            "the reference run is not deterministic",
        ),
        ("print('loss:', float('nan'))", "no difference: nan"),
    ],
)
def test_bisect_explains_why_nothing_was_found(tmp_path: Path, body: str, reason: str) -> None:
    search, _ = bisect(tmp_path, body)
    found = search.find()
    assert found.guilty == () and reason in found.reason


def test_bisect_has_a_tolerance_and_a_metric(tmp_path: Path) -> None:
    body = "print('gap', 1 + 1e-4 * ('aten::op1' in own)); print('loss', random.random())"
    search, _ = bisect(tmp_path, body, tolerance=1e-3)
    search.metric = r"gap ([\d.]+)"
    assert "0.0001 is below --tolerance 0.001; lower it" in search.find().reason
    search.tolerance = 1e-5
    assert search.find().guilty == (("aten::op1",),)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('out of paper')", "exited with status 1: out of paper"),
        ("print('no number')", "no line of the output matches --metric"),
    ],
)
def test_bisect_refuses_a_program_that_it_cannot_judge(tmp_path: Path, body: str, message: str) -> None:
    search, _ = bisect(tmp_path, body)
    with pytest.raises(DebugError, match=message):
        search.find()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lm loss: 5.38E+00 | loss scale: 1.0 | grad norm: 2.0", (5.38,)),
        ("step 1 loss 5.384", (5.384,)),
        ("loss=5.38, lr=0.1", (5.38,)),
        ("{'loss': 5.38, 'epoch': 1}", (5.38,)),
        ("Train_loss: nan", (math.nan,)),
        ("1: loss 6.2\n2: loss 5.8\ndone: loss 6.2 at iteration 1, 5.8 at 2", (6.2, 5.8)),
        ("no loss in 3 steps", ()),
    ],
)
def test_the_loss_is_found(text: str, values: tuple[float, ...]) -> None:
    found = readings.read(text)
    assert found.values == pytest.approx(values, nan_ok=True)
    assert found.line == (text.splitlines()[len(values) - 1] if values else "")


def test_without_a_tolerance_the_noise_of_a_repeated_run_is_one(tmp_path: Path) -> None:
    loss = "print('loss: %.9f' % (2 + {} * ('aten::op1' in own) + {} * (os.getpid() % 2)))"
    search, lines = bisect(tmp_path, loss.format(2e-4, 0))
    assert search.find().guilty == (("aten::op1",),)
    assert any(line.endswith("the last is 2.0002, from the line: loss: 2.000200000") for line in lines)
    search, _ = bisect(tmp_path, loss.format(1e-6, 0))
    assert "5e-07 is below 1e-05" in search.find().reason
    search, _ = bisect(tmp_path, loss.format(2e-4, 0).replace("9f", "3f"))
    assert "no difference" in search.find().reason
    search, _ = bisect(tmp_path, loss.format(6e-4, 0).replace("9f", "3f"))
    assert "one unit in the last printed digit" in search.find().reason


def test_random_operators_and_those_without_the_route_are_never_forced(tmp_path: Path) -> None:
    body = """
file = Path(os.environ["ISTHMUS_DEBUG_CALLS"], "1.json")
calls["aten::op3.out"]["random"], calls["aten::op4.out"]["routes"] = True, ["decomposition"]
if "aten::op5" in forced: calls["aten::op5.out"] = {"route": "none", "calls": 0, "refused": 1}
file.write_text(json.dumps(calls))
if "aten::op5" in forced: sys.exit("a call failed")
print("loss", 1 + ("aten::op3" not in own) + ("aten::op4" not in own) + 0.5 * ("aten::op7" in own))
"""
    search, lines = bisect(tmp_path, body)
    assert search.find().guilty == (("aten::op7",),)
    assert any("they draw random numbers: aten::op3" in line for line in lines)
    assert any("they have no route fallback: aten::op4" in line for line in lines)
    assert any("route fallback does not serve them: aten::op5" in line for line in lines)


@pytest.mark.full
def test_isthmus_bisect_finds_a_planted_kernel(tmp_path: Path, job: dict[str, str]) -> None:
    done = isthmus("bisect", "train.py", cwd=tmp_path, **job)
    assert done.returncode == 3, done.stderr
    assert "because of aten::silu (" in done.stdout
    assert (
        done.stdout.splitlines()[-1] == "aten::silu: ISTHMUS_DEBUG='compare:aten::silu' isthmus run train.py"
    )
    assert "run 1: every operator on the chip's own route" in done.stderr


RANDOM = """
import torch

torch.manual_seed(0)
value = torch.nn.functional.dropout(torch.randn(6, 4, device="cuda"), 0.5)
print("loss:", torch.nn.functional.silu(value).mean().item())
"""


@pytest.mark.full
@pytest.mark.parametrize("route", ["cpu", "decomposition"])
def test_a_chip_with_different_random_numbers_is_not_accused(tmp_path: Path, route: str) -> None:
    (tmp_path / "train.py").write_text(RANDOM)
    done = isthmus(
        "bisect",
        "--reference-route",
        route,
        "train.py",
        cwd=tmp_path,
        ISTHMUS_DRIVER="numpy",
        ISTHMUS_ROUTE="",
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "no difference" in done.stdout
    assert "because they draw random numbers: aten::bernoulli_, aten::normal_" in done.stderr


@pytest.mark.full
def test_isthmus_bisect_reports_invalid_options(tmp_path: Path) -> None:
    done = isthmus("bisect", "--metric", "(", "train.py", cwd=tmp_path)
    assert done.returncode == 2 and "--metric '(': not a regular expression" in done.stderr
    (tmp_path / "train.py").write_text(TRAINING)
    route = {"ISTHMUS_DRIVER": "numpy", "ISTHMUS_ROUTE": "aten::mm=delegate"}
    done = isthmus("bisect", "train.py", cwd=tmp_path, **route)
    assert done.returncode == 1 and "ISTHMUS_ROUTE: aten::mm=delegate: no operator" in done.stderr
