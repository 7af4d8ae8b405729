"""Streams and events."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule, source_of
from isthmus.migrate.source.cuda_names import CudaName, Guard
from isthmus.migrate.source.findings import Severity

# PyTorch's base classes of streams and events, including CUDA's.
_TYPES = {"{module}.Stream": "torch.Stream", "{module}.Event": "torch.Event"}
# Keywords accepted by the classes of torch.cpu.
_ARGUMENTS_ON_CPU = {"{module}.Stream": {"priority"}, "{module}.Event": set[str]()}
_ADVICE = (
    "create it under `if torch.accelerator.is_available():`, and measure with time.perf_counter() elsewhere"
)
_METHOD = CudaName("IM116", Severity.AUTOMATIC, "", guard=Guard.ACCELERATOR)


class Streams(FunctionRule):
    """Streams and events of the device in use."""

    code = "IM116"
    name = "streams"
    summary = "streams and events are those of the device in use; as types, PyTorch's base classes"
    before = "stream = torch.cuda.Stream()"
    after = "stream = torch.get_device_module(DEVICE).Stream()"
    words = ("tream", "Event")

    def entry(self, original: cst.CSTNode) -> CudaName | None:
        """Return the table's entry; a class that is not called stands for the type."""
        found = super().entry(original)
        if found is None or found.becomes not in _TYPES or self._is_called(original):
            return found
        if self._is_base(original):
            return None
        return found._replace(becomes=_TYPES[found.becomes], guard=Guard.NONE)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        """Report a class derived from a CUDA stream or event."""
        for base in original_node.bases:
            found = super().entry(base.value)
            if found is not None and found.becomes in _TYPES:
                message = "is a base class, which makes the class CUDA-only"
                self.left(base, source_of(base.value), message, f"derive it from {_TYPES[found.becomes]}")
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Guard the methods that the CPU's tensors and streams lack."""
        if not self._is_method_of_accelerators(original_node):
            return super().leave_Call(original_node, updated_node)
        if not self.needs_guard(original_node, Guard.ACCELERATOR):
            return updated_node
        method = cst.ensure_type(original_node.func, cst.Attribute).attr.value
        self.note(original_node, f"`{method}` is called where there is an accelerator")
        return self.guarded(original_node, updated_node, _METHOD)

    def replace_call(self, original: cst.Call, updated: cst.Call, entry: CudaName) -> cst.BaseExpression:
        """The call; one with arguments that the CPU's class does not take is reported."""
        known = _ARGUMENTS_ON_CPU.get(entry.becomes)
        given = [each.keyword.value if each.keyword else "" for each in original.args]
        if known is not None and set(given) - known and self.needs_guard(original, Guard.ACCELERATOR):
            message = "has arguments that the CPU's does not accept, so it raises on the CPU"
            self.left(original, source_of(original.func), message, _ADVICE, Severity.REVIEW)
        return super().replace_call(original, updated, entry)

    def _is_method_of_accelerators(self, original: cst.Call) -> bool:
        """Whether a call is ``x.record_stream(...)`` or ``torch.cuda.current_stream().synchronize()``."""
        if not isinstance(original.func, cst.Attribute):
            return False
        owner, name = original.func.value, original.func.attr.value
        if name != "synchronize" or not isinstance(owner, cst.Call):
            return name == "record_stream" and len(original.args) == 1
        found = super().entry(owner.func)
        return found is not None and found.becomes == "{module}.current_stream"

    def _is_base(self, original: cst.CSTNode) -> bool:
        argument = self.parent(original)
        return isinstance(argument, cst.Arg) and isinstance(self.parent(argument), cst.ClassDef)

    def _is_called(self, original: cst.CSTNode) -> bool:
        parent = self.parent(original)
        return isinstance(parent, cst.Call) and parent.func is original
