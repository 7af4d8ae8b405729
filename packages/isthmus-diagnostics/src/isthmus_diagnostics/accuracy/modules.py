"""The module that is running, by a name that does not depend on wrappers and pipeline stages."""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules import module as hooks

# Wrappers run the module that they hold, which has the names of the model.
_WRAPPERS = frozenset(
    """DistributedDataParallel DataParallel FullyShardedDataParallel OptimizedModule Float16Module DeepSpeedEngine
    CheckpointWrapper _MegatronDDP""".split()
)


class Modules:
    """Follows modules by hooks on all of them.

    Names begin with the class of the outermost module: ``LlamaForCausalLM.model.layers.0.mlp``. A layer of a pipeline
    stage has its number in the whole model, where it has Megatron's ``layer_number``.

    Args:
        entered, left: called with the module's name, the module, and its arguments or results.
    """

    def __init__(self, entered: Any, left: Any) -> None:
        self._entered, self._left = entered, left
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._roots: Counter[str] = Counter()
        self._stack: list[str] = []
        self._visits: Counter[str] = Counter()
        self._handles: list[Any] = []
        self.tensors: dict[int, str] = {}

    @property
    def current(self) -> str:
        """The running module and the number of its call in this step, ``name@0``; "" outside of modules."""
        return self._stack[-1] if self._stack else ""

    def start(self) -> None:
        """Register the hooks."""
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stack.clear()

    def next_step(self) -> None:
        """Count calls anew."""
        self._visits.clear()

    def name(self, module: nn.Module) -> str:
        """Return the name of a module; one that no running module contains begins a tree of its own."""
        if module not in self._names:
            kind = type(module).__name__
            self._roots[kind] += 1
            number = self._roots[kind]
            for name, each in _named_modules(module, kind if number == 1 else f"{kind}#{number}"):
                self._names[each] = name
                for key, tensor in [
                    *each.named_parameters(recurse=False),
                    *each.named_buffers(recurse=False),
                ]:
                    self.tensors[id(tensor)] = f"{name}.{key}"
        return self._names[module]

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        if type(module).__name__ in _WRAPPERS:
            return
        name = self.name(module)
        self._stack.append(f"{name}@{self._visits[name]}")
        self._visits[name] += 1
        self._entered(module, args)

    def _leave_module(self, module: nn.Module, args: Any, result: Any) -> None:
        if type(module).__name__ in _WRAPPERS or not self._stack:
            return
        try:
            self._left(module, result)
        finally:
            self._stack.pop()


def _named_modules(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    yield name, module
    for key, child in module.named_children():
        number = getattr(child, "layer_number", None)
        label = str(number - 1) if key.isdigit() and isinstance(number, int) else key
        inner = child
        while type(inner).__name__ in _WRAPPERS and (held := next(inner.children(), None)) is not None:
            inner = held
        yield from _named_modules(inner, f"{name}.{label}")
