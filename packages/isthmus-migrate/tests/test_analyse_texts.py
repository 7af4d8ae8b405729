"""Requirements and shell scripts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus_migrate.rules.requirements import examine_requirements
from isthmus_migrate.rules.shell import examine_shell
from isthmus_migrate.source import third_party
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import Finding

Detector = Callable[[Source], Iterator[Finding]]


def found(detect: Detector, text: str) -> list[tuple[str, str, int]]:
    source = Source(Path("x"), "x", Kind.SHELL, text.encode(), text, "utf-8")
    return [(finding.code, finding.subject, finding.line) for finding in detect(source)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flash-attn>=2", [("IM302", "flash-attn", 2)]),
        ("nvidia-dali-cuda120==1.0", [("IM301", "nvidia-dali-cuda120", 2)]),
        ("spconv-cu118", [("IM301", "spconv-cu118", 2)]),
        ("nvidia-cublas-cu12==12.1", [("IM311", "nvidia-cublas-cu12", 2)]),
        ("  - cudatoolkit=11.8", [("IM311", "cudatoolkit", 2)]),
        ("torch==2.3.0+cu121", [("IM312", "torch==2.3.0+cu121", 2)]),
        ("--extra-index-url https://example.org/whl/cu121", [("IM312", "https://example.org/whl/cu121", 2)]),
        (
            'dependencies = ["xformers", "numpy", "deepspeed>=0.14"]',
            [("IM302", "xformers", 2), ("IM303", "deepspeed", 2)],
        ),
        ("# apex", []),
        ("numpy # apex", []),
        ("apexpy", []),
        ("torch>=2", []),
    ],
)
def test_requirements(line: str, expected: list[tuple[str, str, int]]):
    assert found(examine_requirements, f"tqdm\n{line}\n") == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python -m torch.distributed.launch --nproc_per_node 8 t.py", [("IM220", "torch.distributed.launch", 2)]),
        ("nvidia-smi -L", [("IM321", "nvidia-smi", 2)]),
        ("CUDA_VISIBLE_DEVICES=0,1 python t.py", [("IM129", "CUDA_VISIBLE_DEVICES", 2)]),
        ("export NCCL_DEBUG=INFO TORCH_NCCL_BLOCKING_WAIT=1",
         [("IM222", "NCCL_DEBUG, TORCH_NCCL_BLOCKING_WAIT", 2)]),
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", [("IM129", "PYTORCH_CUDA_ALLOC_CONF", 2)]),
        ("pip install -f https://example.org/whl/cu121 torch", [("IM312", "https://example.org/whl/cu121", 2)]),
        ("# nvidia-smi", []),
        ("torchrun t.py", []),
    ],
)  # fmt: skip
def test_shell(line: str, expected: list[tuple[str, str, int]]):
    assert found(examine_shell, f"set -e\n{line}\n") == expected


def test_packages_of_every_library_with_another_name():
    assert all(third_party.library(module) for module in third_party.DISTRIBUTIONS.values())


@pytest.mark.parametrize(
    ("line", "is_older"),
    [
        ("torch==2.1.0", True),
        ("torch>=2.1,<2.3", True),
        ("  - pytorch=1.11.0", True),
        ("torch~=2.5.0", True),
        ("torch>=2.1", False),
        ("torch==2.13.0", False),
        ("torch", False),
        ("torchvision==0.15", False),
    ],
)
def test_a_requirement_of_an_older_pytorch(line: str, is_older: bool):
    codes = [code for code, _, _ in found(examine_requirements, f"{line}\n")]
    assert ("IM313" in codes) is is_older
