"""Shell scripts that start torch.distributed.launch start torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.migrate.convert.engine import Result
from isthmus.migrate.convert.shell import convert_shell
from isthmus.migrate.source.files import Kind, Source

CASES = {
    "python -m torch.distributed.launch --nproc_per_node=8 train.py --lr 1\n": (
        "torchrun --nproc_per_node=8 train.py --lr 1\n"
    ),
    "CUDA_VISIBLE_DEVICES=0,1 python3 -u -m torch.distributed.launch --nproc_per_node 2 --use_env a.py": (
        "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 a.py"
    ),
    "$PYTHON -W ignore -m torch.distributed.launch a.py\r\n": (
        "$PYTHON -W ignore -m torch.distributed.run a.py\r\n"
    ),
    "python -m torch.distributed.launch \\\n    --nproc_per_node=8 \\\n    --use-env \\\n    train.py\n": (
        "torchrun \\\n    --nproc_per_node=8 \\\n    train.py\n"
    ),
}
UNCHANGED = (
    "# python -m torch.distributed.launch was used before\n",
    "torchrun --nproc_per_node=8 train.py\n",
    "python train.py --use_env\n",
)


def converted(text: str) -> Result:
    return convert_shell(Source(Path("run.sh"), "run.sh", Kind.SHELL, text.encode(), text, "utf-8"))


@pytest.mark.parametrize("before", CASES)
def test_launch_becomes_torchrun(before: str) -> None:
    result = converted(before)
    assert result.text == CASES[before]
    assert {change.code for change in result.changes} == {"IM220"}
    again = converted(result.text)
    assert (again.text, list(again.changes)) == (result.text, [])


@pytest.mark.parametrize("text", UNCHANGED)
def test_other_lines_stay(text: str) -> None:
    result = converted(text)
    assert (result.text, list(result.changes)) == (text, [])


def test_changes_have_the_lines_of_the_script() -> None:
    text = "set -e\npython -m torch.distributed.launch \\\n  --use_env \\\n  train.py\necho --use_env\n"
    result = converted(text)
    assert result.text == "set -e\ntorchrun \\\n  train.py\necho --use_env\n"
    assert [change.line for change in result.changes] == [2, 3]
