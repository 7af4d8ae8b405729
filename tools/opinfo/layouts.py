"""OpInfo's entries on sparse and nested tensors, as operators to judge: one per entry and layout, in float32.

Samples are OpInfo's own for the layout; for entries that have none (unary functions) its dense samples are converted.
``nested`` are the jagged samples converted to nested tensors of the strided layout.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from typing import Any

import torch

# Gradients of these end the process, on the CPU too.
CRASHING = ("split_with_sizes [jagged]",)
SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


class LayoutEntry:
    """An OpInfo whose samples have one layout; everything else is the OpInfo's."""

    supports_out = False
    error_inputs_func = None

    def __init__(self, info: Any, layout: str) -> None:
        self.info, self.layout = info, layout
        self.full_name = f"{info.full_name} [{layout}]"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.info, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.info(*args, **kwargs)

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        """float32, if the entry has it."""
        return {torch.float32} & set(self.info.supported_dtypes(device))

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool = False) -> list[Any]:
        """Samples on the device, in the layout."""
        if self.layout in SPARSE:
            return self._sparse(device, dtype, requires_grad)
        samples = list(self.info.sample_inputs(device, dtype, requires_grad=requires_grad))
        return samples if self.layout == "jagged" else list(filter(_to_strided, samples))

    def _sparse(self, device: str, dtype: torch.dtype, requires_grad: bool) -> list[Any]:
        layout = getattr(torch, self.layout)
        try:
            return list(self.info.sample_inputs_sparse(layout, device, dtype, requires_grad=requires_grad))
        except (NotImplementedError, unittest.SkipTest):  # has none
            dense = self.info.sample_inputs(device, dtype, requires_grad=requires_grad)
            return [sample for sample in dense if _to_sparse(sample, layout)]


def _to_sparse(sample: Any, layout: torch.layout) -> bool:
    """Convert the input of a sample; False if the layout cannot hold it."""
    dense = sample.input
    if dense.layout is not torch.strided or dense.dim() < (1 if layout is torch.sparse_coo else 2):
        return dense.layout is layout
    block = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    sparse = dense.detach().to_sparse(layout=layout, blocksize=block)
    sample.input = sparse.requires_grad_(dense.requires_grad)
    return True


def _to_strided(sample: Any) -> bool:
    """Convert nested tensors of a sample from the jagged layout; False if one has no counterpart."""
    values: list[Any] = [sample.input, *sample.args, *sample.kwargs.values()]
    if any(isinstance(v, torch.Tensor) and v.is_nested and v._ragged_idx != 1 for v in values):
        return False
    sample.input = _strided(sample.input)
    sample.args = tuple(map(_strided, sample.args))
    sample.kwargs = {name: _strided(value) for name, value in sample.kwargs.items()}
    return True


def _strided(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_nested:
        return value
    pieces = [piece.detach() for piece in value.detach().unbind()]
    return torch.nested.nested_tensor(pieces, requires_grad=value.requires_grad)


def entries() -> Iterator[LayoutEntry]:
    """Every entry of op_db that supports a sparse layout, and of njt_op_db with samples, per layout."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.definitions.nested import njt_op_db

    for layout in SPARSE:
        for info in op_db:
            if info.supports_sparse_layout(getattr(torch, layout)):
                yield LayoutEntry(info, layout)
    for layout in ("jagged", "nested"):
        made = (LayoutEntry(info, layout) for info in njt_op_db if info.supports_njt)
        yield from (entry for entry in made if entry.full_name not in CRASHING)
