"""AdamW over all parameters: one launch per combination of dtypes, over a table of addresses."""

import math
from functools import lru_cache
from itertools import chain
from typing import Any

import torch
import triton
import triton.language as tl

from isthmus.ops.triton.launch import cdiv

Tensors = list[torch.Tensor]

_CHUNK = 16384  # elements of one program
_BLOCK = 2048
_KINDS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_COLUMNS = 8  # columns of the table: addresses of param, grad, mean, square, top, master and step; size


@triton.jit
def _update(
    param_ptr, grad_ptr, mean_ptr, square_ptr, top_ptr, master_ptr, offset, inside, scale, lr, first, second,
    mean_part, beta2, square_part, eps, decay,
    TOP: tl.constexpr, MASTER: tl.constexpr, DECOUPLED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    mask = inside if MASKED else None
    value_ptr = master_ptr if MASTER else param_ptr
    value = tl.load(value_ptr + offset, mask).to(tl.float32)
    grad = tl.load(grad_ptr + offset, mask).to(tl.float32) * scale
    if not DECOUPLED:
        grad += decay * value
    mean = tl.load(mean_ptr + offset, mask).to(tl.float32)
    mean += (grad - mean) * mean_part
    square = tl.load(square_ptr + offset, mask).to(tl.float32) * beta2 + grad * grad * square_part
    tl.store(mean_ptr + offset, mean, mask)
    tl.store(square_ptr + offset, square, mask)
    if TOP:
        before = tl.load(top_ptr + offset, mask).to(tl.float32)
        square = tl.maximum(before, square, propagate_nan=tl.PropagateNan.ALL)
        tl.store(top_ptr + offset, square, mask)
    if DECOUPLED:
        value *= 1 - lr * decay
    value -= lr / first * (mean / (tl.sqrt(square) / second + eps))
    if MASTER:
        tl.store(master_ptr + offset, value, mask)
    tl.store(param_ptr + offset, value, mask)


@triton.jit
def _step(
    table_ptr, chunks_ptr, norm_ptr, grad_scale_ptr, found_inf_ptr, lr, log_beta1, log_beta2, mean_part, beta2,
    square_part, eps, decay, max_norm,
    PARAM: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr, TOP: tl.constexpr, MASTER: tl.constexpr,
    DECOUPLED: tl.constexpr, MAXIMIZE: tl.constexpr, ALIGN: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    entry = tl.load(chunks_ptr + tl.program_id(0) * 2).to(tl.int64)
    begin = tl.load(chunks_ptr + tl.program_id(0) * 2 + 1).to(tl.int64) * CHUNK
    row = table_ptr + entry * COLUMNS
    param_ptr = tl.multiple_of(tl.load(row).to(tl.pointer_type(PARAM)), ALIGN)
    grad_ptr = tl.multiple_of(tl.load(row + 1).to(tl.pointer_type(GRAD)), ALIGN)
    mean_ptr = tl.multiple_of(tl.load(row + 2).to(tl.pointer_type(STATE)), ALIGN)
    square_ptr = tl.multiple_of(tl.load(row + 3).to(tl.pointer_type(STATE)), ALIGN)
    top_ptr = tl.multiple_of(tl.load(row + 4).to(tl.pointer_type(STATE)), ALIGN)
    master_ptr = tl.multiple_of(tl.load(row + 5).to(tl.pointer_type(tl.float32)), ALIGN)
    step = tl.load(tl.load(row + 6).to(tl.pointer_type(tl.float32))).to(tl.float64)
    size = tl.load(row + 7)
    # Computed in float64, because of cancellation in 1 - beta ** step.
    first = (1 - tl.exp(step * log_beta1)).to(tl.float32)
    second = tl.sqrt((1 - tl.exp(step * log_beta2)).to(tl.float32))
    scale = tl.full((), -1.0 if MAXIMIZE else 1.0, tl.float32)
    if norm_ptr is not None:
        ratio = max_norm / (tl.load(norm_ptr).to(tl.float32) + 1e-6)
        scale *= tl.where(ratio > 1, 1.0, ratio)
    if grad_scale_ptr is not None:
        scale /= tl.load(grad_scale_ptr).to(tl.float32)
    end = size
    if found_inf_ptr is not None:
        end = tl.where(tl.load(found_inf_ptr) == 0, size, 0)
    if begin + CHUNK <= end:
        for start in range(0, CHUNK, BLOCK):
            offset = begin + start + tl.arange(0, BLOCK)
            _update(param_ptr, grad_ptr, mean_ptr, square_ptr, top_ptr, master_ptr, offset, offset < end, scale, lr,
                    first, second, mean_part, beta2, square_part, eps, decay,
                    TOP, MASTER, DECOUPLED, False)  # fmt: skip
    else:
        for start in range(0, CHUNK, BLOCK):
            offset = begin + start + tl.arange(0, BLOCK)
            _update(param_ptr, grad_ptr, mean_ptr, square_ptr, top_ptr, master_ptr, offset, offset < end, scale, lr,
                    first, second, mean_part, beta2, square_part, eps, decay,
                    TOP, MASTER, DECOUPLED, True)  # fmt: skip


def adamw_(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors,
    masters: Tensors, steps: Tensors, norm: torch.Tensor | None, grad_scale: torch.Tensor | None,
    found_inf: torch.Tensor | None, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float,
    max_norm: float, decoupled: bool, maximize: bool,
) -> None:  # fmt: skip
    """The operator ``isthmus::adamw_``."""
    torch._foreach_add_(steps, 1 if found_inf is None else (found_inf == 0).to(torch.float32).view(()))
    dense = [each.contiguous() for each in grads]
    groups: dict[tuple[torch.dtype, ...], list[int]] = {}
    for index, param in enumerate(params):
        if param.numel():
            own = (param.dtype, grads[index].dtype, exp_avgs[index].dtype)
            groups.setdefault(own, []).append(index)
    for kinds, members in groups.items():
        lists = (params, dense, exp_avgs, exp_avg_sqs, max_exp_avg_sqs or params, masters or params, steps)
        pointers = tuple(zip(*([each[i].data_ptr() for i in members] for each in lists), strict=True))
        sizes = tuple(params[i].numel() for i in members)
        (table, aligned), chunks = _table(pointers, sizes, params[0].device), _chunks(sizes, params[0].device)
        _step[(chunks.shape[0],)](
            table, chunks, norm, grad_scale, found_inf, lr, _log(beta1), _log(beta2), 1 - beta1, beta2, 1 - beta2,
            eps, weight_decay, max_norm,
            PARAM=_KINDS[kinds[0]], GRAD=_KINDS[kinds[1]], STATE=_KINDS[kinds[2]], TOP=bool(max_exp_avg_sqs),
            MASTER=bool(masters), DECOUPLED=decoupled, MAXIMIZE=maximize, ALIGN=16 if aligned else 1,
            COLUMNS=_COLUMNS, CHUNK=_CHUNK, BLOCK=_BLOCK, num_warps=4,
        )  # fmt: skip


def _log(beta: float) -> float:
    return math.log(beta) if beta else -math.inf


@lru_cache(maxsize=32)  # gradient addresses repeat from step to step
def _table(
    pointers: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], device: torch.device
) -> tuple[torch.Tensor, bool]:
    """Table of addresses and sizes, and whether the addresses are multiples of 16."""
    rows = [[*row, size] for row, size in zip(pointers, sizes, strict=True)]
    aligned = all(address % 16 == 0 for address in chain.from_iterable(row[:6] for row in pointers))
    return torch.tensor(rows, dtype=torch.int64).to(device), aligned


@lru_cache(maxsize=32)
def _chunks(sizes: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Tensor and chunk index of each program, [programs, 2]."""
    counts = torch.tensor([cdiv(size, _CHUNK) for size in sizes])
    entries = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    chunks = torch.arange(len(entries)) - starts
    return torch.stack([entries, chunks], 1).to(torch.int32).to(device)


def refuses_adamw_(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, tops: Tensors, masters: Tensors,
    steps: Tensors, *_: Any,
) -> str:  # fmt: skip
    """Refuse dtypes without a kernel, and parameters or states that are not contiguous."""
    if not params:
        return ""
    if any(each.dtype != torch.float32 for each in chain(masters, steps)):
        return "no kernel for master weights or steps that are not float32"
    device = params[0].device
    if any(each.device != device for each in chain(params, steps)):
        return "parameters and steps are on different devices"
    lists = (params, grads, exp_avgs, exp_avg_sqs, tops or exp_avgs)
    for param, grad, *states in set(zip(*([each.dtype for each in many] for many in lists), strict=True)):
        if len(set(states)) > 1 or not {param, grad, *states} <= _KINDS.keys():
            return f"no kernel for {param} with a gradient of {grad} and a state of {states[0]}"
    if not all(each.is_contiguous() for each in chain(params, exp_avgs, exp_avg_sqs, tops, masters)):
        return "a parameter or a state is not contiguous"
    return ""
