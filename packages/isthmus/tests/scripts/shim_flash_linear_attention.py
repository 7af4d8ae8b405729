"""A model of flash-linear-attention, trained by its Triton kernels, and the same in PyTorch's operators."""

import json
import sys

import torch
import torch.nn.functional as F
from fla.models import GLAConfig, GLAForCausalLM

STEPS = 2


def reference(weights, ids, labels, heads=2, eps=1e-6):
    """The loss of the same model, in PyTorch's operators, one position after another."""
    layer = {k.removeprefix("model.layers.0."): v for k, v in weights.items()}
    x = F.embedding(ids, weights["model.embeddings.weight"])
    h = F.rms_norm(x, x.shape[-1:], layer["attn_norm.weight"], eps)
    q, k, v, g = (split(F.linear(h, layer[f"attn.{name}_proj.weight"]), heads) for name in "qkvg")
    low = F.linear(h, layer["attn.gk_proj.0.weight"])
    decay = F.logsigmoid(F.linear(low, layer["attn.gk_proj.1.weight"], layer["attn.gk_proj.1.bias"])) / 16
    decay = split(decay, heads).exp()
    state, outputs = torch.zeros(len(ids), heads, q.shape[-1], v.shape[-1], device=x.device), []
    for t in range(ids.shape[1]):
        state = state * decay[:, t, :, :, None] + k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append((q[:, t, :, :, None] * q.shape[-1] ** -0.5 * state).sum(-2))
    o = torch.stack(outputs, 1)
    o = F.rms_norm(o, o.shape[-1:], layer["attn.g_norm_swish_gate.weight"], 1e-6) * F.silu(g)
    x = x + F.linear(o.flatten(-2), layer["attn.o_proj.weight"])
    h = F.rms_norm(x, x.shape[-1:], layer["mlp_norm.weight"], eps)
    h = F.silu(F.linear(h, layer["mlp.gate_proj.weight"])) * F.linear(h, layer["mlp.up_proj.weight"])
    x = F.rms_norm(
        x + F.linear(h, layer["mlp.down_proj.weight"]), x.shape[-1:], weights["model.norm.weight"], eps
    )
    logits = F.linear(x, weights["lm_head.weight"])
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def split(x, heads):
    return x.unflatten(-1, (heads, -1))


def train(weights, loss_of):
    optimizer, losses = torch.optim.AdamW(weights, lr=1e-2), []
    for _ in range(STEPS):
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
config = GLAConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=1, num_heads=2, expand_k=1, intermediate_size=64, use_cache=False
)  # fmt: skip
model = GLAForCausalLM(config).cuda()
copy = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
ids = torch.randint(0, 64, (1, int(sys.argv[1])), device="cuda")
found = {
    "triton": train(model.parameters(), lambda: model(input_ids=ids, labels=ids).loss),
    "torch": train(copy.values(), lambda: reference(copy, ids, ids)),
}
print(json.dumps(found))
