"""Faults to plant in the training of llama.py beside it, and the calls that may be named for each.

A fault is planted at a site, the number of a layer. ``calls`` are operators, ``module`` the end of the module's name
(``{n}`` is the site; None: any). Kernel faults are in a dispatch mode below that of the dump, as a wrong kernel is.
"""

import contextlib
import functools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.accuracy import llama


class Fault(NamedTuple):
    name: str
    plant: Callable[[Any, int], Any]  # on the model; or a context, which gets None for the model
    calls: str
    module: str | None
    is_context: bool = False


FAULTS: list[Fault] = []
SEED = 7


def sites() -> dict[str, int]:
    """Return the site of each fault by its name."""
    drawn = random.Random(SEED).choices((0, 1), k=99)
    return {fault.name: site for fault, site in zip(FAULTS, drawn, strict=False)}


@contextlib.contextmanager
def planted(fault: Fault) -> Iterator[list[Callable[[Any], Any]]]:
    """Plant a fault at its site; yields the hooks of the training. A dump is started after it: kernels are below."""
    site = sites()[fault.name]
    if fault.is_context:
        with fault.plant(None, site):
            yield []
    else:
        yield [lambda model: fault.plant(model, site)]


def on_model(calls: str, module: str | None = None) -> Callable[..., Any]:
    def add(function: Callable[[Any, int], None]) -> Any:
        FAULTS.append(Fault(function.__name__, function, calls, module))
        return function

    return add


def _around(name: str, calls: str, module: str | None, make: Callable[[], Any]) -> None:
    FAULTS.append(Fault(name, lambda _, site: make(), calls, module, True))


def replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    module.forward = functools.partial(forward, module.forward)


def _forward(name: str, calls: str, part: str, forward: Callable[..., Any]) -> None:
    """Plant ``forward(module, former, x)`` in a part of a layer."""

    def plant(model, n):
        module = model.layers[n].get_submodule(part)
        replace_forward(module, functools.partial(forward, module))

    FAULTS.append(Fault(name, plant, calls, f"layers.{{n}}.{part}".rstrip(".")))


# ---- Model


@on_model("add", "layers.{n}.norm1")
def wrong_epsilon(model, n):
    model.layers[n].norm1.eps = 1e-6


@on_model("t mm", "layers.{n}.attention.k")
def transposed_weight(model, n):
    weight = model.layers[n].attention.k.weight
    weight.data = weight.data.t().contiguous()


@on_model("ones triu masked_fill", None)
def mask_off_by_one(model, n):
    model.layers[n].attention.mask = torch.ones(llama.LENGTH, llama.LENGTH, dtype=torch.bool).triu(2)


def _attention(name, calls, scale=None, value=float("-inf"), mixed=False, transpose=True):
    def forward(attention, _, x):
        q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
        q, k = attention.rotary(q), attention.rotary(k)
        scores = q @ k.transpose(-1, -2) / (scale or math.sqrt(q.shape[-1]))
        if value is not None:
            scores = scores.masked_fill(attention.mask, value)
        weights = scores.bfloat16().softmax(-1).float() if mixed else scores.softmax(-1)
        out = weights @ v
        batch, _, length, _ = out.shape
        out = out.transpose(1, 2) if transpose else out.contiguous().view(batch, length, -1, 8)
        return attention.o(out.flatten(2))

    _forward(name, calls, "attention", forward)


