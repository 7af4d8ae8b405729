"""Linear layers whose weights are packed once for the CPU's matrix products, for inference.

:func:`pack_weights` packs the layers of a module where that makes them faster; :func:`packed_linear` is the operator
for layers of other classes, such as those of a serving engine.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from isthmus.ops import cpu
from isthmus.ops.registration import addressed_by_cpu, is_batch_invariant

DTYPES = (torch.float32, torch.bfloat16)
_ROUNDS = 5
_GAIN = 0.97  # a weight is packed if its products take at most this share of the time
_ALWAYS = 16 << 20  # bytes of a weight that no cache holds: it is always faster packed
_chosen: dict[tuple[Any, ...], int] = {}


class PackedWeight(NamedTuple):
    """A weight in the layout of the CPU's library, which the weight's own memory is not needed for.

    Attributes:
        handle: the packed weight, in memory of the device: as many bytes as the weight, filled up to whole blocks.
        shape: [out features, in features].
        dtype: float32 or bfloat16.
        device: of the inputs.
        rows: of the inputs that the layout was chosen for; others are served too.
    """

    handle: Any
    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    rows: int

    def dense(self) -> Tensor:
        """The weight as it was before, in new memory."""
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return torch.ops.isthmus_cpu.unpack_linear(like, self.handle)


def why_not_packed(weight: Tensor) -> str:
    """Return why a weight cannot be packed, or ""."""
    if not addressed_by_cpu(weight.device.type):
        return f"the CPU cannot address the memory of {weight.device}"
    if why := cpu.why_unavailable():
        return why
    if weight.dtype not in DTYPES:
        return f"{weight.dtype} is not packed; only float32 and bfloat16"
    if weight.dim() != 2 or not weight.numel():
        return f"a weight of shape {tuple(weight.shape)} is not [out features, in features]"
    if not torch.backends.mkldnn.is_available():
        return "this PyTorch has no oneDNN"
    return ""


def pack_linear(weight: Tensor, rows: int = 8) -> PackedWeight:
    """Pack a weight for :func:`packed_linear`; later changes of the weight do not change the packed one.

    Args:
        weight: [out features, in features], float32 or bfloat16.
        rows: number of rows of the inputs that matter most.

    Raises:
        ValueError: the weight cannot be packed.
    """
    if why := why_not_packed(weight):
        raise ValueError(f"pack_linear: {why}")
    handle = torch.ops.isthmus_cpu.pack_linear(weight.detach(), rows)
    return PackedWeight(handle, (weight.shape[0], weight.shape[1]), weight.dtype, weight.device, rows)


def packed_linear(input: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear`` with a packed weight.

    Args:
        input: [..., in features], of the dtype and on the device of the weight.
        bias: [out features].

    Returns:
        [..., out features].

    Raises:
        ValueError: input and weight do not fit.
        RuntimeError: a gradient is recorded, or the batch-invariant mode is on, whose products are others.
    """
    if input.shape[-1:] != weight.shape[1:] or input.dtype != weight.dtype or input.device != weight.device:
        raise ValueError(
            f"packed_linear: the input is {input.dtype} {tuple(input.shape)} on {input.device}; the weight takes "
            f"{weight.dtype} [..., {weight.shape[1]}] on {weight.device}"
        )
    if torch.is_grad_enabled() and (input.requires_grad or (bias is not None and bias.requires_grad)):
        raise RuntimeError("packed_linear computes no gradients; use torch.no_grad(), or unpack the weights")
    if is_batch_invariant(input.device.type):
        raise RuntimeError("packed_linear is not batch-invariant; unpack the weights, or leave the mode")
    return torch.ops.isthmus_cpu.packed_linear(input, weight.handle, bias)


