"""The guide to fine-tune a LLaMA: its commands in order, and the losses of every framework."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from isthmus_common.application import app
from tools.repository import ROOT

transformers = pytest.importorskip("transformers")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(not find_spec("megatron"), reason="no megatron")  # its import takes seconds

GUIDE = (ROOT / "docs" / "guides" / "llama-finetune.md").read_text()
DATA, CHECKPOINTS, MEGATRON, FASTCHAT, ZERO3, MINDSPORE = (
    block for block in re.findall(r"^```bash\n(.*?)^```", GUIDE, re.M | re.S) if "runs/finetune" in block
)
TENSOR_PARALLEL = (
    "isthmus checkpoint reshard runs/finetune/megatron-4-ranks runs/finetune/two-ranks --tp 2\n"
    "isthmus run --nproc 2 examples/finetune/train_megatron.py runs/finetune/llama runs/finetune/two-ranks "
    "runs/finetune/corpus runs/finetune/two-ranks-tuned\n"
)
PYTHON = os.environ.get("ISTHMUS_TEST_MINDSPORE", "")


def run(block: str, folder: Path) -> str:
    """Run the commands of a block with another folder; return what the last program printed.

    Commands without a process of their own run in this one, where PyTorch is imported.
    """
    printed = ""
    for line in block.replace("runs/finetune", str(folder)).splitlines():
        words = shlex.split(line)
        if words[:2] in (["isthmus", "data"], ["isthmus", "checkpoint"]):
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, (line, result.output, result.exception)
        else:
            printed = start(words, folder)
    return printed


def start(words: list[str], folder: Path) -> str:
    """Run a program; return what it printed."""
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HF_HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, (words, done.stderr[-2000:])
    return done.stdout


def losses(printed: str) -> list[float]:
    return [float(each) for each in re.findall(r"loss'?: '?([\d.]+)", printed)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the converted data and checkpoints."""
    folder = tmp_path_factory.mktemp("finetune")
    for block in (DATA, CHECKPOINTS):
        run(block, folder)
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[float]:
    """The losses of Megatron."""
    return losses(run(MEGATRON, folder))


@pytest.fixture(scope="module")
def alike(folder: Path, trained: list[float]) -> list[float]:
    """The losses of the script for CUDA; its model is that of Megatron."""
    return losses(run(FASTCHAT, folder))


def first_batch(folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens, labels and transformers' logits of the first iteration."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(folder / "corpus.parquet").slice(0, 8).to_pydict()
    tokens, labels = (torch.tensor(rows[name]) for name in ("input_ids", "labels"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama", dtype=torch.float32)
    with torch.inference_mode():
        return tokens, labels, model(tokens).logits


@pytest.mark.full
def test_megatron_begins_with_the_loss_of_hugging_face_and_learns(folder, trained):
    _, labels, logits = first_batch(folder)
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert trained[0] == pytest.approx(expected.item(), rel=1e-6)
    assert len(trained) == 10
    assert trained[-1] < trained[0] - 1


@pytest.mark.full
def test_conversations_masked_by_the_script_have_the_losses_of_the_written_masks(trained, alike):
    assert alike == pytest.approx(trained, rel=1e-5)


@pytest.mark.full
def test_megatron_on_two_ranks_has_the_losses_of_one(folder, trained):
    assert losses(run(TENSOR_PARALLEL, folder)) == pytest.approx(trained, rel=1e-5)


@pytest.mark.full
@pytest.mark.skipif(not find_spec("deepspeed"), reason="no deepspeed")
def test_zero3_has_the_losses_of_one_rank(folder, trained, alike):
    found = losses(run(ZERO3, folder))
    assert found[:10] == pytest.approx(trained, rel=2e-4)  # the Trainer prints four digits


@pytest.mark.slow
@pytest.mark.skipif(
    not PYTHON, reason="ISTHMUS_TEST_MINDSPORE is not set to an interpreter that has mindspore"
)
def test_mindspore_has_the_logits_of_hugging_face(folder):
    command = MINDSPORE.replace("mindspore/bin/python", PYTHON).rstrip()
    printed = run(f"{command} {folder}/logits.npy", folder)
    _, labels, expected = first_batch(folder)
    loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert losses(printed) == pytest.approx([loss.item()], rel=1e-6)
    logits = torch.from_numpy(np.load(folder / "logits.npy"))
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
