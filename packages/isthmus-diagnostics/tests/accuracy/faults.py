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


def around(calls: str, module: str | None = None) -> Callable[..., Any]:
    def add(function: Callable[[int], Iterator[None]]) -> Any:
        context = contextlib.contextmanager(function)
        FAULTS.append(Fault(function.__name__, lambda _, site: context(site), calls, module, True))
        return function

    return add


def replace_forward(module: Any, forward: Callable[..., Any]) -> None:
    module.forward = functools.partial(forward, module.forward)


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


@on_model("masked_fill", "layers.{n}.attention")
def no_mask(model, n):
    attention = model.layers[n].attention

    def forward(_, x):
        q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
        q, k = attention.rotary(q), attention.rotary(k)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        return attention.o((weights @ v).transpose(1, 2).flatten(2))

    replace_forward(attention, forward)


def _attention(model, n, scale=None, value=float("-inf"), mixed=False, transpose=True):
    attention = model.layers[n].attention

    def forward(_, x):
        q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
        q, k = attention.rotary(q), attention.rotary(k)
        scores = q @ k.transpose(-1, -2) / (scale or math.sqrt(q.shape[-1]))
        scores = scores.masked_fill(attention.mask, value)
        weights = scores.bfloat16().softmax(-1).float() if mixed else scores.softmax(-1)
        out = weights @ v
        return attention.o(
            (
                out.transpose(1, 2) if transpose else out.contiguous().view(out.shape[0], out.shape[2], -1, 8)
            ).flatten(2)
        )

    replace_forward(attention, forward)


@on_model("div", "layers.{n}.attention")
def scale_twice(model, n):
    _attention(model, n, scale=llama.HIDDEN // llama.HEADS)


@on_model("masked_fill", "layers.{n}.attention")
def mask_value(model, n):
    _attention(model, n, value=-1.0)


@on_model("_to_copy _softmax", "layers.{n}.attention")
def softmax_in_bfloat16(model, n):
    _attention(model, n, mixed=True)


@on_model("transpose clone view", "layers.{n}.attention")
def heads_not_transposed_back(model, n):
    _attention(model, n, transpose=False)


@on_model("neg mul cat add", "layers.{n}.attention.rotary")
def rotary_without_sign(model, n):
    rotary = model.layers[n].attention.rotary

    def forward(_, x):
        low, high = x.chunk(2, -1)
        return x * rotary.cos + torch.cat([high, low], -1) * rotary.sin

    replace_forward(rotary, forward)


@on_model("roll mul", None)
def position_off_by_one(model, n):
    rotary = model.layers[n].attention.rotary
    rotary.cos, rotary.sin = rotary.cos.roll(1, 0), rotary.sin.roll(1, 0)


@on_model("mul", None)
def stale_buffer(model, n):
    model.layers[n].attention.rotary.cos.data = model.layers[n].attention.rotary.cos.data * 0.99


@on_model("gelu silu", "layers.{n}.mlp")
def gelu_for_silu(model, n):
    mlp = model.layers[n].mlp
    replace_forward(mlp, lambda _, x: mlp.down(F.gelu(mlp.gate(x)) * mlp.up(x)))


@on_model("silu mul", "layers.{n}.mlp")
def gate_and_up_swapped(model, n):
    mlp = model.layers[n].mlp
    replace_forward(mlp, lambda _, x: mlp.down(F.silu(mlp.up(x)) * mlp.gate(x)))


@on_model("mul", "layers.{n}.attention")
def doubled_attention(model, n):
    replace_forward(model.layers[n].attention, lambda forward, x: forward(x) * 2)


@on_model("add", "layers.{n}")
def residual_left_out(model, n):
    layer = model.layers[n]

    def forward(_, x):
        x = layer.attention(layer.norm1(x))
        return x + layer.mlp(layer.norm2(x))

    replace_forward(layer, forward)


@on_model("pow", "layers.{n}.norm2")
def norm_left_out(model, n):
    replace_forward(model.layers[n].norm2, lambda _, x: x)


@on_model("mul", "layers.{n}.norm1")
def norm_without_weight(model, n):
    norm = model.layers[n].norm1
    replace_forward(norm, lambda _, x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps))


@on_model("sub mean", "layers.{n}.norm1")
def layer_norm_for_rms_norm(model, n):
    replace_forward(model.layers[n].norm1, lambda forward, x: forward(x - x.mean(-1, keepdim=True)))


@on_model("sum mean div", "layers.{n}.norm1")
def sum_for_mean(model, n):
    norm = model.layers[n].norm1
    replace_forward(
        norm, lambda _, x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + norm.eps) * norm.weight
    )


@on_model("_to_copy mm", "layers.{n}.mlp.down")
def matmul_in_bfloat16(model, n):
    down = model.layers[n].mlp.down
    replace_forward(down, lambda _, x: (x.bfloat16() @ down.weight.bfloat16().t()).float())


