"""The repeated layers of a model: the entries of a ModuleList or Sequential with modules of one class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


@dataclass(frozen=True)
class Layer:
    """A repeated layer.

    Attributes:
        name: position of the model in the process (0, or the chunk of an interleaved pipeline), a slash, and the
            qualified name without wrappers such as DistributedDataParallel: ``0/model.layers.3``.
        module: the layer.
    """

    name: str
    module: nn.Module

    def kind(self) -> tuple[object, ...]:
        """Return what equal layers have in common: class, and names and shapes of the parameters."""
        shapes = tuple((name, tuple(weight.shape)) for name, weight in self.module.named_parameters())
        return type(self.module), shapes


def find(model: nn.Module, position: int) -> list[Layer]:
    """Return the repeated layers of a model; lists inside a layer do not count."""
    return [Layer(f"{position}/{name}", module) for name, module in _entries(model, "")]


def _entries(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    for child_name, child in module.named_children():
        full = name if child_name in _WRAPPERS else f"{name}.{child_name}".removeprefix(".")
        if _is_repeated(child):
            yield from ((f"{full}.{index}", layer) for index, layer in child.named_children())
        else:
            yield from _entries(child, full)


def _is_repeated(module: nn.Module) -> bool:
    if not isinstance(module, nn.ModuleList | nn.Sequential):
        return False
    classes = Counter(type(child) for child in module.children() if any(True for _ in child.children()))
    return max(classes.values(), default=0) > 1


def is_recomputable(module: nn.Module) -> bool:
    """Whether a second forward changes nothing: not so for batch norms, which would count a batch twice."""
    norms = (nn.modules.batchnorm._NormBase,)
    return not any(isinstance(each, norms) and each.track_running_stats for each in module.modules())


def units(layer: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a layer that are measured: children and grandchildren, by name."""
    return {
        name: module
        for name, module in layer.named_modules()
        if name and name.count(".") < 2 and not isinstance(module, nn.ModuleList | nn.ModuleDict)
    }
