"""The current device: asked for, set, and set for a while."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.source.cuda_names import CudaName, Guard

# Where the current device is used as a number; elsewhere the CPU's module may answer "cpu".
_NUMBER = (
    cst.FormattedStringExpression,
    cst.BinaryOperation,
    cst.Index,
    cst.ComparisonTarget,
    cst.Comparison,
)


class CurrentDevice(FunctionRule):
    """The device that is used where none is named."""

    code = "IM111"
    name = "current-device"
    summary = "asks for and sets the current device of the accelerator in use"
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
        """The call; the current device as a number where it is used as one."""
        if entry.becomes == "{module}.current_device" and isinstance(self.parent(original), _NUMBER):
            number = "torch.accelerator.current_device_index"
            entry = entry._replace(becomes=number, guard=Guard.ACCELERATOR, otherwise="0")
        return super().replace_call(original, updated, entry)
