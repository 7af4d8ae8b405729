"""Random programs and captures: the chip's results are the CPU's, and the fuzzer sees a difference."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch

from tests.helpers.children import ROOT, output
from tools.fuzz.operations import Operations, Pool, Step
from tools.fuzz.programs import EXACT, Difference, Program

pytestmark = pytest.mark.filterwarnings("ignore")

SUMMARY = (
    r"^(\d+) programs and (\d+) captures of 12 steps on \w+: 0 different, (\d+) calls refused, "
    r"(\d+) of them without a route, (\d+) replays compared$"
)


@pytest.mark.parametrize("seed", range(30))
def test_program_is_bit_equal_to_the_cpu(seed):
    program = Program(seed, EXACT)
    program.eager(12)
    assert program.refused <= 6 and program.without_route == 0


@pytest.mark.parametrize("seed", range(30))
def test_capture_changes_nothing_and_its_replay_is_the_eager_run(seed):
    program = Program(seed, EXACT)
    program.captured(8)
    assert program.replays > 0


@pytest.mark.parametrize("driver, programs, captures", [("numpy", 60, 40)])
def test_programs_and_captures_on_a_chip_with_kernels_of_its_own(driver, programs, captures):
    code = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        sys.argv = ["fuzz", "--programs", "{programs}", "--captures", "{captures}"]
        from tools.fuzz.__main__ import main
        assert main() == 0
    """
    counts = re.match(SUMMARY, output(code, ISTHMUS_DRIVER=driver))
    assert counts is not None
    *made, refused, without_route, replays = map(int, counts.groups())
    assert made == [programs, captures]
    assert refused <= 0.3 * 12 * programs and without_route <= 0.12 * 12 * programs
    assert replays >= captures


def test_calls_without_a_route_are_counted(monkeypatch):
    def refuse(pool: Pool) -> None:
        if not pool[0].is_cpu:
            raise NotImplementedError("aten::add.Tensor has no route on chip 'x'")

    monkeypatch.setattr(Operations, "step", lambda self: Step("refuse", refuse))
    program = Program(2, EXACT)
    program.eager(5)
    assert (program.refused, program.without_route, program.replays) == (5, 5, 0)
    program.captured(3)
    assert program.replays == 2, "of a capture without the steps that have no route"


@pytest.mark.parametrize(
    "step",
    [
        Step("value", lambda pool: pool[0].add_(pool[0].device.type == "chip")),
        Step("result", lambda pool: torch.full((2,), 1.0 if pool[0].is_cpu else 1.5, device=pool[0].device)),
        Step("dtype", lambda pool: pool[0].double() if pool[0].is_cpu else pool[0].float()),
        Step("error", lambda pool: pool[0].expand(-7) if pool[0].is_cpu else pool[0]),
    ],
    ids=lambda step: step.name,
)
def test_a_difference_is_reported_with_the_steps(step, monkeypatch):
    monkeypatch.setattr(Operations, "step", lambda self: step)
    with pytest.raises(Difference, match=f"{step.name}.*; steps: {step.name}$"):
        Program(2, EXACT).eager(1)


def test_a_capture_that_leaves_a_change_is_reported(monkeypatch):
    def write(pool: Pool) -> None:
        if not pool[0].is_cpu:  # past the core, which therefore cannot restore it
            ctypes.memset(pool[0].data_ptr(), 1, pool[0].nbytes)

    monkeypatch.setattr(Operations, "step", lambda self: Step("write", write))
    with pytest.raises(Difference, match="capture: tensor 0"):
        Program(2, EXACT).captured(1)