_attention("no_mask", "masked_fill", value=None)
_attention("scale_twice", "div", scale=llama.HIDDEN // llama.HEADS)
_attention("mask_value", "masked_fill", value=-1.0)
_attention("softmax_in_bfloat16", "_to_copy _softmax", mixed=True)
_attention("heads_not_transposed_back", "transpose clone view", transpose=False)


def _without_sign(rotary, _, x):
    low, high = x.chunk(2, -1)
    return x * rotary.cos + torch.cat([high, low], -1) * rotary.sin


_forward("rotary_without_sign", "neg mul cat add", "attention.rotary", _without_sign)


@on_model("roll mul", None)
def position_off_by_one(model, n):
    rotary = model.layers[n].attention.rotary
    rotary.cos, rotary.sin = rotary.cos.roll(1, 0), rotary.sin.roll(1, 0)


@on_model("mul", None)
def stale_buffer(model, n):
    model.layers[n].attention.rotary.cos.data = model.layers[n].attention.rotary.cos.data * 0.99


def _without_residual(layer, _, x):
    x = layer.attention(layer.norm1(x))
    return x + layer.mlp(layer.norm2(x))


def _norm_of(reduce, norm, _, x):
    return x * torch.rsqrt(reduce(x.square(), -1, keepdim=True) + norm.eps)


def _in_bfloat16(linear, _, x):
    return (x.bfloat16() @ linear.weight.bfloat16().t()).float()


_forward("gelu_for_silu", "gelu silu", "mlp", lambda mlp, _, x: mlp.down(F.gelu(mlp.gate(x)) * mlp.up(x)))
_forward(
    "gate_and_up_swapped", "silu mul", "mlp", lambda mlp, _, x: mlp.down(F.silu(mlp.up(x)) * mlp.gate(x))
)
_forward("doubled_attention", "mul", "attention", lambda _, former, x: former(x) * 2)
_forward("residual_left_out", "add", "", _without_residual)
_forward("norm_left_out", "pow", "norm2", lambda _, former, x: x)
_forward("norm_without_weight", "mul", "norm1", functools.partial(_norm_of, torch.mean))
_forward(
    "layer_norm_for_rms_norm", "sub mean", "norm1", lambda _, former, x: former(x - x.mean(-1, keepdim=True))
)
_forward(
    "sum_for_mean", "sum mean div", "norm1", lambda norm, *x: _norm_of(torch.sum, norm, *x) * norm.weight
)
_forward("matmul_in_bfloat16", "_to_copy mm", "mlp.down", _in_bfloat16)
_forward("dropped_gradient", "detach", "mlp", lambda _, former, x: former(x.detach()))
_forward("dropped_gradient_of_values", "detach", "attention.v", lambda _, former, x: former(x.detach()))
_forward("norm_without_gradient", "pow", "norm2", torch.no_grad()(lambda _, former, x: former(x)))


@on_model("t", "layers.{n}.mlp.up")
def frozen_weight(model, n):
    model.layers[n].mlp.up.weight.requires_grad_(False)


@on_model("view", "layers.{n}.attention")
def heads_split_wrongly(model, n):
    attention = model.layers[n].attention
    attention.heads = lambda x: (
        x.unflatten(-1, (llama.HIDDEN // llama.HEADS, -1)).transpose(2, 3).transpose(1, 2)
    )


def _nan_in_result(_, former, x):
    out = former(x).clone()
    out[0, 0, 0] = float("nan")
    return out


_forward("nan_in_activations", "clone lift_fresh fill_", "mlp", _nan_in_result)


@on_model("add", "Llama")
def tokens_shifted(model, n):
    replace_forward(model, lambda forward, tokens: forward((tokens + 1) % llama.VOCABULARY))


@on_model("mul embedding t mm", None)
def embedding_scaled(model, n):
    model.embedding.weight.data = model.embedding.weight.data * 1.01


_forward(
    "dropout_left_on", "bernoulli_ mul native_dropout", "mlp", lambda _, former, x: F.dropout(former(x), 0.1)
)
_forward("activations_clamped", "clamp", "mlp", lambda _, former, x: former(x.clamp(-1, 1)))


# ---- Loss and optimizer


@contextlib.contextmanager
def set_attribute(target, name, value):
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)


def _loss(name, calls, change):
    loss_of = llama.loss_of
    _around(name, calls, "", lambda: set_attribute(llama, "loss_of", functools.partial(change, loss_of)))


def _cross_entropy(logits, labels, **options):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), **options)


def _ignoring_first(_, *args):
    return _cross_entropy(*args, ignore_index=int(llama.batch(0)[1][0, 0]))


