"""What a device is and what it can do."""

from __future__ import annotations

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.findings import Severity


class Properties(FunctionRule):
    """Name, properties and abilities of a device."""

    code = "IM115"
    name = "properties"
    severity = Severity.REVIEW
    summary = "asks the device in use for its name and abilities; what only CUDA has is asked on CUDA"
    before = "name = torch.cuda.get_device_name(0)"
    after = (
        "name = torch.get_device_module(DEVICE).get_device_name(0) "
        "if torch.accelerator.is_available() else DEVICE.type"
    )
    words = ("get_device", "is_bf16_supported", "is_tf32_supported", "get_arch_list", "get_gencode_flags")
