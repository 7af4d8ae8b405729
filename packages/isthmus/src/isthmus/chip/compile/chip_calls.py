"""Operators that stay on the chip inside code which is compiled for the CPU.

Random ones, whose numbers come from the chip's generator; those that have no CPU kernel; and those whose CPU kernel
takes fewer dtypes than the chip's. Each gets a twin, an operator of the namespace ``isthmus_on_chip`` with the same
schema, which takes and gives CPU tensors over the chip's bytes and calls the original on the chip's tensors.
"""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._inductor import inductor_prims
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.utils._pytree import tree_map

from isthmus import _C

NAMESPACE = "isthmus_on_chip"
_library = torch.library.Library(NAMESPACE, "DEF")
# Tagged as random, but they draw nothing: seeds are made by other operators, and CPU's attention has no dropout.
_DRAW_NOTHING = {
    inductor_prims.random,
    inductor_prims.randint,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
_CHIP_ALONE = {
    torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default,  # its composite raises
    torch.ops.aten.histc.default,  # for integers: csrc/dispatch/operators/histogram.cpp
}
_COMPOSITES = (
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
    DispatchKey.CompositeImplicitAutograd,
)


def _seeds(count: int, device: torch.device) -> torch.Tensor:
    """Seeds as Inductor's generated code draws them, which is not how the operator itself does."""
    limits = torch.iinfo(torch.int64)
    return torch.randint(limits.min, limits.max, [count], device=device)


_ORIGINALS = {inductor_prims.seeds: _seeds}


def must_run_on_chip(operator: OpOverload) -> bool:
    """Whether the call of an operator in a graph cannot be compiled for the CPU."""
    if operator in _CHIP_ALONE:
        return True
    if torch.Tag.nondeterministic_seeded in operator.tags and operator not in _DRAW_NOTHING:
        return True
    return not _runs_on_cpu(operator)


def on_chip(operator: OpOverload, device: int) -> OpOverload:
    """The twin of an operator, made at first use.

    Args:
        operator: to be called on the tensors of chip:device.
        device: index of the chip.
    """
    return _twin(operator, device)


def _runs_on_cpu(operator: OpOverload) -> bool:
    has = operator.has_kernel_for_dispatch_key
    return not has(DispatchKey.PrivateUse1) or has(DispatchKey.CPU) or any(map(has, _COMPOSITES))


@functools.cache
def _twin(operator: OpOverload, device: int) -> OpOverload:
    schema = operator._schema
    name = f"{schema.name.replace('::', '_')}_{operator._overloadname}_{device}"
    arguments = str(schema)[str(schema).index("(") :]
    _library.define(name + arguments, tags=tuple(operator.tags))
    _library.impl(name, _call(_ORIGINALS.get(operator, operator), device), "CompositeExplicitAutograd")
    _library._register_fake(name, _fake(operator, device))
    twin: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return twin


def _call(operator: Callable[..., Any], device: int) -> Callable[..., Any]:
    """Run the original on chip tensors over the memory of CPU ones."""
    chip, cpu = torch.device("chip", device), torch.device("cpu")

    def to_chip(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _C.as_chip(value, device)
        return chip if value == cpu else value

    def to_host(value: Any) -> Any:
        return _C.as_host(value) if isinstance(value, torch.Tensor) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        return tree_map(to_host, operator(*tree_map(to_chip, args), **tree_map(to_chip, kwargs)))

    return call


def _fake(operator: OpOverload, device: int) -> Callable[..., Any]:
    """The original on fake chip tensors: fake kernels check what the device supports."""
    chip, cpu = torch.device("chip", device), torch.device("cpu")

    def fake(*args: Any, **kwargs: Any) -> Any:
        on_chip = tree_map(partial(move_fake, device=chip), (args, kwargs))
        return tree_map(partial(move_fake, device=cpu), operator(*on_chip[0], **on_chip[1]))

    return fake


def move_fake(value: Any, device: torch.device) -> Any:
    """A fake tensor of another device over the same fake storage; any other value as it is."""
    if not isinstance(value, FakeTensor) or value.fake_device == device:
        return value
    with in_kernel_invocation_manager(value.fake_mode):
        return FakeTensor(value.fake_mode, value, device)
