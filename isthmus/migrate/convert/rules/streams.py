"""Streams and events."""

from __future__ import annotations

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule, source_of
from isthmus.migrate.cuda_names import CudaName, Guard

# PyTorch's base classes, which a CUDA stream and event belong to as well.
_TYPES = {"{module}.Stream": "torch.Stream", "{module}.Event": "torch.Event"}


class Streams(FunctionRule):
    """Streams and events of the device in use."""

    code = "IM116"
    name = "streams"
    summary = "streams and events are those of the device in use; as types, PyTorch's base classes"
    before = "stream = torch.cuda.Stream()"
    after = "stream = torch.get_device_module(DEVICE).Stream()"
    words = ("tream", "Event")

    def entry(self, original: cst.CSTNode) -> CudaName | None:
        """The table's entry; a class that is not called stands for the type."""
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
                message = "is the base of a class, which is then CUDA's only"
                self.left(base, source_of(base.value), message, f"derive it from {_TYPES[found.becomes]}")
        return updated_node

    def _is_base(self, original: cst.CSTNode) -> bool:
        argument = self.parent(original)
        return isinstance(argument, cst.Arg) and isinstance(self.parent(argument), cst.ClassDef)

    def _is_called(self, original: cst.CSTNode) -> bool:
        parent = self.parent(original)
        return isinstance(parent, cst.Call) and parent.func is original
