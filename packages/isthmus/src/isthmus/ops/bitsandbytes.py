"""The optimizer kernels of bitsandbytes, written in PyTorch's operators.

They write the states that its CUDA kernels write: the same order of operations in float32, parameters rounded after
each operation, and states quantized in blocks of 256 elements to the nearest entry of a map of 256 values.

Source: csrc/kernels.cu of https://github.com/bitsandbytes-foundation/bitsandbytes.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F

_BLOCK = 256
_ALIASES = {"lamb": "adam", "lars": "momentum"}
_WITH_TWO_STATES = ("adam", "ademamix")
_WITH_COUPLED_DECAY = ("momentum", "rmsprop", "adagrad")
_ZERO_CODE = 128  # code of the elements that fill the last block of a signed state


class _Settings(NamedTuple):
    """Arguments of one update, rounded to float32 as the kernels take them."""

    beta1: float
    beta2: float
    beta3: float
    alpha: float
    eps: float
    weight_decay: float
    lr: float
    step: int

    def rest(self, beta: float) -> float:
        """``1 - beta``."""
        return _float32(1 - beta)

    def correction(self, beta: float) -> float:
        """Bias correction of a mean: ``1 - beta ** step``."""
        return _float32(1 - _float32(beta**self.step))


def _float32(value: float) -> float:
    return ctypes.c_float(value).value


def _settings(step: int, *values: float) -> _Settings:
    beta1, beta2, beta3, alpha, eps, weight_decay, lr = map(_float32, values)
    return _Settings(beta1, beta2, beta3, alpha, eps, weight_decay, lr, step)


@torch.no_grad()
def optimizer_update_8bit_blockwise(
    optimizer_name: str,
    g: torch.Tensor,
    p: torch.Tensor,
    state1: torch.Tensor,
    state2: torch.Tensor | None,
    beta1: float,
    beta2: float,
    beta3: float,
    alpha: float,
    eps: float,
    step: int,
    lr: float,
    qmap1: torch.Tensor,
    qmap2: torch.Tensor | None,
    absmax1: torch.Tensor,
    absmax2: torch.Tensor | None,
    weight_decay: float,
    gnorm_scale: float,
    skip_zeros: bool = False,
) -> None:
    """Update a parameter and its 8-bit states in place.

    Args:
        optimizer_name: "adam", "ademamix", "momentum", "rmsprop", "adagrad" or "lion".
        g: gradient, of the parameter's dtype.
        p: parameter.
        state1: uint8, first state; for "ademamix" both means, stacked.
        state2: uint8, second state of "adam" and "ademamix".
        beta1: decay rate of the first mean.
        beta2: decay rate of the mean of squares; of the state for "lion".
        beta3: decay rate of the slow mean of "ademamix".
        alpha: factor of the slow mean.
        eps: added to the denominator.
        step: number of this step, from 1.
        lr: learning rate.
        qmap1: float32 [256], values of the codes of ``state1``.
        qmap2: the same for ``state2``.
        absmax1: float32 [blocks], largest magnitudes of ``state1``; [2, blocks] for "ademamix".
        absmax2: the same for ``state2``.
        weight_decay: decoupled for "adam", "ademamix" and "lion", else added to the gradient.
        gnorm_scale: factor of the gradient.
        skip_zeros: leave elements with a gradient of 0 as they are, except for "adam" and "ademamix".

    Raises:
        ValueError: unknown optimizer.
    """
    at = _settings(step, beta1, beta2, beta3, alpha, eps, weight_decay, lr)
    grad = _in_blocks(g, 0).float()
    param = _in_blocks(p, 0)
    if optimizer_name in _WITH_TWO_STATES:
        assert state2 is not None and qmap2 is not None and absmax2 is not None
        firsts = [(state1, absmax1)]
        if optimizer_name == "ademamix":
            firsts = list(zip(state1, absmax1.view(2, -1), strict=True))
        means = [_decode(codes, largest, qmap1, _ZERO_CODE) for codes, largest in firsts]
        squares = _decode(state2, absmax2, qmap2, 0)
        finite = grad.isfinite()
        scaled = grad * _float32(gnorm_scale)
        updated = [
            mean * b + at.rest(b) * scaled for mean, b in zip(means, (at.beta1, at.beta3), strict=False)
        ]
        squares = squares * at.beta2 + at.rest(at.beta2) * scaled * scaled
        updated, squares = [_or_zero(finite, each) for each in updated], _or_zero(finite, squares)
        _write(p, torch.where(finite, _two_state_step(optimizer_name, param, updated, squares, at), param))
        for (codes, largest), mean in zip(firsts, updated, strict=True):
            _encode(mean, codes, largest, qmap1, is_signed=True)
        _encode(squares, state2, absmax2, qmap2, is_signed=False)
        return
    state = _decode(state1, absmax1, qmap1, _ZERO_CODE)
    decayed = grad * _float32(gnorm_scale)
    if optimizer_name in _WITH_COUPLED_DECAY and weight_decay > 0:
        decayed = decayed + param.float() * at.weight_decay
    # The kernels divide the unscaled gradient for "rmsprop" and "adagrad".
    fresh, found = _one_state_step(optimizer_name, param, decayed, grad, state, at, g.dtype)
    if skip_zeros:
        fresh, found = torch.where(grad != 0, fresh, state), torch.where(grad != 0, found, param)
    _write(p, found)
    _encode(fresh, state1, absmax1, qmap1, is_signed=True)


def optimizer_update_32bit(lion_decay_is_decoupled: bool) -> Callable[..., None]:
    """Return the kernel of ``bitsandbytes::optimizer_update_32bit``.

    Args:
        lion_decay_is_decoupled: versions before 0.50 add Lion's weight decay to the gradient.
    """

    @torch.no_grad()
    def update(
        optimizer_name: str,
        g: torch.Tensor,
        p: torch.Tensor,
        state1: torch.Tensor,
        state2: torch.Tensor | None,
        unorm_vec: torch.Tensor | None,
        max_unorm: float,
        param_norm: float,
        beta1: float,
        beta2: float,
        beta3: float,
        alpha: float,
        eps: float,
        weight_decay: float,
        step: int,
        lr: float,
        gnorm_scale: float,
        skip_zeros: bool = False,
    ) -> None:
        name = _ALIASES.get(optimizer_name, optimizer_name)
        at = _settings(step, beta1, beta2, beta3, alpha, eps, weight_decay, lr)
        grad = (g.float() * _float32(gnorm_scale)).to(g.dtype).float()
        states = (state1, state2)
        scale: Any = 1.0
        if unorm_vec is not None and max_unorm > 0:
            if name != "lion":
                unorm_vec.copy_(_update_norm(name, grad, states, at))
            limit = max_unorm * param_norm + (0 if name in _WITH_TWO_STATES else at.eps)
            norm = unorm_vec.sqrt()
            scale = torch.where(norm > limit, limit / norm, 1.0)
        _update_32bit(name, grad, p, states, at, scale, skip_zeros, lion_decay_is_decoupled)
        if unorm_vec is not None and max_unorm > 0 and name == "lion":
            unorm_vec.copy_(_update_norm(name, grad, states, at))

    return update


def _update_32bit(
    name: str, grad: torch.Tensor, p: torch.Tensor, states: Any, at: _Settings, scale: Any, skip_zeros: bool,
    lion_decay_is_decoupled: bool,
) -> None:  # fmt: skip
    state1, state2 = states
    if name in _WITH_TWO_STATES:
        firsts = list(state1) if name == "ademamix" else [state1]
        means = [mean * b + at.rest(b) * grad for mean, b in zip(firsts, (at.beta1, at.beta3), strict=False)]
        squares = state2 * at.beta2 + at.rest(at.beta2) * grad * grad
        found = _two_state_step(name, p, means, squares, at, scale)
        changes = [*zip(firsts, means, strict=True), (state2, squares), (p, found)]
    else:
        if at.weight_decay > 0 and (name != "lion" or not lion_decay_is_decoupled):
            grad = (grad + p.float() * at.weight_decay).to(p.dtype).float()
            at = at._replace(weight_decay=0.0)
        fresh, found = _one_state_step(name, p, grad, grad, state1, at, torch.float32, scale)
        changes = [(state1, fresh), (p, found)]
    for old, new in changes:
        old.copy_(torch.where(grad != 0, new, old) if skip_zeros and name != "ademamix" else new)


def _two_state_step(
    name: str,
    param: torch.Tensor,
    means: list[torch.Tensor],
    squares: torch.Tensor,
    at: _Settings,
    scale: Any = 1.0,
) -> torch.Tensor:
    """The parameter after a step of "adam" or "ademamix"."""
    first, second = at.correction(at.beta1), _float32(at.correction(at.beta2) ** 0.5)
    if name == "ademamix":
        update = (means[0] / first + at.alpha * means[1]) / (squares.sqrt() / second + at.eps)
        found = (param.float() - at.lr * update).to(param.dtype)
    else:
        size = _float32(-at.lr * second / first)
        found = (param.float() + scale * size * (means[0] / (squares.sqrt() + second * at.eps))).to(
            param.dtype
        )
    return _decay(found, at)


def _one_state_step(
    name: str, param: torch.Tensor, grad: torch.Tensor, divided: torch.Tensor, state: torch.Tensor, at: _Settings,
    lion_dtype: torch.dtype, scale: Any = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The state and the parameter after a step of an optimizer with one state.

    Args:
        name: of the optimizer.
        param: parameter.
        grad: gradient for the state.
        divided: gradient that "rmsprop" and "adagrad" divide by the root of the state.
        state: float32.
        at: settings.
        lion_dtype: dtype that Lion's update is rounded to.
        scale: factor of the update, except for "adagrad".

    Raises:
        ValueError: unknown optimizer.
    """
    wide = param.float()
    if name == "momentum":
        fresh = grad if at.step == 1 else state * at.beta1 + grad
        found = wide - scale * (at.lr * fresh)
    elif name == "lion":
        wide = _decay(param, at).float()
        sign = (state * at.beta1 + at.rest(at.beta1) * grad).sign()
        fresh = state * at.beta2 + at.rest(at.beta2) * grad
        found = wide - scale * (at.lr * sign).to(lion_dtype).float()
    elif name in ("rmsprop", "adagrad"):
        square = grad * grad
        fresh = state * at.beta1 + at.rest(at.beta1) * square if name == "rmsprop" else state + square
        update = at.lr * (divided / (fresh.sqrt() + at.eps))
        found = wide - (update if name == "adagrad" else scale * update)
    else:
        raise ValueError(f"bitsandbytes: unsupported optimizer {name!r}")
    return fresh, found.to(param.dtype)


