"""Streams and events."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.functions import FunctionRule, add_guard, is_type, needs_guard
from isthmus_migrate.source.assignments import fields
from isthmus_migrate.source.cuda_names import HANDLES, CudaName, Guard
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module

# PyTorch's base classes of streams and events, including CUDA's.
_TYPES = {"{module}.Stream": "torch.Stream", "{module}.Event": "torch.Event"}
_METHOD = CudaName("IM116", Severity.AUTOMATIC, "", guard=Guard.ACCELERATOR)


class Streams(FunctionRule):
    """Streams and events of the device in use.

    They are those of the device's own module: ``torch.Event`` needs functions of the backend's guard that PyTorch
    leaves optional, such as ``elapsedTime``, and plugins may lack them. On the CPU an event without timing does
    nothing, and one with timing raises an error, as ``torch.cuda.Event`` does. MPS has events but no streams.
    """

    code = "IM116"
    name = "streams"
    summary = "streams and events are those of the device in use; as types, PyTorch's base classes"
    before = "stream = torch.cuda.Stream()"
    after = "stream = torch.get_device_module(DEVICE).Stream()"
    words = ("tream", "Event")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the functions and classes, and the methods that the CPU's tensors and streams lack."""
        yield from super().find(module)
        for call in module.of(ast.Call):
            if self._is_of_accelerators(module, call):
                yield self._method(module, call)

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; one whose result gives a handle of CUDA's runtime stays."""
        handles = fields(module, call) & HANDLES
        if not handles:
            return super().call(module, call, entry)
        name = module.names.qualified(call.func) or ""
        message = f"gives `{min(handles)}`, a handle of CUDA's runtime"
        if not needs_guard(module, call, Guard.CUDA):
            return self.already_portable(module, call, name, message, "stays: it is called on CUDA only")
        return self.needs_manual_change(
            module, call, name, message, "call it on CUDA only, and port what takes the handle"
        )

    def name_read(self, module: Module, node: ast.expr, entry: CudaName) -> Iterator[Finding]:
        """Yield the finding of a name; a class may be a base class, or stand for the type."""
        if entry.becomes in _TYPES and isinstance(module.parents[node], ast.ClassDef):
            message = "is a base class, which makes the class CUDA-only"
            advice = f"derive it from {_TYPES[entry.becomes]}"
            yield self.needs_manual_change(module, node, module.names.qualified(node) or "", message, advice)
            return
        if entry.becomes in _TYPES and is_type(module, node):
            entry = entry._replace(becomes=_TYPES[entry.becomes])
        yield from super().name_read(module, node, entry)

    def _method(self, module: Module, call: ast.Call) -> Finding:
        """Return the finding of a method that only accelerators have."""
        assert isinstance(call.func, ast.Attribute)
        subject, message = f".{call.func.attr}()", "is a method that the CPU lacks"
        if not needs_guard(module, call, Guard.ACCELERATOR):
            return self.already_portable(
                module, call, subject, message, "stays: it is called where there is an accelerator"
            )
        draft = Draft(module)
        add_guard(draft, call, _METHOD)
        return self.automatic_change(call, subject, message, "is called where there is an accelerator", draft)

    def _is_of_accelerators(self, module: Module, call: ast.Call) -> bool:
        """Whether a call is ``x.record_stream(...)`` or ``torch.cuda.current_stream().synchronize()``."""
        if not isinstance(call.func, ast.Attribute):
            return False
        owner, name = call.func.value, call.func.attr
        if name == "synchronize" and isinstance(owner, ast.Call):
            found = self.entry(module, owner.func)
            return found is not None and found.becomes == "{module}.current_stream"
        if name != "record_stream" or len(call.args) != 1:
            return False
        is_own = any(each.name == name for each in module.of(ast.FunctionDef))
        return module.mentions("cuda") and module.mentions("torch") and not is_own
