"""Measurement of the layers in a running job: the time and memory of their modules, the memory between events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from isthmus_diagnostics.plan import layers as models
from isthmus_diagnostics.plan.choices import WHOLE, Unit
from isthmus_diagnostics.plan.layers import Layer

_ROUNDING = 512  # allocators round sizes up to this

Undo = Callable[[], None]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def storages(value: Any) -> dict[int, int]:
    """Return the sizes of the storages of tensors on the accelerator, by identity."""
    device = torch.accelerator.current_accelerator()
    return {
        (storage := each.untyped_storage())._cdata: -(-storage.nbytes() // _ROUNDING) * _ROUNDING
        for each in _tensors(value)
        if device is not None and each.device.type == device.type
    }


class Interval:
    """The time between two events.

    Attributes:
        start: bytes allocated at its start.
        peak: most bytes allocated in it.
        counts: for each layer, the forwards whose backward has not ended.
        layer: index of the layer that runs backward, or None.
    """

    def __init__(self, start: int, counts: Sequence[int], layer: int | None) -> None:
        self.start = self.peak = start
        self.counts = tuple(counts)
        self.layer = layer


class Timeline:
    """The memory of one step, from one event of a layer to the next.

    Attributes:
        intervals: in order.
        grown: for each layer, bytes by which its first forward increased the allocated memory.
        inputs: for each layer, storages of the inputs of its first forward.
        outputs: for each layer, storages of the outputs of its first forward.
        forwards: for each layer, forwards in the step.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.intervals: list[Interval] = []
        self.grown: dict[int, int] = {}
        self.inputs: dict[int, dict[int, int]] = {}
        self.outputs: dict[int, dict[int, int]] = {}
        self.forwards = [0] * len(layers)
        self._counts = [0] * len(layers)
        self._running: int | None = None
        self._begin: dict[int, int] = {}
        self._handles = []
        torch.accelerator.synchronize()
        self._open()
        for index, layer in enumerate(layers):
            self._handles += [
                layer.module.register_forward_pre_hook(
                    self._before_hook(index), with_kwargs=True, prepend=True
                ),
                layer.module.register_forward_hook(self._after_hook(index)),
            ]

    def close(self) -> None:
        """End the last interval and remove the hooks."""
        self._event(None)
        for handle in self._handles:
            handle.remove()

    def _open(self) -> None:
        torch.accelerator.reset_peak_memory_stats()
        start = torch.accelerator.memory_allocated()
        self.intervals.append(Interval(start, self._counts, self._running))

    def _event(self, running: int | None) -> None:
        """End the interval; the next one belongs to the backward of a layer, or to none."""
        torch.accelerator.synchronize()
        self.intervals[-1].peak = torch.accelerator.max_memory_allocated()
        if self._running is not None:
            self._counts[self._running] -= 1
        self._running = running
        self._open()

    def _before_hook(self, index: int) -> Callable[..., None]:
        def before(module: Any, args: Any, kwargs: Any) -> None:
            if not torch.is_grad_enabled():
                return
            self._event(None)
            self._begin[index] = self.intervals[-1].start
            self.inputs.setdefault(index, storages((args, kwargs)))
            for tensor in _tensors((args, kwargs)):
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: self._end(index))

        return before

    def _after_hook(self, index: int) -> Callable[..., None]:
        def after(module: Any, args: Any, output: Any) -> None:
            if not torch.is_grad_enabled():
                return
            self._event(None)
            self._counts[index] += 1
            self.forwards[index] += 1
            self.intervals[-1].counts = tuple(self._counts)
            self.grown.setdefault(index, self.intervals[-1].start - self._begin[index])
            self.outputs.setdefault(index, storages(output))
            tensor = next((each for each in _tensors(output) if each.requires_grad), None)
            if tensor is not None:
                tensor.register_hook(lambda gradient: self._event(index))

        return after

    def _end(self, index: int) -> None:
        """Handle the gradient of an input: the backward of the layer has ended, unless another one runs already."""
        if self._running == index:
            self._event(None)


class Probe:
    """Measures the modules of one layer, which keeps its activations.

    Attributes:
        units: the layer as ``"."`` and its modules, in the order of their calls.
        weights: identities of the storages of its parameters and buffers.
    """

    def __init__(self, layer: Layer) -> None:
        modules = {WHOLE: layer.module, **models.units(layer.module)}
        self.weights = set(storages([*layer.module.parameters(), *layer.module.buffers()]))
        self.units = {
            name: Unit(is_recomputable=models.is_recomputable(module)) for name, module in modules.items()
        }
        self._modules = modules

    def record_saved(self) -> Undo:
        """Record what the next forward saves, until undone."""
        stack: list[str] = []
        order: list[str] = []
        done = False

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if stack:
                self.units[stack[-1]].saved.update(storages(tensor))
            return tensor.detach()  # the tensor itself, if an output, would keep its own graph alive

        context = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

        def before(name: str, args: Any, kwargs: Any) -> None:
            if done or not torch.is_grad_enabled():
                return
            if not stack:
                context.__enter__()
            stack.append(name)
            order.append(name)
            self.units[name].calls += 1
            self.units[name].inputs.update(storages((args, kwargs)))

        def after(name: str) -> None:
            nonlocal done
            if not stack:
                return
            stack.pop()
            if not stack:
                context.__exit__(None, None, None)
                done = True
                self.units = {each: self.units[each] for each in dict.fromkeys([*order, *self.units])}

        return self._add_hooks(before, after)

    def measure_time(self) -> Undo:
        """Measure the forward time of each module, until undone; the shortest of several counts."""
        begins: dict[str, float] = {}

        def before(name: str, args: Any, kwargs: Any) -> None:
            torch.accelerator.synchronize()
            begins[name] = time.perf_counter()

        def after(name: str) -> None:
            torch.accelerator.synchronize()
            seconds = time.perf_counter() - begins[name]
            unit = self.units[name]
            unit.time = min(unit.time or seconds, seconds)

        return self._add_hooks(before, after)

    def _add_hooks(self, before: Callable[[str, Any, Any], None], after: Callable[[str], None]) -> Undo:
        handles: list[Any] = []
        for name, module in self._modules.items():
            handles += [
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: before(name, args, kwargs), with_kwargs=True
                ),
                module.register_forward_hook(lambda module, args, output, name=name: after(name)),
            ]

        def undo() -> None:
            for handle in handles:
                handle.remove()

        return undo
