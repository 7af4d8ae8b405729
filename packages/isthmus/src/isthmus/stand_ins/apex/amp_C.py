"""apex's operators over lists of tensors that are used to clip and copy gradients."""

import torch

from isthmus.ops.gradients import grad_norm, grad_norms

Lists = list[list[torch.Tensor]]


def multi_tensor_l2norm(
    chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Lists, per_parameter: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Norm of all tensors, taken as one vector.

    Args:
        chunk_size: ignored.
        noop_flag_buffer: not written; the norm itself is not finite.
        tensor_lists: one list.
        per_parameter: also return the norm of each tensor.

    Returns:
        (float32 [1], float32 [number of tensors]; the latter [0] without ``per_parameter``).
    """
    tensors = tensor_lists[0]
    if not tensors:
        return torch.zeros(1, device=noop_flag_buffer.device), torch.zeros(0, device=noop_flag_buffer.device)
    total, each = grad_norms(tensors)
    return total.float().reshape(1), each.float() if per_parameter else each.new_empty(0, dtype=torch.float32)


def multi_tensor_scale(
    chunk_size: int, noop_flag_buffer: torch.Tensor, tensor_lists: Lists, scale: float | torch.Tensor
) -> None:
    """Write ``scale`` times each tensor of the first list to the second list; dtypes may differ.

    Args:
        chunk_size: ignored.
        noop_flag_buffer: set to 1 if an element is not finite.
        tensor_lists: (inputs, outputs); may be the same list.
        scale: factor.
    """
    read, written = tensor_lists
    if not read:
        return
    largest = grad_norm(read, float("inf"))
    for source, target in zip(read, written, strict=True):
        if isinstance(scale, torch.Tensor) or scale != 1:
            wide = torch.promote_types(source.dtype, torch.float32)
            target.copy_(source.to(wide) * scale)
        elif source is not target:
            target.copy_(source)
    noop_flag_buffer.masked_fill_(~largest.isfinite().to(noop_flag_buffer.device), 1)
