"""Operators of vLLM's compiled library, which is not built, that its Python code calls on every device."""

from __future__ import annotations

import torch

from isthmus import ops

_library, _cache_library = (torch.library.Library(name, "FRAGMENT") for name in ("_C", "_C_cache_ops"))


def weak_ref_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same elements that does not keep their memory, which belongs to a graph."""
    storage = tensor.untyped_storage()
    weak = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), tensor.device, storage.nbytes())
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(weak, tensor.storage_offset(), tensor.shape, tensor.stride())


def apply_repetition_penalties(*arguments: torch.Tensor) -> None:
    """Apply penalties to logits in place, by vLLM's own function for other devices."""
    from vllm import _custom_ops  # which imports this module

    _custom_ops.apply_repetition_penalties_torch(*arguments)


def write_cache(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    slots: torch.Tensor, dtype: str, key_scale: torch.Tensor, value_scale: torch.Tensor,
) -> None:  # fmt: skip
    """Write keys and values, [tokens, heads, features], into the rows of the cache that the slots name.

    Raises:
        NotImplementedError: the cache is quantized.
    """
    if dtype not in ("auto", "bfloat16", "float16"):
        raise NotImplementedError(f"isthmus: a cache of {dtype} is not supported; use --kv-cache-dtype auto")
    ops.cache_write(key, value, key_cache, value_cache, slots)


for _of, _schema, _function in (
    (_library, "weak_ref_tensor(Tensor input) -> Tensor", weak_ref_tensor),
    (
        _library,
        "apply_repetition_penalties_(Tensor! logits, Tensor prompt, Tensor output, Tensor penalties) -> ()",
        apply_repetition_penalties,
    ),
    (
        _cache_library,
        "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, "
        "Tensor slots, str dtype, Tensor key_scale, Tensor value_scale) -> ()",
        write_cache,
    ),
):
    if not hasattr(getattr(torch.ops, _of.ns), _schema.split("(")[0]):
        _of.define(_schema)
    _of.impl(_schema.split("(")[0], _function, "PrivateUse1")