_loss("labels_off_by_one", "roll", lambda loss_of, logits, labels: loss_of(logits, labels.roll(1, 1)))
_loss("loss_summed", "nll_loss_forward", lambda _, *args: _cross_entropy(*args, reduction="sum"))
_loss("wrong_ignore_index", "nll_loss_forward", _ignoring_first)
_loss("loss_scaled_twice", "mul", lambda loss_of, *args: loss_of(*args) * 2)
_loss("label_smoothing", "mul div add sum", lambda _, *args: _cross_entropy(*args, label_smoothing=0.1))

_adamw, _clip = torch.optim.AdamW, torch.nn.utils.clip_grad_norm_


def _zero_grad(name, calls, zero_grad):
    _around(name, calls, None, lambda: set_attribute(_adamw, "zero_grad", zero_grad))


def _clipping(name, calls, clip):
    _around(name, calls, "", lambda: set_attribute(torch.nn.utils, "clip_grad_norm_", clip))


def _optimizer(option, value):
    def make(parameters, **options):
        return _adamw(parameters, **{**options, option: value})

    _around(f"wrong_{option}", "AdamW", None, lambda: set_attribute(torch.optim, "AdamW", make))


def _forget(self, set_to_none=True, zero=_adamw.zero_grad):
    zero(self, set_to_none)
    for state in self.state.values():
        state["exp_avg"].zero_()


_zero_grad("gradients_not_zeroed", "add add_ AdamW", lambda self, set_to_none=True: None)
_clipping("gradients_not_clipped", "_foreach_norm", lambda *args: None)
_clipping("gradients_clipped_too_far", "mul", lambda parameters, _: _clip(parameters, 0.1))
_optimizer("lr", 9e-3)
_optimizer("betas", (0.9, 0.95))
_optimizer("eps", 1e-6)
_optimizer("weight_decay", 0.0)
_zero_grad("optimizer_state_lost", "zero_ AdamW", _forget)


# ---- Kernels


class WrongKernel(TorchDispatchMode):
    """Changes the results of the `skipped`-th and later calls of an operator."""

    def __init__(self, operator: str, change: Callable[..., Any], skipped: int) -> None:
        super().__init__()
        self.operator, self.change, self.skipped = operator, change, skipped

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        returned = op(*args, **(kwargs or {}))
        if op.name() != self.operator:
            return returned
        self.skipped -= 1
        return returned if self.skipped >= 0 else self.change(returned, *args)


def _kernel(name, operator, change):
    calls = operator.partition("::")[2].partition(".")[0]
    FAULTS.append(Fault(name, lambda _, site: WrongKernel(operator, change, site), calls, None, True))


def _last(out, *_):
    flat = out.reshape(-1)
    flat[-1] = flat[-1] + 0.5 * flat.abs().max() + 1e-3
    return flat.reshape(out.shape)


def _nan(out, *_):
    out.reshape(-1)[0] = float("nan")
    return out


def _without_first(out, _, tokens, *__):
    return out.index_fill_(0, tokens.reshape(-1)[:1], 0)


def _halved(out, *_):
    return out.bfloat16().to(out.dtype)


_kernel("silu_last_element", "aten::silu", _last)
_kernel("softmax_in_low_precision", "aten::_softmax", _halved)
_kernel("matmul_accumulates_in_bfloat16", "aten::mm", _halved)
_kernel("batched_matmul_last_element", "aten::bmm", _last)
_kernel("rsqrt_approximated", "aten::rsqrt", lambda out, *_: out * (1 + 2e-4))
_kernel("mean_without_last", "aten::mean.dim", lambda out, x, *_: x[..., :-1].mean(-1, keepdim=True))
_kernel("silu_backward_of_sigmoid", "aten::silu_backward", lambda out, g, x: g * x.sigmoid())
_kernel("softmax_backward_zero", "aten::_softmax_backward_data", lambda out, *_: out * 0.999)
_kernel("embedding_backward_drops", "aten::embedding_dense_backward", _without_first)
_kernel("norm_of_gradients_nan", "aten::linalg_vector_norm", lambda out, *_: out * 1.5)
_kernel("log_softmax_nan", "aten::_log_softmax", _nan)
_kernel("masked_fill_everything", "aten::masked_fill.Scalar", lambda out, x, *_: out * 1.001)
