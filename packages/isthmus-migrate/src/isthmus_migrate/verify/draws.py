"""Equal random numbers on all devices: both runs draw from the CPU's generator."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from isthmus.shim import cpu_device

_STATE = ("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "get_rng_state",
          "get_rng_state_all", "set_rng_state", "set_rng_state_all")  # fmt: skip
_NOT_DRAWN = ("cpu", "meta")


def share_generator() -> None:
    """Draw all random numbers of this process from the CPU's generator, permanently."""
    device = torch.accelerator.current_accelerator(check_available=False)
    if device is None:
        return
    module = torch.get_device_module(device)
    for name in _STATE:
        setattr(module, name, getattr(cpu_device, name))
    DrawOnCpu().__enter__()


class DrawOnCpu(TorchDispatchMode):
    """A dispatch mode that runs random operators on the CPU, on copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: dict[Any, bool] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator, on the CPU if it draws from a device's default generator."""
        kwargs = kwargs or {}
        draws = self._draws.get(func)
        if draws is None:
            draws = self._draws[func] = torch.Tag.nondeterministic_seeded in func.tags
        if not draws or not (place := _place(args, kwargs)):
            return func(*args, **kwargs)
        return _draw_on(func, args, kwargs, place)


def _place(args: Any, kwargs: dict[str, Any]) -> torch.device | None:
    """Return the device that the operator would draw on; None for the CPU or an explicit generator."""
    if kwargs.get("generator") is not None:
        return None
    device = kwargs.get("device")
    found = [device] if device is not None else []
    tree_map(
        lambda each: found.append(each.device) if isinstance(each, torch.Tensor) else None, (args, kwargs)
    )
    return next((torch.device(each) for each in found if torch.device(each).type not in _NOT_DRAWN), None)


def _draw_on(func: Any, args: Any, kwargs: dict[str, Any], place: torch.device) -> Any:
    copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of a copy -> copy, original

    def on_cpu(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        copy = value.cpu()
        copies[id(copy)] = copy, value
        return copy

    cpu_args, cpu_kwargs = tree_map(on_cpu, (tuple(args), kwargs))
    if kwargs.get("device") is not None:
        cpu_kwargs["device"] = torch.device("cpu")
    result = func(*cpu_args, **cpu_kwargs)
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = cpu_kwargs.get(argument.name) if argument.kwarg_only else cpu_args[position]
            if isinstance(value, torch.Tensor):
                copies[id(value)][1].copy_(value)

    def back(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return copies[id(value)][1] if id(value) in copies else value.to(place)

    return tree_map(back, result)
