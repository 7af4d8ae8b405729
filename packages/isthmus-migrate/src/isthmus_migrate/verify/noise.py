"""Rounding noise in a run: each result of a rounding operator is off by a few units in the last place.

Devices sum in different orders and approximate functions differently, so results of such operators differ in their
last place. Noise of that size, in the precision of each result and with random signs, shows how far rounding alone
moves losses, parameters and text. This is Monte Carlo arithmetic (Parker, 1997) on whole operators, in the forward
and the backward pass. Noise on the initial parameters only would leave out the precision of the computation (bfloat16
under autocast) and all later steps. Relative noise on gradients would keep the sign of a gradient that is zero up to
rounding, from which Adam makes a full step.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operators whose result depends on the order of sums or on the approximation of a function.
_NAMES = frozenset(
    f"aten::{name}"
    for name in (
        "mm addmm bmm baddbmm addbmm mv addmv dot vdot convolution convolution_backward sum mean var std var_mean "
        "prod cumsum cumprod logsumexp linalg_vector_norm norm embedding_dense_backward _embedding_bag "
        "nll_loss_forward mkldnn_rnn_layer mkldnn_rnn_layer_backward exp log log1p tanh sigmoid gelu gelu_backward "
        "silu silu_backward erf sqrt rsqrt sin cos pow softplus mish elu"
    ).split()
)
_FAMILIES = tuple(
    f"aten::{name}"
    for name in (
        "native_layer_norm native_batch_norm native_group_norm _softmax _log_softmax _scaled_dot_product "
        "_fused_rms_norm _cdist avg_pool _adaptive_avg_pool upsample"
    ).split()
)


class Noise(TorchDispatchMode):
    """A dispatch mode that perturbs the results of rounding operators.

    Whole numbers are not perturbed: counts and masks are exact on every device.

    Args:
        ulps: size, in units in the last place of each result.
        seed: seed of the signs; the generators of the program are not used.
    """

    def __init__(self, ulps: int, seed: int) -> None:
        super().__init__()
        self._ulps = ulps
        self._signs = torch.Generator().manual_seed(seed)
        self._rounds: dict[Any, bool] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and perturb its results."""
        result = func(*args, **(kwargs or {}))
        rounds = self._rounds.get(func)
        if rounds is None:
            rounds = self._rounds[func] = _rounds(func._schema)
        for each in tree_leaves(result) if rounds else ():
            local = getattr(each, "_local_tensor", each)  # local part of a DTensor
            if type(local) is torch.Tensor:
                self._perturb_values(local)
        return result

    def _perturb_values(self, values: torch.Tensor) -> None:
        if not values.is_floating_point() or values.element_size() < 2 or values.layout != torch.strided:
            return
        signs = torch.randint(0, 2, values.shape, generator=self._signs, dtype=values.dtype) * 2 - 1
        factor = 1 + signs * (self._ulps * torch.finfo(values.dtype).eps)
        values.mul_(torch.where(values.frac() == 0, torch.ones_like(factor), factor))


def _rounds(schema: Any) -> bool:
    return not schema.is_mutable and (schema.name in _NAMES or schema.name.startswith(_FAMILIES))