@on_model("detach", "layers.{n}.mlp")
def dropped_gradient(model, n):
    replace_forward(model.layers[n].mlp, lambda forward, x: forward(x.detach()))


@on_model("detach", "layers.{n}.attention.v")
def dropped_gradient_of_values(model, n):
    replace_forward(model.layers[n].attention.v, lambda forward, x: forward(x.detach()))


@on_model("pow", "layers.{n}.norm2")
def norm_without_gradient(model, n):
    replace_forward(model.layers[n].norm2, torch.no_grad()(lambda forward, x: forward(x)))


@on_model("t", "layers.{n}.mlp.up")
def frozen_weight(model, n):
    model.layers[n].mlp.up.weight.requires_grad_(False)


@on_model("view", "layers.{n}.attention")
def heads_split_wrongly(model, n):
    attention = model.layers[n].attention
    attention.heads = lambda x: (
        x.unflatten(-1, (llama.HIDDEN // llama.HEADS, -1)).transpose(2, 3).transpose(1, 2)
    )


@on_model("clone lift_fresh fill_", "layers.{n}.mlp")
def nan_in_activations(model, n):
    def forward(inner, x):
        out = inner(x).clone()
        out[0, 0, 0] = float("nan")
        return out

    replace_forward(model.layers[n].mlp, forward)


@on_model("add", "Llama")
def tokens_shifted(model, n):
    replace_forward(model, lambda forward, tokens: forward((tokens + 1) % llama.VOCABULARY))


@on_model("mul embedding t mm", None)
def embedding_scaled(model, n):
    model.embedding.weight.data = model.embedding.weight.data * 1.01


@on_model("bernoulli_ mul native_dropout", "layers.{n}.mlp")
def dropout_left_on(model, n):
    replace_forward(model.layers[n].mlp, lambda forward, x: F.dropout(forward(x), 0.1))


@on_model("clamp", "layers.{n}.mlp")
def activations_clamped(model, n):
    replace_forward(model.layers[n].mlp, lambda forward, x: forward(x.clamp(-1, 1)))


# ---- Loss and optimizer


@contextlib.contextmanager
def set_attribute(target, name, value):
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)


def _with_loss(change):
    loss_of = llama.loss_of
    return set_attribute(llama, "loss_of", functools.partial(change, loss_of))


@around("roll", "")
def labels_off_by_one(n):
    with _with_loss(lambda loss_of, logits, labels: loss_of(logits, labels.roll(1, 1))):
        yield


def _cross_entropy(logits, labels, **options):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), **options)


@around("nll_loss_forward", "")
def loss_summed(n):
    with _with_loss(lambda _, *args: _cross_entropy(*args, reduction="sum")):
        yield


@around("nll_loss_forward", "")
def wrong_ignore_index(n):
    with _with_loss(lambda _, *args: _cross_entropy(*args, ignore_index=int(llama.batch(0)[1][0, 0]))):
        yield


@around("mul", "")
def loss_scaled_twice(n):
    with _with_loss(lambda loss_of, *args: loss_of(*args) * 2):
        yield


@around("mul div add sum", "")
def label_smoothing(n):
    with _with_loss(lambda _, *args: _cross_entropy(*args, label_smoothing=0.1)):
        yield


@around("add add_ AdamW", None)
def gradients_not_zeroed(n):
    with set_attribute(torch.optim.AdamW, "zero_grad", lambda self, set_to_none=True: None):
        yield


@around("_foreach_norm", "")
def gradients_not_clipped(n):
    with set_attribute(torch.nn.utils, "clip_grad_norm_", lambda *args: None):
        yield


@around("mul", "")
def gradients_clipped_too_far(n):
    clip = torch.nn.utils.clip_grad_norm_
    with set_attribute(torch.nn.utils, "clip_grad_norm_", lambda parameters, _: clip(parameters, 0.1)):
        yield


def _optimizer(**options):
    return set_attribute(torch.optim, "AdamW", functools.partial(torch.optim.AdamW, **options))


def _wrong_optimizer(name, value):
    def plant(_, n):
        made = torch.optim.AdamW

        def make(parameters, **options):
            return made(parameters, **{**options, name: value})

        return set_attribute(torch.optim, "AdamW", make)

    FAULTS.append(Fault(f"wrong_{name}", plant, "AdamW", None, True))


for option, wrong in (("lr", 9e-3), ("betas", (0.9, 0.95)), ("eps", 1e-6), ("weight_decay", 0.0)):
    _wrong_optimizer(option, wrong)


@around("zero_ AdamW", None)
def optimizer_state_lost(n):
    zero = torch.optim.AdamW.zero_grad

    def forget(self, set_to_none=True):
        zero(self, set_to_none)
        for state in self.state.values():
            state["exp_avg"].zero_()

    with set_attribute(torch.optim.AdamW, "zero_grad", forget):
        yield


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
    def plant(_, n):
        return WrongKernel(operator, change, n)

    FAULTS.append(Fault(name, plant, operator.partition("::")[2].partition(".")[0], None, True))


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
