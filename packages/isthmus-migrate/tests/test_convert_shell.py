"""Shell scripts that start torch.distributed.launch start torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import Result
from isthmus_migrate.convert.shell import convert_shell
from isthmus_migrate.source.files import Kind, Source

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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("FROM nvidia/cuda:12.1.0-devel-ubuntu22.04", [("IM311", "nvidia/cuda:12.1.0-devel-ubuntu22.04", 6)]),
        ("FROM pytorch/pytorch:2.8.0-cuda12.8 AS base", [("IM311", "pytorch/pytorch:2.8.0-cuda12.8", 6)]),
        ("FROM ubuntu:24.04", []),
        ("docker run --gpus all image train.py --gpus 4", [("IM321", "--gpus all", 12)]),
        ("    runtime: nvidia", [("IM321", "runtime: nvidia", 5)]),
        (
            "RUN pip install -r a.txt numpy 'flash-attn>=2' onnxruntime-gpu && ls cupy",
            [("IM302", "flash-attn", 33), ("IM303", "onnxruntime-gpu", 48)],
        ),
        ("pip install cupy-cuda12x==13.0", [("IM301", "cupy-cuda12x", 13)]),
        (
            'CUDA_HOME=${CUDA_HOME:-/usr} TORCH_CUDA_ARCH_LIST="9.0" make',
            [("IM129", "CUDA_HOME, TORCH_CUDA_ARCH_LIST", 1)],
        ),
        ("ENV NVIDIA_DRIVER_CAPABILITIES=all", [("IM129", "NVIDIA_DRIVER_CAPABILITIES", 5)]),
    ],
)
def test_what_depends_on_cuda_is_listed(line: str, expected: list[tuple[str, str, int]]) -> None:
    assert [(each.code, each.subject, each.column) for each in converted(f"{line}\n").findings] == expected