class PackedLinear(nn.Module):
    """A ``torch.nn.Linear`` with a packed weight. It has no ``weight``, so that nothing writes one that is not used.

    Its state dict is that of the layer, and loading one packs the weight anew.

    Args:
        layer: replaced layer, whose bias is used.
        packed: its weight.
    """

    bias: nn.Parameter | None

    def __init__(self, layer: nn.Linear, packed: PackedWeight) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.packed = packed
        self.register_parameter("bias", layer.bias)
        self.train(layer.training)

    def forward(self, input: Tensor) -> Tensor:
        """Compute [..., out features] of [..., in features]."""
        bias = None if self.bias is None else self.bias.detach()
        return packed_linear(input, self.packed, bias)

    def unpacked(self) -> nn.Linear:
        """Return the layer with a weight of its own."""
        with torch.device("meta"):
            layer = nn.Linear(self.in_features, self.out_features, bias=False, dtype=self.packed.dtype)
        layer.weight = nn.Parameter(self.packed.dense(), requires_grad=False)
        layer.register_parameter("bias", self.bias)
        return layer.train(self.training)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.packed.dense()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        given = state_dict.get(prefix + "weight")
        if given is not None and tuple(given.shape) == self.packed.shape:
            self.packed = pack_linear(
                given.to(device=self.packed.device, dtype=self.packed.dtype), self.packed.rows
            )
            state_dict = {name: value for name, value in state_dict.items() if name != prefix + "weight"}
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        """Sizes, as those of ``torch.nn.Linear``."""
        return (
            f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, rows={self.packed.rows}"
        )


def pack_weights(module: nn.Module, rows: Sequence[int] = (1, 8), measure: bool = True) -> int:
    """Replace the ``torch.nn.Linear`` layers inside a module by packed ones, where they are faster.

    One layer at a time: its weight is freed, if nothing else holds it, before the next is packed. A weight that two
    places share, such as a tied embedding, and those of subclasses of ``torch.nn.Linear`` stay.

    Args:
        rows: numbers of rows of the inputs that matter; the layout is chosen that is fastest over them.
        measure: pack only layers that are faster on average over ``rows``; else all that can be packed.

    Returns:
        Number of packed layers.
    """
    holders: dict[int, int] = {}
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    count = 0
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is not nn.Linear or holders[id(layer.weight)] > 1 or why_not_packed(layer.weight):
                continue
            layout = rows_to_pack(layer.weight, rows) if measure else max(rows)
            if layout:
                setattr(parent, name, PackedLinear(layer, pack_linear(layer.weight, layout)))
                count += 1
            del layer
    return count


def unpack_weights(module: nn.Module) -> int:
    """Undo :func:`pack_weights`, return the number of layers. Their weights are new and record no gradient."""
    count = 0
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, PackedLinear):
                setattr(parent, name, layer.unpacked())
                count += 1
    return count


@torch.no_grad()
def rows_to_pack(weight: Tensor, rows: Sequence[int] = (1, 8)) -> int:
    """Return the rows of the layout that is fastest on average over inputs of ``rows``, or 0 if no packed one is.

    Small weights are measured, once in a process for each shape and dtype.
    """
    if why_not_packed(weight):
        return 0
    if weight.nbytes >= _ALWAYS:
        return max(rows)
    kind = (weight.shape, weight.dtype, weight.device, *rows)
    if kind not in _chosen:
        weight = weight.detach()
        inputs = [torch.ones(n, weight.shape[1], dtype=weight.dtype, device=weight.device) for n in rows]
        best, best_share = 0, _GAIN
        for n in dict.fromkeys(rows):
            packed = pack_linear(weight, n)
            if (share := statistics.geometric_mean(_share(x, weight, packed) for x in inputs)) < best_share:
                best, best_share = n, share
        _chosen[kind] = best
    return _chosen[kind]


def _share(x: Tensor, weight: Tensor, packed: PackedWeight) -> float:
    """Return the time of a packed call as a share of a plain one, by interleaved rounds."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(_ROUNDS + 1):
        for spent, call in (
            (times[0], lambda: nn.functional.linear(x, weight)),
            (times[1], lambda: packed_linear(x, packed)),
        ):
            start = time.perf_counter()
            call()
            torch.accelerator.synchronize() if x.device.type != "cpu" else None
            if round_:  # the first call of each warms up
                spent.append(time.perf_counter() - start)
    return min(times[1]) / min(times[0])
