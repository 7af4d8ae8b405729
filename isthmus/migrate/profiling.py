"""``torch.profiler`` for a program that asks for CUDA's activity: it gets the accelerator's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity

from isthmus.migrate.accelerator import Accelerator
from isthmus.patches import Scope

_REASON = "CUDA's activity stands for the accelerator's"


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Redirect both profilers; nothing changes where the accelerator has no activity of its own."""
    activity = getattr(ProfilerActivity, accelerator.type.upper(), None)
    if activity is None:
        return
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
        expects=("self", "enabled", "use_cuda", "use_device"),
    )


def _parsing(activity: ProfilerActivity, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse(activities: Any) -> Any:
        chosen, filters = original(activities)
        chosen = {activity if each == ProfilerActivity.CUDA else each for each in chosen}
        if ProfilerActivity.CUDA in filters:
            # Kinds of activities; those of CUDA's runtime have a name of their own elsewhere.
            kinds = {kind for kind in filters.pop(ProfilerActivity.CUDA) if not kind.startswith("CUDA_")}
            filters[activity] = kinds
        return chosen, filters

    return parse


def _starting(device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, enabled: bool = True, **options: Any) -> None:
        if options.pop("use_cuda", False) or options.get("use_device") == "cuda":
            options["use_device"] = device_type
        original(self, enabled, **options)

    return init
