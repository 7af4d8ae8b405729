"""Scripts with known answers, written from PyTorch's documentation without a look at the shim or the converter.

Each trap has its lines of output in comments, ``# answer: LINE``, as a machine with CUDA prints them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.command import isthmus, run

TRAPS = sorted((Path(__file__).parent / "traps").glob("*.py"))
ANSWER = re.compile(r"^# answer: (.*)$", re.MULTILINE)
# What `isthmus run` answers otherwise, by trap.
DEFECTS = {
    "child_interpreter_from_string": "`python -c` in a child is not adapted; CUDA_VISIBLE_DEVICES='' hides no chip",
    "cuda_module_by_getattr_and_importlib": "operator.attrgetter sees the chip's is_cuda and device",
    "default_tensor_type": "torch.Tensor() ignores set_default_tensor_type",
    "device_string_surgery": "format() and repr() of a device name the chip",
    "exec_and_eval_templates": "the text of eval() is not adapted",
    "is_cuda_of_everything": "the chip has no sparse tensors",
    "match_on_device_class": "a class pattern sees the chip's device type",
}


CASES = pytest.mark.parametrize(
    "trap",
    [
        pytest.param(path, marks=[pytest.mark.xfail(reason=DEFECTS[path.stem], strict=True)])
        if path.stem in DEFECTS
        else path
        for path in TRAPS
    ],
    ids=lambda path: path.stem,
)


@pytest.mark.sampled(4)
@CASES
def test_isthmus_run_prints_the_answers(trap: Path) -> None:
    done = run("--quiet", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())


@pytest.mark.sampled(4)
@CASES
def test_tracing_changes_no_answer(trap: Path, tmp_path: Path) -> None:
    done = isthmus("migrate", "trace", "-o", tmp_path / "evidence.json", trap)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ANSWER.findall(trap.read_text())
