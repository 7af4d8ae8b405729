"""megatron-core itself: loads what is written, has the logits of transformers, and its torch_dist files are read."""

from importlib.util import find_spec

import pytest
import torch

from tests.helpers.checkpoints import CONFIGS, converted, same
from tests.helpers.command import run

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(not find_spec("megatron"), reason="no megatron")  # its import takes seconds


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "mixtral", "qwen2", "qwen3"])
@pytest.mark.sampled(1)
def test_megatron_core_agrees(tmp_path, name):
    config = transformers.AutoConfig.for_model(**CONFIGS[name])
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(
        tmp_path / "hf"
    )
    for kind in "megatron", "megatron-dist":
        converted(tmp_path / "hf", tmp_path / kind, kind, "--names", "local")
    # The process that is spawned to save imports a program that has a file.
    result = run("-c", "from tests.helpers.checkpoint_megatron import main; main()", tmp_path)
    assert result.returncode == 0 and "equal" in result.stdout, result.stderr[-2000:]
    options = ("--config", tmp_path / "hf" / "config.json")
    same(tmp_path / "hf", converted(tmp_path / "saved", tmp_path / "back", "huggingface", *options))
