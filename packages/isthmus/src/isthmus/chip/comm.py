"""Copies and sums between devices of one process, with the names of ``torch.cuda.comm``.

Use ``torch.distributed`` between processes.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from isthmus.chip._utils import DeviceLike, _index
from isthmus.chip.streams import StreamContext

_BUFFER_BYTES = 10485760


def broadcast(
    tensor: Tensor, devices: Iterable[DeviceLike] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """Copy tensor to each device (the tensor itself on its own device), or into each tensor of out.

    Raises:
        ValueError: not exactly one of devices and out is given.
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
    """Copy all tensors to each device.

    Args:
        tensors: tensors on one device.
        devices: target devices.
        buffer_size: ignored; tensors are copied one by one.
    """
    places = _places(devices)
    return [tuple(tensor.to(place, non_blocking=True) for tensor in tensors) for place in places]


def reduce_add(inputs: Sequence[Tensor], destination: DeviceLike = None) -> Tensor:
    """Sum tensors of one shape from different devices on destination, in order.

    Args:
        inputs: the tensors; the sum starts with the one on destination.
        destination: the current device by default.

    Raises:
        ValueError: shapes differ, or no tensor is on destination.
    """
    place = torch.device("chip", _index(destination))
    shapes = {tuple(tensor.shape) for tensor in inputs}
    if len(shapes) > 1:
        raise ValueError(f"reduce_add: expected tensors of one shape, got {sorted(shapes)}")
    root = next((position for position, tensor in enumerate(inputs) if tensor.device == place), None)
    if root is None:
        raise ValueError(f"reduce_add: no tensor is on the destination {place}")
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
    """:func:`reduce_add` of corresponding tensors of all devices.

    Args:
        inputs: for each device, its tensors.
        destination: the current device by default.
        buffer_size: ignored; tensors are added one by one.
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
    """Split tensor along dim; copy one chunk to each device, or into each tensor of out.

    Args:
        tensor: the tensor to split.
        devices: target devices.
        chunk_sizes: sizes along dim; default: equal sizes.
        dim: dimension to split.
        streams: stream of each copy; None is the current stream.
        out: outputs, instead of devices and chunk_sizes; they define the sizes along dim.

    Raises:
        ValueError: not exactly one of devices and out is given, or the sizes do not add up.
    """
    if out is not None:
        _refuse_both(devices)
        return _scatter_into(tensor, out, dim)
    places = _places(devices)
    if chunk_sizes is not None and sum(chunk_sizes) != tensor.size(dim):
        raise ValueError(
            f"scatter: chunk_sizes {list(chunk_sizes)} must add up to {tensor.size(dim)}, the size of dim {dim}"
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
    """Concatenate tensors of different devices along dim.

    Args:
        tensors: tensors of one shape, except along dim.
        dim: dimension to concatenate.
        destination: target device, may be ``"cpu"``; default: the current device.
        out: output, instead of destination.

    Raises:
        ValueError: both destination and out are given.
    """
    if out is not None:
        if destination is not None:
            raise ValueError(f"gather: pass destination or out, not both; got {destination!r}")
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
        raise ValueError("pass devices or out")
    return [_place(device) for device in devices]


def _refuse_both(devices: Iterable[DeviceLike] | None) -> None:
    if devices is not None:
        raise ValueError("pass devices or out, not both")
