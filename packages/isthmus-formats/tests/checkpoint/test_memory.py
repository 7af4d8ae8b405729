"""A conversion has a few tensors in memory, not a model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isthmus_formats.checkpoint.architectures import model
from isthmus_formats.checkpoint.containers import safetensors_file
from isthmus_formats.checkpoint.formats import find_format
from isthmus_formats.checkpoint.layout import Layout
from tests.helpers.checkpoints import CONFIGS
from tools.repository import ROOT

PEAK = """
import resource, sys
from isthmus_common.shell import main
try:
    main()
except SystemExit:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
    raise
"""


def peak(folder: Path, **sizes: int) -> int:
    """Return the largest resident memory in bytes of a conversion of an empty model."""
    config = {**CONFIGS["llama"], **sizes}
    of = model(config)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    pieces = find_format("huggingface").pieces(of, Layout())
    safetensors_file.create(
        folder / "model.safetensors", {each.key: (torch.bfloat16, each.shape) for each in pieces}
    )
    target = folder.with_suffix(".megatron")
    command = ["checkpoint", "convert", folder, target, "--to", "megatron", "--tp", "2"]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(done.stderr.split()[-1]) * 1024


@pytest.mark.full
def test_memory_does_not_grow_with_the_model(tmp_path):
    tiny = peak(tmp_path / "tiny")
    large = {"hidden_size": 2048, "intermediate_size": 4096, "vocab_size": 16_000}
    few = peak(tmp_path / "few", **large, num_hidden_layers=2)
    many = peak(tmp_path / "many", **large, num_hidden_layers=10)
    assert many < few + 64e6
    assert few < tiny + 6 * 16_000 * 2048 * 2
