"""A small LLaMA of transformers, trained as it is and with Liger's Triton kernels in its place."""

import json

import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM


def train(dtype):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to("cuda", dtype)
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    ids = torch.randint(0, 64, (2, 16)).cuda()
    for _ in range(3):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [type(model.model.norm).__name__, losses]


types = torch.float32, torch.bfloat16
before = [train(dtype) for dtype in types]
apply_liger_kernel_to_llama()
print(json.dumps({"torch": before, "liger": [train(dtype) for dtype in types]}))