def _decay(param: torch.Tensor, at: _Settings) -> torch.Tensor:
    """The parameter after decoupled weight decay."""
    if at.weight_decay <= 0:
        return param
    return (param.float() * _float32(1 - at.lr * at.weight_decay)).to(param.dtype)


def _update_norm(name: str, grad: torch.Tensor, states: Any, at: _Settings) -> torch.Tensor:
    """Squared norm of the update that a step would make; for "lion" the sum of its state."""
    state1, state2 = states
    if name == "adam":
        mean = (state1 * at.beta1 + at.rest(at.beta1) * grad) / at.correction(at.beta1)
        square = (state2 * at.beta2 + at.rest(at.beta2) * grad * grad) / at.correction(at.beta2)
        return (mean / (square.sqrt() + at.eps)).square().sum()
    if name == "momentum":
        return (grad if at.step == 1 else state1 * at.beta1 + grad).square().sum()
    if name == "lion":
        return (state1 * at.beta2 + at.rest(at.beta2) * grad).sum()
    if name == "ademamix":
        return torch.zeros((), device=grad.device)
    square = grad * grad
    fresh = state1 * at.beta1 + at.rest(at.beta1) * square if name == "rmsprop" else state1 + square
    return (grad / (fresh.sqrt() + at.eps)).square().sum()


