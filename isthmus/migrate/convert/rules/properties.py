"""Properties and capabilities of a device."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.source.cuda_names import CudaName, Guard
from isthmus.migrate.source.findings import Severity

_PROPERTIES = "{module}.get_device_properties"
# Values of fields without an accelerator.
_ON_CPU = {"name": "{type}", "total_memory": "0"}


class Properties(FunctionRule):
    """Name, properties and capabilities of a device."""

    code = "IM115"
    name = "properties"
    severity = Severity.REVIEW
    summary = "queries name and capabilities of the device in use; CUDA-only properties are queried on CUDA"
    before = "name = torch.cuda.get_device_name(0)"
    after = (
        "name = torch.get_device_module(DEVICE).get_device_name(0) "
        "if torch.accelerator.is_available() else DEVICE.type"
    )
    words = ("get_device", "is_bf16_supported", "is_tf32_supported", "get_arch_list", "get_gencode_flags")

    def replace_call(self, original: cst.Call, updated: cst.Call, entry: CudaName) -> cst.BaseExpression:
        """Replace the call; report properties that may not exist."""
        guarded = self._is_field(self.parent(original)) or not self.needs_guard(original, Guard.ACCELERATOR)
        if entry.becomes == _PROPERTIES and not guarded:
            message = "raises without an accelerator"
            advice = "query it under `if torch.accelerator.is_available():`; its fields differ too"
            self.left(original, "torch.cuda.get_device_properties", message, advice, Severity.REVIEW)
        return super().replace_call(original, updated, entry)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """``torch.cuda.get_device_properties(0).total_memory``."""
        entry = self._entry_of_properties(original_node.value)
        if entry is None or not self._is_field(original_node):
            return super().leave_Attribute(original_node, updated_node)
        field = entry._replace(guard=Guard.ACCELERATOR, otherwise=_ON_CPU[original_node.attr.value])
        return self.guarded(original_node, updated_node, field)

    def _is_field(self, original: cst.CSTNode) -> bool:
        return isinstance(original, cst.Attribute) and original.attr.value in _ON_CPU

    def _entry_of_properties(self, original: cst.BaseExpression) -> CudaName | None:
        entry = self.entry(original.func) if isinstance(original, cst.Call) else None
        return entry if entry is not None and entry.becomes == _PROPERTIES else None
