"""The training of tests/accuracy/llama.py on two ranks, with faults that only several ranks have.

``python -m tests.accuracy.parallel RANK STORE FOLDER KIND NAME...`` dumps the named jobs: ``tp``, ``dp``, or a fault.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn

import isthmus.accuracy
from tests.accuracy import llama
from tests.accuracy.faults import replace_forward

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
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


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
            parameter.grad /= RANKS


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


class _Counted:
    """An all-reduce that is left out, or wrong, in one call of four in each step."""

    def __init__(self, right, wrong, place):
        self.right, self.wrong, self.place, self.calls = right, wrong, place, 0

    def __call__(self, x):
        self.calls += 1
        return (self.wrong if (self.calls - 1) % 4 == self.place else self.right)(x)


class Averaged(FromRanks):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x / RANKS


class Largest(FromRanks):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return x


class NotSummed(ToRanks):
    @staticmethod
    def backward(ctx, grad):
        return grad


class Job(NamedTuple):
    """A job, and the operators that may be named: against the right job of two ranks, and against that of one."""

    train: Callable[[], None]
    calls: str = ""
    against_one: str = ""


JOBS = {
    "tp": Job(lambda: train(tp=True)),
    "dp": Job(train),
    "tp_missing_all_reduce": Job(
        lambda: train(tp=True, from_ranks=_Counted(FromRanks.apply, lambda x: x, 2)), "allreduce_", "add"
    ),
    "tp_averaged": Job(
        lambda: train(tp=True, from_ranks=_Counted(FromRanks.apply, Averaged.apply, 1)),
        "div",
        "div allreduce_",
    ),
    "tp_wrong_reduction": Job(
        lambda: train(tp=True, from_ranks=_Counted(FromRanks.apply, Largest.apply, 3)),
        "allreduce_",
        "allreduce_",
    ),
    "tp_gradient_not_summed": Job(
        lambda: train(tp=True, to_ranks=_Counted(ToRanks.apply, NotSummed.apply, 0)), "allreduce_", "add"
    ),
    "tp_nan_from_one_rank": Job(
        lambda: train(on_rank_1(nan_in_weight), tp=True), "lift_fresh", "t mm lift_fresh"
    ),
    "tp_norms_differ": Job(lambda: train(on_rank_1(other_norm), tp=True), "mul_", "mul_ mul"),
    "tp_epsilon_differs": Job(lambda: train(on_rank_1(other_epsilon), tp=True), "add", "add"),
    "dp_missing_all_reduce": Job(lambda: train(skip=("layers.0.mlp.up.weight",)), "allreduce_", "AdamW"),
    "dp_wrong_reduction": Job(lambda: train(operation=dist.ReduceOp.MAX), "allreduce_", "allreduce_"),
    "dp_not_divided": Job(lambda: train(divide=False), "div_", "allreduce_"),
    "dp_norms_differ": Job(lambda: train(on_rank_1(other_norm)), "mul_", "mul_ mul"),
    "dp_nan_from_one_rank": Job(lambda: train(on_rank_1(nan_in_weight)), "lift_fresh", "t mm lift_fresh"),
    "dp_epsilon_differs": Job(lambda: train(on_rank_1(other_epsilon)), "add", "add"),
}


def main():
    rank, store, folder, kind, *names = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=RANKS)
    for name in names:
        with isthmus.accuracy.dump(Path(folder) / name, kind):
            JOBS[name].train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
