"""The real MindSpore loads, merges, splits and joins what is written, and the reverse. See `make differential`."""

import os
import subprocess
from pathlib import Path

import pytest

from isthmus.checkpoint import strategy
from tests.helpers.checkpoints import CONFIGS, checkpoint, converted, same, write_random

PYTHON = os.environ.get("ISTHMUS_TEST_MINDSPORE", "")
SCRIPT = Path(__file__).parents[1] / "helpers" / "checkpoint_mindspore.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="ISTHMUS_TEST_MINDSPORE is not set to an interpreter that has mindspore"
    ),
]


@pytest.mark.parametrize("sizes", ["--tp 2", "--tp 2 --dp 2", "--tp 2 --pp 2 --dp 2"])
@pytest.mark.parametrize("name", ["llama", "llama-tied-biased", "mixtral"])
def test_mindspore_agrees(tmp_path, name, sizes):
    source = write_random(tmp_path / "hf", CONFIGS[name])
    converted(source, tmp_path / "whole", "mindformers")
    converted(source, tmp_path / "ranks", "mindformers", *sizes.split())
    subprocess.run([PYTHON, SCRIPT, tmp_path], check=True, timeout=500)
    config = ("--config", source / "config.json")
    same(source, converted(tmp_path / "saved", tmp_path / "from-saved", "huggingface", *config))
    same(source, converted(tmp_path / "joined", tmp_path / "from-joined", "huggingface", *config))
    assert (
        checkpoint("strategy", "merge", tmp_path / "ranks" / "strategy", tmp_path / "ours.ckpt").exit_code
        == 0
    )
    theirs = tmp_path / "merged" / "strategy.ckpt"
    assert strategy.read(tmp_path / "ours.ckpt") == strategy.read(theirs)
    options = (*config, "--strategy", theirs)
    same(source, converted(tmp_path / "split", tmp_path / "from-split", "huggingface", *options))
    for path in (tmp_path / "ranks").rglob("rank_*/*.ckpt"):
        assert (
            path.read_bytes() == (tmp_path / "split" / path.relative_to(tmp_path / "ranks")).read_bytes()
        ), path.name
