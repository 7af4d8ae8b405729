"""Every architecture through every format and back, bit by bit."""

import pytest

from tests.helpers.checkpoints import CONFIGS, check_same, convert_checkpoint, write_random

LLAMA = ["llama", "mistral"]
DENSE = [*LLAMA, "llama-tied-biased", "qwen2", "qwen3"]
EXPERTS = ["mixtral", "qwen3_moe", "qwen2_moe", "deepseek_v2", "deepseek_v3"]
ALL = list(CONFIGS)

# Options after --to, and the architectures that the format has names for.
ROUTES = {
    "megatron": ALL,
    "megatron --names local --tp 2 --pad-vocabulary 64": ALL,
    "megatron --tp 4 --pp 2 --vpp 2 --pad-vocabulary 16": ALL,
    "megatron --pp 2 --stages 3,1": ALL,
    "megatron --ep 2": EXPERTS,
    "megatron --ep 2 --tp 2 --pp 2 --names grouped": EXPERTS,
    "megatron-dist": ALL,
    "megatron-dist --names local --pad-vocabulary 128": ALL,
    "dcp": ALL,
    "deepspeed": ALL,
    "huggingface-bin": ALL,
    "mindformers": [*DENSE[:-1], "mixtral", "deepseek_v2", "deepseek_v3", "internlm2"],
    "mindformers --names concatenated": [*DENSE[:-1], "internlm2"],
    "mindformers --tp 2 --pp 2 --dp 2 --rotary interleaved": [*DENSE[:-1], "mixtral", "deepseek_v3"],
    "mindformers --names concatenated --tp 2 --dp 2": DENSE[:-1],
    "mindformers --names mcore --tp 2 --pp 2 --dp 2": [*DENSE, "qwen3_moe", "deepseek_v2", "deepseek_v3"],
    "mindformers --tp 2 --ep 2 --dp 4": ["mixtral", "deepseek_v3"],
    "mindformers-safetensors --tp 2 --dp 2": [*DENSE[:-1], "mixtral", "deepseek_v3"],
    "internevo --tp 2 --pp 2": ["internlm2"],
    "internevo --names llama --tp 2 --pp 2 --rotary interleaved": LLAMA,
    "meta --tp 2": [*LLAMA, "llama-tied"],
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("route, name", [(route, name) for route, names in ROUTES.items() for name in names])
def test_back_to_the_same_bits(tmp_path, route, name):
    source = write_random(tmp_path / "source", CONFIGS[name])
    convert_checkpoint(source, tmp_path / "target", *route.split())
    check_same(source, convert_checkpoint(tmp_path / "target", tmp_path / "back", "huggingface"))
