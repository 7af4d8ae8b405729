"""The real MindSpore loads, merges, splits and joins what is written, and the reverse. See `make differential`."""

import os
import subprocess

import pytest
import torch

from isthmus_formats.checkpoint import strategy
from isthmus_formats.checkpoint.containers import mindspore_file, safetensors_file
from tests.helpers.checkpoints import CONFIGS, check_same, checkpoint, convert_checkpoint, write_random
from tools.repository import ROOT

PYTHON = os.environ.get("ISTHMUS_TEST_MINDSPORE", "")
SCRIPT = ROOT / "tests" / "helpers" / "checkpoint_mindspore.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="ISTHMUS_TEST_MINDSPORE is not set to an interpreter that has mindspore"
    ),
]


SIZES = ["--tp 2", "--tp 2 --dp 2", "--tp 2 --pp 2 --dp 2"]
FUSED = [
    "--names concatenated --dp 16",
    "--names concatenated --tp 2 --dp 3",
    "--names concatenated --dp 5 --pp 2",
]
CASES = [(name, sizes) for name in ("llama", "llama-tied-biased", "mixtral") for sizes in SIZES]
CASES += [(name, sizes) for name in ("llama", "llama-tied-biased") for sizes in FUSED]


@pytest.mark.parametrize("name, sizes", CASES)
def test_mindspore_agrees(tmp_path, name, sizes):
    config = CONFIGS[name] | ({"intermediate_size": 45} if "--dp 5" in sizes else {})
    source = write_random(tmp_path / "hf", config)
    convert_checkpoint(
        source, tmp_path / "whole", "mindformers", *(sizes.split()[:2] if "--names" in sizes else ())
    )
    convert_checkpoint(source, tmp_path / "ranks", "mindformers", *sizes.split())
    subprocess.run([PYTHON, SCRIPT, tmp_path], check=True, timeout=500)
    config = ("--config", source / "config.json")
    check_same(
        source, convert_checkpoint(tmp_path / "saved", tmp_path / "from-saved", "huggingface", *config)
    )
    check_same(
        source, convert_checkpoint(tmp_path / "joined", tmp_path / "from-joined", "huggingface", *config)
    )
    assert (
        checkpoint("strategy", "merge", tmp_path / "ranks" / "strategy", tmp_path / "ours.ckpt").exit_code
        == 0
    )
    theirs = tmp_path / "merged" / "strategy.ckpt"
    assert strategy.read(tmp_path / "ours.ckpt") == strategy.read(theirs)
    options = (*config, "--strategy", theirs)
    check_same(
        source, convert_checkpoint(tmp_path / "split", tmp_path / "from-split", "huggingface", *options)
    )
    for path in (tmp_path / "ranks").rglob("rank_*/*.ckpt"):
        assert (
            path.read_bytes() == (tmp_path / "split" / path.relative_to(tmp_path / "ranks")).read_bytes()
        ), path.name


SAVED = """
import numpy as np
from mindspore import Tensor, save_checkpoint
for kind in "uint16", "uint32", "uint64", "complex64", "float32", "bool":
    saved = [{"name": "x", "data": Tensor(np.arange(6).reshape(2, 3).astype(kind))}]
    for format in "ckpt", "safetensors":
        save_checkpoint(saved, f"{kind}.{format}", format=format, crc_check=True)
"""


def test_types_and_crcs_of_mindspore(tmp_path):
    subprocess.run([PYTHON, "-c", SAVED], check=True, cwd=tmp_path, timeout=500)
    for kind in "uint16", "uint32", "uint64", "complex64", "float32", "bool":
        for container, suffix in (mindspore_file, "ckpt"), (safetensors_file, "safetensors"):
            found = container.read(tmp_path / f"{kind}.{suffix}")["x"]
            assert found.dtype == getattr(torch, kind)
            assert found.read().to(torch.complex64).flatten().tolist() == (
                [0, 1, 1, 1, 1, 1] if kind == "bool" else list(range(6))
            )
