"""The same GPT in plain PyTorch on one device, the reference for the losses of every parallelism."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from gpt_core import data, weights


def shapes(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Full weights by megatron-core's names."""
    hidden, ffn = args.hidden_size, args.ffn_hidden_size
    head = hidden // args.num_attention_heads
    norms = ["weight", "bias"] if args.normalization == "LayerNorm" else ["weight"]
    found: dict[str, tuple[int, ...]] = {"embedding.word_embeddings.weight": (args.vocab_size, hidden)}
    for layer in range(args.num_layers):
        prefix = f"decoder.layers.{layer}."
        found |= {f"{prefix}input_layernorm.{each}": (hidden,) for each in norms}
        found |= {f"{prefix}pre_mlp_layernorm.{each}": (hidden,) for each in norms}
        found[prefix + "self_attention.linear_qkv.weight"] = (
            hidden + 2 * head * args.num_query_groups,
            hidden,
        )
        found[prefix + "self_attention.linear_proj.weight"] = (hidden, hidden)
        found[prefix + "mlp.linear_fc1.weight"] = (2 * ffn, hidden)
        found[prefix + "mlp.linear_fc2.weight"] = (hidden, ffn)
    found |= {f"decoder.final_layernorm.{each}": (hidden,) for each in norms}
    if args.untie_embeddings_and_output_weights:
        found["output_layer.weight"] = (args.vocab_size, hidden)
    return found


class PlainGPT(nn.Module):
    """Token ids int64 [batch, tokens] to logits [batch, tokens, vocabulary]."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.args = args
        for name, shape in shapes(args).items():
            self.register_parameter(
                name.replace(".", "_"), nn.Parameter(weights.full_weight(name, shape, args.seed))
            )

    def weight(self, name: str) -> torch.Tensor:
        return self.get_parameter(name.replace(".", "_"))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        shape = (self.args.hidden_size,)
        if self.args.normalization == "LayerNorm":
            return F.layer_norm(x, shape, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), 1e-5)
        return F.rms_norm(x, shape, self.weight(f"{name}.weight"), 1e-5)

    def attention(self, x: torch.Tensor, name: str) -> torch.Tensor:
        heads, groups = self.args.num_attention_heads, self.args.num_query_groups
        per_group = heads // groups
        head = self.args.hidden_size // heads
        qkv = F.linear(x, self.weight(f"{name}.linear_qkv.weight")).unflatten(
            -1, (groups, per_group + 2, head)
        )
        query = rotate(qkv[..., :per_group, :].flatten(2, 3).transpose(1, 2))
        key = rotate(qkv[..., per_group, :].transpose(1, 2)).repeat_interleave(per_group, 1)
        value = qkv[..., per_group + 1, :].transpose(1, 2).repeat_interleave(per_group, 1)
        scores = query @ key.transpose(-1, -2) / head**0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value
        return F.linear(seen.transpose(1, 2).flatten(2), self.weight(f"{name}.linear_proj.weight"))

    def mlp(self, x: torch.Tensor, name: str) -> torch.Tensor:
        gate, up = F.linear(x, self.weight(f"{name}.linear_fc1.weight")).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.weight(f"{name}.linear_fc2.weight"))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        table = self.weight("embedding.word_embeddings.weight")
        x = F.embedding(tokens, table)
        for layer in range(self.args.num_layers):
            prefix = f"decoder.layers.{layer}."
            x = x + self.attention(self.norm(x, f"{prefix}input_layernorm"), f"{prefix}self_attention")
            x = x + self.mlp(self.norm(x, f"{prefix}pre_mlp_layernorm"), f"{prefix}mlp")
        tied = not self.args.untie_embeddings_and_output_weights
        return F.linear(
            self.norm(x, "decoder.final_layernorm"), table if tied else self.weight("output_layer.weight")
        )


def rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al., 2021) of [batch, heads, tokens, features], halves apart, base 10000."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def trainer(args: argparse.Namespace) -> Callable[[int], tuple[float, float]]:
    """A function that performs step i and returns loss and gradient norm.

    Raises:
        ValueError: an option that the plain model does not have.
    """
    if args.num_experts or args.hidden_dropout or args.attention_dropout or args.bf16 or args.fp16:
        raise ValueError("--plain supports neither experts nor dropout nor 16-bit floats; omit those options")
    if args.rotary_percent != 1.0:
        raise ValueError("--plain rotates whole heads; omit --rotary-percent")
    model = PlainGPT(args).cuda()
    parameters = list(model.parameters())
    groups = [
        {"params": [each for each in parameters if each.ndim > 1]},
        {"params": [each for each in parameters if each.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), weight_decay=args.weight_decay)

    def step(iteration: int) -> tuple[float, float]:
        batch = data.samples(args, iteration * args.global_batch_size, args.global_batch_size)
        optimizer.zero_grad()
        logits = model(batch["tokens"].cuda())
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].cuda().flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, args.clip_grad)
        optimizer.step()
        return float(loss), float(norm)

    return step