# ---- functions beside the operators -----------------------------------------------------------------------------
def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> torch.Tensor:
    """Return zeros in the memory of the device, where bitsandbytes allocates paged memory."""
    return torch.zeros(shape, dtype=dtype, device=device)


def fill(A: torch.Tensor, value: float, device: Any = None, prefetch: bool = True) -> None:
    """Fill a tensor; ``device`` and ``prefetch`` are ignored."""
    A.fill_(value)


def optimizer_update_8bit(*args: Any, **kwargs: Any) -> NoReturn:
    """Refuse 8-bit states that are not quantized in blocks, which bitsandbytes has removed in version 0.50."""
    raise NotImplementedError(
        "bitsandbytes: 8-bit states with block_wise=False (LARS8bit, LAMB8bit) are not supported; use 32-bit states"
    )


def percentile_clipping(
    grad: torch.Tensor, gnorm_vec: torch.Tensor, step: int, percentile: int = 5
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Record the norm of a gradient, and return the factor that clips it at a percentile of the last 100 norms.

    Args:
        grad: gradient.
        gnorm_vec: float32 [100], squared norms of the last steps; changed in place.
        step: number of this step; the first fills ``gnorm_vec``.
        percentile: index into the sorted norms.

    Returns:
        (norm of this gradient, norm to clip at, factor).
    """
    square = grad.float().square().sum()
    if step == 1:
        gnorm_vec.fill_(square)
    else:
        gnorm_vec[step % 100] = square
    norm, limit = gnorm_vec[step % 100].sqrt(), gnorm_vec.sort().values[percentile].sqrt()
    return norm, limit, float(limit / norm) if norm > limit else 1.0


# ---- quantized states ------------------------------------------------------------------------------------------
def _in_blocks(tensor: torch.Tensor, fill: int) -> torch.Tensor:
    """The elements as [blocks, 256]; ``fill`` completes the last block."""
    flat = tensor.reshape(-1)
    return F.pad(flat, (0, -flat.numel() % _BLOCK), value=fill).view(-1, _BLOCK)


def _write(target: torch.Tensor, blocks: torch.Tensor) -> None:
    target.copy_(blocks.view(-1)[: target.numel()].view(target.shape))


def _or_zero(kept: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(kept, tensor, torch.zeros_like(tensor))


def _decode(codes: torch.Tensor, largest: torch.Tensor, values: torch.Tensor, fill: int) -> torch.Tensor:
    blocks = _in_blocks(codes, fill)
    return values[blocks.to(torch.int64)] * largest.unsqueeze(1)


def _encode(
    state: torch.Tensor, codes: torch.Tensor, largest: torch.Tensor, values: torch.Tensor, *, is_signed: bool
) -> None:
    """Quantize a state [blocks, 256] into ``codes`` and ``largest``.

    A value between two entries takes the nearer one, and the one with the even code in the middle. A signed state
    keeps its sign: a small negative value does not become 0.
    """
    most = state.abs().amax(1, keepdim=True)
    scaled = state / most
    above = torch.searchsorted(values, scaled).clamp_(1, 255)
    middle = (values[above] + values[above - 1]) * 0.5
    takes_above = (scaled > middle) | ((scaled == middle) & (above % 2 == 0))
    found = torch.where(takes_above, above, above - 1)
    found = torch.where(most == 0, torch.zeros_like(found), found)
    if is_signed:
        step = torch.where(state > 0, 1, -1)
        found = torch.where(values[found].signbit() != state.signbit(), found + step, found) % 256
    _write(codes, found.to(torch.uint8))
    largest.copy_(most.squeeze(1))
