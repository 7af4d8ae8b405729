"""Reading, setting and temporarily setting the current device."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.source.cuda_names import CudaName, Guard

# Uses of the current device as a number; elsewhere the CPU's module may return "cpu".
_NUMBER = (
    cst.FormattedStringExpression,
    cst.BinaryOperation,
    cst.Index,
    cst.ComparisonTarget,
    cst.Comparison,
)


class CurrentDevice(FunctionRule):
    """The current device."""

    code = "IM111"
    name = "current-device"
    summary = "reads and sets the current device of the accelerator in use"
    before = "torch.cuda.set_device(rank)"
    after = "torch.get_device_module(DEVICE).set_device(rank)"
    words = (
        "current_device",
        "set_device",
        "cuda.device",
        "device_of",
        "can_device_access_peer",
        "torch.cuda",
    )

    def replace_call(self, original: cst.Call, updated: cst.Call, entry: CudaName) -> cst.BaseExpression:
        """Replace the call; the current device stays a number where it is used as one."""
        if entry.becomes == "{module}.current_device" and isinstance(self.parent(original), _NUMBER):
            number = "torch.accelerator.current_device_index"
            entry = entry._replace(becomes=number, guard=Guard.ACCELERATOR, otherwise="0")
        return super().replace_call(original, updated, entry)
