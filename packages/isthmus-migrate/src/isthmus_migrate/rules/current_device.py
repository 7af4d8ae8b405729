"""Rule IM111: functions that read, set or temporarily set the current device."""

import ast

from isthmus_migrate.rules.functions import FunctionRule
from isthmus_migrate.source.cuda_names import CudaName, Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

# Uses of the current device as a number; elsewhere the CPU's module may return "cpu".
_NUMBER = (ast.FormattedValue, ast.BinOp, ast.Subscript, ast.Compare)


class CurrentDevice(FunctionRule):
    """The current device."""

    code = "IM111"
    name = "current-device"
    summary = "reads and sets the current device of the accelerator in use"
    before = "torch.cuda.set_device(rank)"
    after = "if torch.accelerator.is_available(): torch.accelerator.set_device_index(rank)"
    words = ("current_device", "set_device", "device_of", "can_device_access_peer", "cuda")

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; the current device stays a number where it is used as one."""
        if entry.becomes == "{module}.current_device" and _is_number(module, call):
            number = "torch.accelerator.current_device_index"
            entry = entry._replace(becomes=number, guard=Guard.ACCELERATOR, otherwise="0")
        return super().call(module, call, entry)


def _is_number(module: Module, call: ast.Call) -> bool:
    """Whether a call's result is used as a number, or as the index of ``torch.device("cuda", index)``."""
    parent = module.parents[call]
    if isinstance(parent, ast.Call):
        return call in parent.args[1:] and module.names.qualified(parent.func) == "torch.device"
    return isinstance(parent, _NUMBER)
