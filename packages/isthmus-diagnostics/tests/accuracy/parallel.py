"""The training of llama.py beside it under tensor and data parallelism, with faults that only ranks have."""

import torch
import torch.distributed as dist
from torch import nn

from tests.accuracy import llama
from tests.accuracy.faults import replace_forward, set_attribute
from tests.accuracy.jobs import JOBS, Job

RANKS = 2


class ToRanks(torch.autograd.Function):
    """The input of a layer that is split by its outputs: gradients are summed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class FromRanks(torch.autograd.Function):
    """The result of a layer that is split by its inputs: it is summed."""

    @staticmethod
    def forward(ctx, x, operation=dist.ReduceOp.SUM, divisor=1):
        x = x.contiguous()
        dist.all_reduce(x, operation)
        return x if divisor == 1 else x / divisor

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


def split(weight, dim):
    part = weight.detach().chunk(RANKS, dim)[dist.get_rank()].clone()
    made = nn.Parameter(part)
    made.tensor_model_parallel, made.partition_dim = True, dim
    return made


def tensor_parallel(model, to_ranks=ToRanks.apply, from_ranks=FromRanks.apply):
    for layer in model.layers:
        for linear in (layer.attention.q, layer.attention.k, layer.attention.v, layer.mlp.gate, layer.mlp.up):
            linear.weight = split(linear.weight, 0)
        for linear in (layer.attention.o, layer.mlp.down):
            linear.weight = split(linear.weight, 1)
        for block in (layer.attention, layer.mlp):
            replace_forward(block, lambda forward, x: from_ranks(forward(to_ranks(x))))


def reduce_gradients(model, skip=(), operation=dist.ReduceOp.SUM, divide=True):
    for name, parameter in model.named_parameters():
        if name in skip or parameter.grad is None:
            continue
        dist.all_reduce(parameter.grad, operation)
        if divide:
            parameter.grad /= dist.get_world_size()


def train(change=None, tp=False, **options):
    """Two steps; `change` is made to the model before it is split, options go to the reduction of gradients."""
    torch.manual_seed(1)
    model = llama.Llama()
    if change is not None:
        change(model)
    if tp:
        tensor_parallel(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        tokens, labels = llama.batch(step)
        if not tp:
            tokens, labels = (each.chunk(RANKS)[dist.get_rank()] for each in (tokens, labels))
        llama.loss_of(model(tokens), labels).backward()
        if not tp:
            reduce_gradients(model, **options)
        optimizer.step()
        optimizer.zero_grad()


def on_rank_1(change):
    return lambda model: change(model) if dist.get_rank() else None


def nan_in_weight(model):
    model.layers[1].mlp.up.weight.data[-1, -1] = float("nan")


def other_norm(model):
    model.layers[0].norm2.weight.data.mul_(1.01)


def other_epsilon(model):
    model.layers[1].norm1.eps = 1e-4


def scaled_rotary(model):
    replace_forward(model.layers[0].attention.rotary, lambda inner, x: inner(x) * 1.02)


def clipped_mlp(model):
    replace_forward(model.layers[1].mlp.down, lambda inner, x: inner(x.clamp(-0.05, 0.05)))


def cold_embedding(model):
    model.embedding.weight.data[7] = 0


class _Counted:
    """An all-reduce that is left out, or wrong, in one call of four in each step."""

    def __init__(self, right, wrong, place):
        self.right, self.wrong, self.place, self.calls = right, wrong, place, 0

    def __call__(self, x):
        self.calls += 1
        return (self.wrong if (self.calls - 1) % 4 == self.place else self.right)(x)


class NotSummed(ToRanks):
    @staticmethod
    def backward(ctx, grad):
        return grad


def _tp(name, calls, against_one, change=None, **options):
    JOBS[f"tp_{name}"] = Job(
        lambda: train(change, tp=True, **options), RANKS, "tp", calls, None, "one", against_one
    )


def _dp(name, calls, against_one, change=None, **options):
    JOBS[f"dp_{name}"] = Job(lambda: train(change, **options), RANKS, "dp", calls, None, "one", against_one)


def _one():
    with set_attribute(nn.utils, "clip_grad_norm_", lambda *_: None):
        llama.train(2)


JOBS["one"] = Job(_one, 1)
JOBS["tp"] = Job(lambda: train(tp=True), RANKS, one="one")
JOBS["dp"] = Job(train, RANKS, one="one")
_reduced, _copied = FromRanks.apply, ToRanks.apply
_tp("missing_all_reduce", "allreduce_", "add", from_ranks=_Counted(_reduced, lambda x: x, 2))
_tp(
    "averaged",
    "div",
    "div allreduce_",
    from_ranks=_Counted(_reduced, lambda x: FromRanks.apply(x, dist.ReduceOp.SUM, RANKS), 1),
)
_tp(
    "wrong_reduction",
    "allreduce_",
    "allreduce_",
    from_ranks=_Counted(_reduced, lambda x: FromRanks.apply(x, dist.ReduceOp.MAX), 3),
)
_tp("gradient_not_summed", "allreduce_", "add", to_ranks=_Counted(_copied, NotSummed.apply, 0))
_tp("nan_from_one_rank", "lift_fresh", "t mm lift_fresh", on_rank_1(nan_in_weight))
_tp("norms_differ", "mul_", "mul_ mul", on_rank_1(other_norm))
_tp("epsilon_differs", "add", "add", on_rank_1(other_epsilon))
_dp("missing_all_reduce", "allreduce_", "AdamW", skip=("layers.0.mlp.up.weight",))
_dp("wrong_reduction", "allreduce_", "allreduce_", operation=dist.ReduceOp.MAX)
_dp("not_divided", "div_", "allreduce_", divide=False)
_dp("norms_differ", "mul_", "mul_ mul", on_rank_1(other_norm))
_dp("nan_from_one_rank", "lift_fresh", "t mm lift_fresh", on_rank_1(nan_in_weight))
_dp("epsilon_differs", "add", "add", on_rank_1(other_epsilon))
_tp("rotary_scaled", "mul", "mul", on_rank_1(scaled_rotary))
_tp("mlp_clipped", "clamp", "clamp", on_rank_1(clipped_mlp))
_cold = "fill_ zero_ lift_fresh copy_"
_tp("embedding_cold", _cold, _cold, on_rank_1(cold_embedding))
_dp("rotary_scaled", "mul", "mul", on_rank_1(scaled_rotary))
_dp("mlp_clipped", "clamp", "clamp", on_rank_1(clipped_mlp))
_dp("embedding_cold", _cold, _cold, on_rank_1(cold_embedding))
