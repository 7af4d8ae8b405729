"""Trainings that are right, and differ from that of llama.py beside it in how they compute: none is accused."""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import isthmus.ops
from tests.accuracy import llama
from tests.accuracy.faults import replace_forward, set_attribute

VARIANTS: dict[str, Callable[[], object]] = {}


def variant(function):
    VARIANTS[function.__name__] = function
    return function


def on_model(change):
    VARIANTS[change.__name__] = lambda: llama.train(hooks=[change])
    return change


def of_each(name, kind, forward):
    """Replace the forward of the model's modules of a kind by ``forward(module, former, x)``."""

    def change(model):
        for module in [each for each in model.modules() if isinstance(each, kind)]:
            replace_forward(module, functools.partial(forward, module))

    VARIANTS[name] = lambda: llama.train(hooks=[change])


VARIANTS["again"] = llama.train
VARIANTS["on_chip"] = lambda: llama.train(device="chip")


@variant
def on_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        llama.train()
    finally:
        torch.set_num_threads(threads)


def _fused_attention(attention, _, x):
    q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
    q, k = attention.rotary(q), attention.rotary(k)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attention.o(out.transpose(1, 2).flatten(2))


def _mean_by_sum(norm, _, x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + norm.eps) * norm.weight


def _mlp_of_isthmus(mlp, _, x):
    return mlp.down(isthmus.ops.swiglu(torch.cat([mlp.gate(x), mlp.up(x)], -1)))


of_each("fused_norms", llama.Norm, lambda norm, _, x: F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps))
of_each("norms_of_isthmus", llama.Norm, lambda norm, _, x: isthmus.ops.rms_norm(x, norm.weight, norm.eps))
of_each("mlp_of_isthmus", llama.MLP, _mlp_of_isthmus)
of_each("fused_attention", llama.Attention, _fused_attention)
of_each("recomputed", llama.Layer, lambda _, former, x: checkpoint(former, x, use_reentrant=False))
of_each("contiguous_copies", llama.Attention, lambda _, former, x: former(x.clone()).contiguous())
of_each("mean_by_sum", llama.Norm, _mean_by_sum)


@on_model
def heads_by_view(model):
    for layer in model.layers:
        layer.attention.heads = lambda x: x.view(*x.shape[:2], llama.HEADS, -1).transpose(1, 2)


@on_model
def matmul_for_linear(model):
    for layer in model.layers:
        for linear in (layer.mlp.gate, layer.mlp.up, layer.mlp.down):
            replace_forward(linear, lambda _, x, linear=linear: torch.matmul(x, linear.weight.mT))


def _with_optimizer(**options):
    made = torch.optim.AdamW
    with set_attribute(torch.optim, "AdamW", functools.partial(made, **options)):
        llama.train()


VARIANTS["fused_optimizer"] = lambda: _with_optimizer(fused=True)
VARIANTS["optimizer_without_foreach"] = lambda: _with_optimizer(foreach=False)


@variant
def gradients_set_to_zero():
    zero = torch.optim.AdamW.zero_grad
    with set_attribute(torch.optim.AdamW, "zero_grad", lambda self, set_to_none=True: zero(self, False)):
        llama.train(1)


@on_model
def in_bfloat16(model):
    # Around each forward: a region around several steps would keep the casts of the first step's weights.
    replace_forward(model, torch.autocast("cpu", torch.bfloat16)(lambda forward, tokens: forward(tokens)))


VARIANTS["weights_in_bfloat16"] = lambda: llama.train(hooks=[torch.nn.Module.bfloat16])


@on_model
def compiled(model):
    for layer in model.layers:
        layer.mlp.compile(backend="aot_eager")


@variant
def in_float64():
    def loss_of(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    with set_attribute(llama, "loss_of", loss_of):
        llama.train(hooks=[torch.nn.Module.double])


VARIANTS["logged"] = lambda: llama.train(
    hooks=[lambda model: sum(p.norm().item() for p in model.parameters())]
)


@variant
def wrapped():
    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = llama.Llama()

        def forward(self, tokens):
            return self.module(tokens)

    Wrapper.__name__ = "DistributedDataParallel"
    llama.train(model=Wrapper)
