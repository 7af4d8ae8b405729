"""Models of transformers, saved by it, through another format: the same logits to the bit."""

import json

import pytest
import torch

from tests.helpers.checkpoints import CONFIGS, checkpoint, convert_checkpoint, write_random

transformers = pytest.importorskip("transformers")
ROUTES = {
    "llama": "meta --tp 2",
    "llama-tied-biased": "mindformers --rotary interleaved --names concatenated",
    "mistral": "internevo --names llama --tp 2",
    "qwen2": "mindformers --tp 2 --dp 2",
    "qwen3": "mindformers --names mcore --tp 2",
    "qwen2_moe": "megatron-dist",
    "qwen3_moe": "megatron --tp 2 --ep 2",
    "mixtral": "mindformers --tp 2 --ep 2 --dp 2",
    "deepseek_v2": "megatron --tp 2 --pp 2 --stages 3,1 --names local",
    "deepseek_v3": "mindformers --tp 2 --pp 2",
    "gpt2": "megatron --tp 2 --pp 2 --vpp 2 --pad-vocabulary 8",
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ROUTES)
def test_logits_are_equal(tmp_path, name):
    config = transformers.AutoConfig.for_model(**CONFIGS[name])
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(
        tmp_path / "model"
    )
    other = convert_checkpoint(tmp_path / "model", tmp_path / "other", *ROUTES[name].split())
    result = checkpoint("verify", tmp_path / "model", other, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads(result.stdout[result.stdout.index("{") :])["max"] == 0


def test_changed_parameters_change_logits(tmp_path):
    config = transformers.AutoConfig.for_model(**CONFIGS["llama"])
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        model.model.layers[3].mlp.up_proj.weight[5] += 1
    model.save_pretrained(tmp_path / "changed")
    result = checkpoint("verify", tmp_path / "model", tmp_path / "changed")
    assert result.exit_code == 1 and result.stdout.startswith("logits differ")
    assert not result.stderr


@pytest.mark.parametrize(
    "changes",
    [{"rope_theta": "x"}, {"rope_scaling": "x"}, {"rms_norm_eps": []}, {"pad_token_id": 900}],
    ids=str,
)
def test_a_configuration_that_transformers_refuses(tmp_path, changes):
    source = write_random(tmp_path / "source", CONFIGS["llama"] | changes)
    result = checkpoint("verify", source, source)
    assert result.exit_code == 1 and f"{source}: transformers cannot load it" in result.stderr
    assert not result.stdout and isinstance(result.exception, SystemExit)
