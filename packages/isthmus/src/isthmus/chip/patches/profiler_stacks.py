"""``export_stacks`` of a profile of the chip: every kernel once, under the stack of the operator that launched it."""

from collections.abc import Callable
from copy import copy
from typing import Any

from torch._C._autograd import DeviceType

from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Let ``EventList.export_stacks`` write each kernel once.

    An operator's row has the time of its kernels, and in backward the stack of the forward call: the kernel's own row
    would count them again, and marks over kernels would a third time.
    """
    if not _scope.patches:
        _scope.replace(
            "torch.autograd.profiler_util.EventList.export_stacks",
            _of_each_kernel_once,
            "each kernel counts once, under the stack of its operator",
            expects=("self", "path", "metric"),
        )


def uninstall() -> None:
    """Give PyTorch its own function back."""
    _scope.undo()


def _of_each_kernel_once(original: Callable[[Any, str, str], None]) -> Callable[[Any, str, str], None]:
    def export_stacks(self: Any, path: str, metric: str) -> None:
        rows = [_with_stack(row) for row in self if row.device_type == DeviceType.CPU]
        rows += [row for row in self if row.device_type != DeviceType.CPU and _is_alone(row)]
        original(type(self)(rows, use_device=self._use_device), path, metric)

    return export_stacks


def _with_stack(row: Any) -> Any:
    """The row, or a copy with the stack it is called from: the accumulation of a gradient has no forward call."""
    caller = row
    while caller is not None and not caller.stack:
        caller = caller.cpu_parent
    if caller is None or caller is row:
        return row
    found = copy(row)
    found.stack = caller.stack
    return found


def _is_alone(row: Any) -> bool:
    """Whether it is device work that no operator's row counts."""
    return not row.is_user_annotation and row.linked_correlation_id == 0
