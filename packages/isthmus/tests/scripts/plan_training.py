"""Trains a small transformer with dropout in micro-batches; prints the losses in full precision, and the peak.

plan_training.py STEPS [hugging-face | longer]; longer: from step 3 on, samples are three times as long.
"""

import sys

import torch
from torch import nn

WIDTH, LAYERS, LENGTH, MICRO_BATCHES = 128, 6, 96, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.drop = Attention(), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS}
    config = LlamaConfig(vocab_size=512, num_attention_heads=4, attention_dropout=0.1, **shape)
    return LlamaForCausalLM(config)


def main(steps: int, kind: str = "") -> None:
    torch.manual_seed(0)
    model = (llama() if kind == "hugging-face" else Model()).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        total = 0.0
        length = 3 * LENGTH if kind == "longer" and step >= 3 else LENGTH
        for _ in range(MICRO_BATCHES):
            tokens = torch.randint(512, (8, length + 1), device="cuda")
            found = model(tokens[:, :-1])
            logits = found.logits if kind == "hugging-face" else found
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        print(total.hex(), flush=True)
    print("peak", torch.cuda.max_memory_allocated())


main(int(sys.argv[1]), *sys.argv[2:])
