"""``torch.profiler``: CUDA activities become the accelerator's."""

import functools
import operator
from collections.abc import Callable
from typing import Any

from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.profiler import ProfilerActivity

from isthmus.chip import torch_version
from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope

_REASON = "CUDA activities mean the accelerator's"

# Old names of event columns that PyTorch has renamed; scripts read them.
_COLUMNS = {
    "cuda_time_total": "device_time_total",
    "self_cuda_time_total": "self_device_time_total",
    "cuda_memory_usage": "device_memory_usage",
    "self_cuda_memory_usage": "self_device_memory_usage",
}


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Redirect both profilers, if the accelerator has a profiler activity."""
    _columns(scope)
    _emit_nvtx(scope)
    activity = getattr(ProfilerActivity, accelerator.type.upper(), None)
    if activity is None:
        return
    scope.replace(
        "torch.profiler.supported_activities",
        lambda original: lambda: {*original(), ProfilerActivity.CUDA},
        _REASON,
    )
    scope.replace(
        "torch.profiler.profiler._parse_activities",
        functools.partial(_parsing, activity),
        _REASON,
        expects=("activities",),
    )
    scope.replace(
        "torch.autograd.profiler.profile.__init__",
        functools.partial(_starting, accelerator.type),
        _REASON,
        expects=("self", "enabled"),
    )


def _columns(scope: Scope) -> None:
    for kind in (FunctionEvent, FunctionEventAvg):
        for old, new in _COLUMNS.items():
            if not hasattr(kind, old):
                target = f"{kind.__module__}.{kind.__name__}.{old}"
                scope.set(kind, old, property(operator.attrgetter(new)), target, f"old name of {new}")


def _emit_nvtx(scope: Scope) -> None:
    owner = "torch.autograd.profiler.emit_nvtx"
    reason = "NVTX ranges are for NVIDIA's profiler"
    scope.replace(f"{owner}.__enter__", lambda _: lambda self: self, reason, expects=("self",))
    scope.replace(f"{owner}.__exit__", lambda _: lambda self, *error: False, reason, expects=("self",))


def _parsing(activity: ProfilerActivity, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse(activities: Any) -> Any:
        chosen, filters = original(activities)
        chosen = {activity if each == ProfilerActivity.CUDA else each for each in chosen}
        if ProfilerActivity.CUDA in filters:
            # Activity types; those of the CUDA runtime have other names elsewhere.
            kinds = {kind for kind in filters.pop(ProfilerActivity.CUDA) if not kind.startswith("CUDA_")}
            filters[activity] = kinds
        return chosen, filters

    return parse


def _starting(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, enabled: bool = True, **options: Any) -> None:
        old = torch_version.PROFILE_TAKES_USE_CUDA and options.pop("use_cuda", False)
        if old or options.get("use_device") == "cuda":
            options["use_device"] = device_type
        original(self, enabled, **options)

    return init
