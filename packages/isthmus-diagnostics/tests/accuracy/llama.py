"""A small LLaMA and its training, written out so that a fault can be planted in any line."""

import math

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, HEADS, LAYERS, VOCABULARY, LENGTH = 32, 4, 2, 61, 12


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(HIDDEN))
        self.eps = 1e-5

    def forward(self, x):
        variance = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + self.eps) * self.weight


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        size = HIDDEN // HEADS
        angles = torch.outer(torch.arange(LENGTH).float(), 10000 ** -(torch.arange(0, size, 2) / size))
        self.register_buffer("cos", torch.cat([angles.cos(), angles.cos()], -1))
        self.register_buffer("sin", torch.cat([angles.sin(), angles.sin()], -1))

    def forward(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat([-high, low], -1) * self.sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.rotary = Rotary()
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x):
        q, k, v = (self.heads(each(x)) for each in (self.q, self.k, self.v))
        q, k = self.rotary(q), self.rotary(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(self.mask, float("-inf")).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))

    def heads(self, x):
        return x.unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(HIDDEN, 2 * HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = Norm(), Attention(), Norm(), MLP()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def batch(step, rows=4):
    generator = torch.Generator().manual_seed(100 + step)
    tokens = torch.randint(VOCABULARY, (rows, LENGTH + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def train(steps=2, device="cpu", model=None, hooks=()):
    """Train a model, made by `model`, and return the losses; hooks change it first."""
    torch.manual_seed(1)
    model = (model() if model else Llama()).to(device)
    for hook in hooks:
        hook(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        tokens, labels = (each.to(device) for each in batch(step))
        loss = loss_of(model(tokens), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
