"""megatron-core itself: loads what is written, has the logits of transformers, and its torch_dist files are read."""

from importlib.util import find_spec

import pytest
import torch

from tests.helpers.checkpoints import CONFIGS, check_same, convert_checkpoint
from tests.helpers.command import run

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(not find_spec("megatron"), reason="no megatron")  # its import takes seconds


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
ROPE = {
    "llama": {"rope_theta": 5e5, "rope_type": "default"},
    "llama-tied": {**LLAMA3, "original_max_position_embeddings": 8192},
    "llama-tied-biased": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
    "qwen2": YARN,
    "mistral": {"rope_theta": 2e4, "rope_type": "default"},
}
CHANGES = {"mistral": {"sliding_window": 5}, "llama": {"rms_norm_eps": 1e-3}}


NAMES = [*ROPE, "mixtral", "qwen3", "qwen3_moe", "gpt2"]


@pytest.mark.full
def test_megatron_core_agrees(tmp_path):
    for name in NAMES:
        changes = {**CHANGES.get(name, {}), **({"rope_parameters": ROPE[name]} if name in ROPE else {})}
        config = transformers.AutoConfig.for_model(**CONFIGS[name] | changes)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.save_pretrained(tmp_path / name / "hf")
        for kind in "megatron", "megatron-dist":
            convert_checkpoint(tmp_path / name / "hf", tmp_path / name / kind, kind, "--names", "local")
    # The process that is spawned to save imports a program that has a file.
    folders = [tmp_path / name for name in NAMES]
    result = run("-c", "from tests.helpers.checkpoint_megatron import main; main()", *folders)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.split() == [word for name in NAMES for word in (name, "equal")]
    for folder in folders:
        options = ("--config", folder / "hf" / "config.json")
        check_same(
            folder / "hf", convert_checkpoint(folder / "saved", folder / "back", "huggingface", *options)
        )
