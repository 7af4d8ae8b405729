"""Print where transformers and accelerate place a model requested on CUDA."""
# ruff: noqa - written as its author would

import json
import sys

import torch
from accelerate import cpu_offload, dispatch_model
from accelerate.utils import get_max_memory, is_bf16_available, is_cuda_available
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.utils import is_torch_bf16_gpu_available, is_torch_cuda_available

folder = sys.argv[1]
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
LlamaForCausalLM(config).save_pretrained(folder)
x = torch.arange(8).view(1, 8)
expected = AutoModelForCausalLM.from_pretrained(folder)(x).logits


def load(**options):
    return AutoModelForCausalLM.from_pretrained(folder, **options)


def is_right(model):
    return torch.allclose(model(x.cuda()).logits.cpu(), expected, atol=1e-5)


maps = ["auto", "cuda", "cuda:0", 0, torch.device("cuda"), {"": 0}, {"": "cuda:0"}]
split = {
    "model.embed_tokens": 0,
    "model.layers.0": 0,
    "model.rotary_emb": 0,
    "model.layers.1": 1,
    "model.norm": 1,
    "lm_head": 1,
}
arguments = TrainingArguments(output_dir=folder, bf16=True, tf32=True, report_to=[])
print(
    json.dumps(
        {
            "asked": [
                is_torch_cuda_available(),
                is_torch_bf16_gpu_available(),
                is_cuda_available(),
                is_bf16_available(),
            ],
            "maps": [is_right(load(device_map=each)) for each in maps],
            "max_memory": sorted(
                set(load(device_map="auto", max_memory={0: "60KB", "cpu": "1GB"}).hf_device_map.values()),
                key=str,
            ),
            "devices": [key for key in get_max_memory() if key != "cpu"],
            "dispatched": is_right(dispatch_model(load(), split)),
            "offloaded": is_right(cpu_offload(load(), execution_device=torch.device("cuda"))),
            "generated": list(load().to("cuda").generate(x.cuda(), min_new_tokens=2, max_new_tokens=2).shape),
            "device": arguments.device.type,
        }
    )
)
