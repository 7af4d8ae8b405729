"""Recorder of the allocations of a program under FakeTensorMode: no memory, no arithmetic."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.memory.trace import ALLOC, FREE, STEP, USE, Trace

aten: Any = torch.ops.aten

COMPUTE, COMMUNICATION = 0, 1  # streams

# Bytes of scratch memory of an accelerator's kernel, from the operator's arguments. Attention's backward accumulates
# the query's gradient and one sum per row in float32; the embedding's gradient sorts the indices with positions.
_SCRATCH: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: lambda grad, query, *_, **__: (
        4 * (query.numel() + query.numel() // query.shape[-1])
    ),
    aten.embedding_dense_backward.default: lambda grad, indices, *_, **__: 4 * indices.numel() * 8,
}


class Recorder(TorchDispatchMode):
    """A dispatch mode that records allocations and frees of storages.

    As a context manager it also enters FakeTensorMode. The order of events depends only on the program: the garbage
    collector runs only at the end of each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fake = FakeTensorMode()
        self._rows: list[tuple[int, int, int, int]] = []
        self._ids: dict[int, int] = {}  # keyed by storage
        self._made = 0
        self._stream = COMPUTE
        self._paused = False
        self._closed = False

    def __enter__(self) -> Recorder:
        gc.collect()
        gc.disable()
        self._fake.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._fake.__exit__(*error)
        self._closed = True
        gc.enable()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and record new storages."""
        result = func(*args, **(kwargs or {}))
        if not self._paused:
            for each in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(each, torch.Tensor):
                    self._note(each.untyped_storage())
            if func in _SCRATCH:
                self._scratch(_SCRATCH[func](*args, **(kwargs or {})))
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._ids or storage.nbytes() == 0:
            return
        self._ids[key] = self._alloc(storage.nbytes())
        weakref.finalize(storage, self._died, key).atexit = False

    def _alloc(self, size: int) -> int:
        self._rows.append((ALLOC, self._made, size, self._stream))
        self._made += 1
        return self._made - 1

    def _died(self, key: int) -> None:
        number = self._ids.pop(key)
        if not self._closed:
            self._rows.append((FREE, number, 0, 0))

    def _scratch(self, size: int) -> None:
        self._rows.append((FREE, self._alloc(size), 0, 0))

    def use(self, tensor: torch.Tensor, stream: int = COMMUNICATION) -> None:
        """Record a use on another stream, as ``Tensor.record_stream`` does."""
        number = self._ids.get(tensor.untyped_storage()._cdata)
        if number is not None:
            self._rows.append((USE, number, stream, 0))

    def step(self) -> None:
        """Record the end of an optimizer step."""
        gc.collect()
        self._rows.append((STEP, 0, 0, 0))

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Record allocations as made on a stream."""
        self._stream, outer = stream, self._stream
        try:
            yield
        finally:
            self._stream = outer

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop recording, for tensors that are not on the device."""
        self._paused, outer = True, self._paused
        try:
            yield
        finally:
            self._paused = outer

    def trace(self, *, name: str, made: str, model: str) -> Trace:
        """Return the recorded trace."""
        return Trace.of_rows(self._rows, name=name, made=made, model=model)
