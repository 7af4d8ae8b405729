"""Copies and sums among the devices of one process, under the names of ``torch.cuda.comm``.

Between processes, use ``torch.distributed``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from isthmus.chip._utils import DeviceLike, _index
from isthmus.chip.streams import StreamContext

_BUFFER_BYTES = 10485760


def broadcast(
    tensor: Tensor, devices: Iterable[DeviceLike] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """Copies of tensor, one on each of devices (tensor itself where it is already), or in each of out.

    Raises:
        ValueError: unless exactly one of devices and out is given.
    """
    if out is None:
        return tuple(tensor.to(place, non_blocking=True) for place in _places(devices))
    _refuse_both(devices)
    for target in out:
        target.copy_(tensor, non_blocking=True)
    return tuple(out)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Iterable[DeviceLike], buffer_size: int = _BUFFER_BYTES
) -> list[tuple[Tensor, ...]]:
    """Copies of all tensors, for each device.

    Args:
        tensors: on one device.
        devices: where to.
        buffer_size: accepted; tensors are copied one by one.
    """
    places = _places(devices)
    return [tuple(tensor.to(place, non_blocking=True) for tensor in tensors) for place in places]


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike = None) -> Tensor:
    """Sum of tensors of one shape that lie on different devices, in their order, on destination.

    Args:
        inputs: the tensors; one of them on destination, which begins the sum.
        destination: the current device by default.

    Raises:
        ValueError: shapes differ, or no tensor is on destination.
    """
    place = torch.device("chip", _index(destination))
    shapes = {tuple(tensor.shape) for tensor in inputs}
    if len(shapes) > 1:
        raise ValueError(f"reduce_add adds tensors of one shape, got {sorted(shapes)}")
    root = next((position for position, tensor in enumerate(inputs) if tensor.device == place), None)
    if root is None:
        raise ValueError(f"reduce_add needs one of the tensors on {place}, where the sum goes")
    others = [tensor for position, tensor in enumerate(inputs) if position != root]
    if not others:
        return inputs[root]
    total = inputs[root] + others[0].to(place, non_blocking=True)
    for other in others[1:]:
        total.add_(other.to(place, non_blocking=True))
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: DeviceLike = None, buffer_size: int = _BUFFER_BYTES
) -> tuple[Tensor, ...]:
    """:func:`reduce_add` of the first tensors of all devices, of the second, and so on.

    Args:
        inputs: for each device, its tensors.
        destination: the current device by default.
        buffer_size: accepted; tensors are added one by one.
    """
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Iterable[DeviceLike] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Chunks of tensor along dim, one on each of devices, or copied into out.

    Args:
        tensor: what to cut.
        devices: where to.
        chunk_sizes: sizes along dim; equal ones by default.
        dim: which dimension.
        streams: on which each copy goes; the current one for None.
        out: instead of devices and chunk_sizes; the sizes along dim are theirs.

    Raises:
        ValueError: unless exactly one of devices and out is given, or the sizes do not add up.
    """
    if out is not None:
        _refuse_both(devices)
        return _scatter_into(tensor, out, dim)
    places = _places(devices)
    if chunk_sizes is not None and sum(chunk_sizes) != tensor.size(dim):
        raise ValueError(
            f"chunk_sizes {list(chunk_sizes)} do not add up to {tensor.size(dim)}, the size of dim {dim}"
        )
    chunks = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(places), dim)
    placed = []
    for position, (chunk, place) in enumerate(zip(chunks, places, strict=False)):
        with StreamContext(streams[position] if streams else None):
            placed.append(chunk.to(place, non_blocking=True))
    return tuple(placed)


def gather(
    tensors: Sequence[Tensor], dim: int = 0, destination: DeviceLike = None, *, out: Tensor | None = None
) -> Tensor:
    """Tensors of different devices, concatenated along dim.

    Args:
        tensors: of one shape but for dim.
        dim: which dimension.
        destination: where to, ``"cpu"`` included; the current device by default.
        out: instead of destination.

    Raises:
        ValueError: both destination and out are given.
    """
    if out is not None:
        if destination is not None:
            raise ValueError(f"give a destination or out, not both; got {destination!r}")
        return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)
    place = _place(destination)
    return torch.cat([tensor.to(place, non_blocking=True) for tensor in tensors], dim)


def _scatter_into(tensor: Tensor, out: Sequence[Tensor], dim: int) -> tuple[Tensor, ...]:
    chunks = tensor.split([target.size(dim) for target in out], dim)
    for chunk, target in zip(chunks, out, strict=True):
        target.copy_(chunk, non_blocking=True)
    return tuple(out)


def _place(device: DeviceLike) -> torch.device:
    if device == -1 or (isinstance(device, (str, torch.device)) and torch.device(device).type == "cpu"):
        return torch.device("cpu")
    return torch.device("chip", _index(device))


def _places(devices: Iterable[DeviceLike] | None) -> list[torch.device]:
    if devices is None:
        raise ValueError("give devices or out")
    return [_place(device) for device in devices]


def _refuse_both(devices: Iterable[DeviceLike] | None) -> None:
    if devices is not None:
        raise ValueError("give devices or out, not both")
