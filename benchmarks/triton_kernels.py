"""Triton kernels that `triton_speed.py` measures, in the forms of Triton's tutorials."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def empty_kernel(x, n):
    pass


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of two tensors."""
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@triton.jit
def softmax_kernel(x, out, stride, rows, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        values = tl.load(x + row * stride + at, mask=mask, other=-float("inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of rows; each program computes several."""
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(min(64, x.shape[0]),)](x, out, x.stride(0), x.shape[0], x.shape[1], BLOCK=block)
    return out


@triton.jit
def norm_forward_kernel(x, out, weight, bias, means, rstds, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * columns
    out += row * columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        values = tl.where(at < columns, values - mean, 0.0)
        squares += values * values
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        normal = (tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(
            out + at, normal * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask), mask=mask
        )


@triton.jit
def norm_backward_kernel(
    dx, dy, dweight, dbias, x, weight, means, rstds, locks, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask=mask, other=0).to(tl.float32)
    gradient = tl.load(dy + row * columns + at, mask=mask, other=0).to(tl.float32)
    scale = tl.load(weight + at, mask=mask).to(tl.float32)
    rstd = tl.load(rstds + row)
    normal = tl.where(mask, (values - tl.load(means + row)) * rstd, 0.0)
    scaled = tl.where(mask, scale * gradient, 0.0)
    along = tl.sum(normal * scaled, axis=0) / columns
    mean = tl.sum(scaled, axis=0) / columns
    tl.store(dx + row * columns + at, (scaled - (normal * along + mean)) * rstd, mask=mask)
    # Rows of a group add to the same sums, one at a time.
    group = row % GROUPS
    dweight += group * columns + at
    dbias += group * columns + at
    part_weight, part_bias = gradient * normal, gradient
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    count = tl.load(locks + GROUPS + group)
    if count == 0:
        tl.atomic_xchg(locks + GROUPS + group, 1)
    else:
        part_weight += tl.load(dweight, mask=mask)
        part_bias += tl.load(dbias, mask=mask)
    tl.store(dweight, part_weight, mask=mask)
    tl.store(dbias, part_bias, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


@triton.jit
def norm_sums_kernel(
    dweight, dbias, weights, biases, groups, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    weight = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    bias = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, groups, ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows[:, None] < groups) & (at[None, :] < columns)
        place = rows[:, None] * columns + at[None, :]
        weight += tl.load(dweight + place, mask=mask, other=0.0)
        bias += tl.load(dbias + place, mask=mask, other=0.0)
    tl.store(weights + at, tl.sum(weight, axis=0), mask=at < columns)
    tl.store(biases + at, tl.sum(bias, axis=0), mask=at < columns)


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Layer norm over the rows of a matrix: the result, the means and the inverse standard deviations."""
    rows, columns = x.shape
    out, means, rstds = torch.empty_like(x), x.new_empty(rows), x.new_empty(rows)
    block = triton.next_power_of_2(columns)
    norm_forward_kernel[(rows,)](x, out, weight, bias, means, rstds, columns, 1e-5, BLOCK=block)
    return out, means, rstds


def norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, means: torch.Tensor, rstds: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Gradients of a layer norm's input, weight and bias."""
    (rows, columns), groups = x.shape, 16
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    dweights, dbiases = x.new_zeros(groups, columns), x.new_zeros(groups, columns)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    block = triton.next_power_of_2(columns)
    norm_backward_kernel[(rows,)](
        dx, dy, dweights, dbiases, x, weight, means, rstds, locks, columns, GROUPS=groups, BLOCK=block
    )
    norm_sums_kernel[(triton.cdiv(columns, 128),)](
        dweights, dbiases, dweight, dbias, groups, columns, ROWS=16, COLUMNS=128
    )
    return dx, dweight, dbias


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    # Programs of a group share columns of b.
    program, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = program // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    row = first + program % (GROUP * columns) % size
    column = program % (GROUP * columns) // size
    rows_at, columns_at = (row * BM + tl.arange(0, BM)) % M, (column * BN + tl.arange(0, BN)) % N
    inner = tl.arange(0, BK)
    left, right = a + rows_at[:, None] * K + inner[None, :], b + inner[:, None] * N + columns_at[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(left, mask=inner[None, :] < K - k * BK, other=0.0)
        y = tl.load(right, mask=inner[:, None] < K - k * BK, other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * N
    rows_at, columns_at = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    within = (rows_at[:, None] < M) & (columns_at[None, :] < N)
    tl.store(c + rows_at[:, None] * N + columns_at[None, :], total.to(c.dtype.element_ty), mask=within)


def matmul(a: torch.Tensor, b: torch.Tensor, blocks: tuple[int, int, int] = (128, 128, 128)) -> torch.Tensor:
    """The product of two matrices."""
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty(m, n)
    grid = (triton.cdiv(m, blocks[0]) * triton.cdiv(n, blocks[1]),)
    matmul_kernel[grid](a, b, out, m, n, k, *blocks, GROUP=8)
    return out


@triton.jit
def attention_kernel(
    q, k, v, out, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):
    row, head = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * N * D
    at, columns = tl.arange(0, D), tl.arange(0, BN)
    queries = tl.load(q + head + row[:, None] * D + at[None, :])
    highest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, D), tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else N
    for start in range(0, end, BN):
        keys = tl.load(k + head + (start + columns[:, None]) * D + at[None, :])
        scores = tl.dot(queries, tl.trans(keys)) * scale
        if CAUSAL:
            scores = tl.where(row[:, None] >= start + columns[None, :], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp2(scores - higher[:, None])
        correction = tl.exp2(highest - higher)
        total = total * correction + tl.sum(powers, 1)
        values = tl.load(v + head + (start + columns[:, None]) * D + at[None, :])
        mixed = tl.dot(powers, values, mixed * correction[:, None])
        highest = higher
    tl.store(out + head + row[:, None] * D + at[None, :], mixed / total[:, None])


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, blocks: tuple[int, int] = (128, 128)
) -> torch.Tensor:
    """Attention of [heads, length, width]; the lengths are multiples of the blocks."""
    (heads, length, width), out = q.shape, torch.empty_like(q)
    scale = math.log2(math.e) / math.sqrt(width)
    attention_kernel[(length // blocks[0], heads)](q, k, v, out, scale, length, width, *blocks, CAUSAL=causal)
    return out
