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


@variant
def again():
    llama.train()


@variant
def on_chip():
    llama.train(device="chip")


@variant
def on_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        llama.train()
    finally:
        torch.set_num_threads(threads)


@on_model
def fused_norms(model):
    for norm in [each for each in model.modules() if isinstance(each, llama.Norm)]:
        replace_forward(norm, lambda _, x, norm=norm: F.rms_norm(x, x.shape[-1:], norm.weight, norm.eps))


@on_model
def norms_of_isthmus(model):
    for norm in [each for each in model.modules() if isinstance(each, llama.Norm)]:
        replace_forward(norm, lambda _, x, norm=norm: isthmus.ops.rms_norm(x, norm.weight, norm.eps))


@on_model
def mlp_of_isthmus(model):
    for layer in model.layers:
        mlp = layer.mlp
        replace_forward(
            mlp, lambda _, x, mlp=mlp: mlp.down(isthmus.ops.swiglu(torch.cat([mlp.gate(x), mlp.up(x)], -1)))
        )


@on_model
def fused_attention(model):
    for layer in model.layers:
        attention = layer.attention

        def forward(_, x, attention=attention):
            q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
            q, k = attention.rotary(q), attention.rotary(k)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return attention.o(out.transpose(1, 2).flatten(2))

        replace_forward(attention, forward)


@on_model
def recomputed(model):
    for layer in model.layers:
        replace_forward(layer, lambda forward, x: checkpoint(forward, x, use_reentrant=False))


@on_model
def contiguous_copies(model):
    for layer in model.layers:
        replace_forward(layer.attention, lambda forward, x: forward(x.clone()).contiguous())


@on_model
def mean_by_sum(model):
    for norm in [each for each in model.modules() if isinstance(each, llama.Norm)]:
        replace_forward(
            norm,
            lambda _, x, norm=norm: (
                x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + norm.eps) * norm.weight
            ),
        )


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


@on_model
def weights_in_bfloat16(model):
    model.bfloat16()


@on_model
def compiled(model):
    for layer in model.layers:
        layer.mlp.compile(backend="aot_eager")


@variant
def in_float64():
    with set_attribute(llama, "loss_of", _double_loss):
        llama.train(hooks=[lambda model: model.double()])


def _double_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@variant
def logged():
    llama.train(hooks=[lambda model: sum(p.norm().item() for p in model.parameters())])


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
