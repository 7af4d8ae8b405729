"""Properties and capabilities of a device."""

import ast

from isthmus_migrate.rules.draft import OR, Draft
from isthmus_migrate.rules.functions import FunctionRule, add_guard, describe_replacement, needs_guard
from isthmus_migrate.source.assignments import fields
from isthmus_migrate.source.cuda_branches import rejects
from isthmus_migrate.source.cuda_names import CAPABILITY, CudaName, Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_PROPERTIES = "{module}.get_device_properties"
# Values of fields without an accelerator, and of fields that belong to CUDA elsewhere.
_ON_CPU = {"name": "{type}", "total_memory": "0"}
_ELSEWHERE = dict.fromkeys(sorted(CAPABILITY), "0")
_LOWER = (ast.Gt, ast.GtE, ast.Eq)  # false for a capability of 0
_CAPABILITY = "torch.cuda.get_device_capability"


class Properties(FunctionRule):
    """Name, properties and capabilities of a device."""

    code = "IM115"
    name = "properties"
    summary = "queries name and capabilities of the device in use; CUDA-only properties are queried on CUDA"
    before = "name = torch.cuda.get_device_name(0)"
    after = (
        "name = torch.get_device_module(DEVICE).get_device_name(0) "
        "if torch.accelerator.is_available() else DEVICE.type"
    )
    words = ("get_device", "is_bf16_supported", "is_tf32_supported", "get_arch_list", "get_gencode_flags")
    order = 45  # runs later: the arguments of a call that is left stay too

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call, with the field that is read of its result."""
        field = module.parents[call]
        if entry.becomes == _CAPABILITY and (limit := _limit(module, call)):
            return self._capability(module, call, limit, entry)
        if entry.becomes != _PROPERTIES:
            return super().call(module, call, entry)
        if not isinstance(field, ast.Attribute) and (others := fields(module, call) - _ON_CPU.keys()):
            return self._keep_cuda_fields(module, call, ", ".join(sorted(others)))
        if not isinstance(field, ast.Attribute):  # without an accelerator it raises, as before
            advice = f"{describe_replacement(module, call, entry)}; its fields differ between accelerators"
            draft = Draft(module).replace(call.func, _PROPERTIES)
            return self.automatic_change(
                call, "torch.cuda.get_device_properties", "belongs to CUDA", advice, draft
            )
        return self._field(module, call, field, entry)

    def _capability(self, module: Module, call: ast.Call, limit: ast.Compare, entry: CudaName) -> Finding:
        """Return the finding of ``torch.cuda.get_device_capability()[0] >= 8``, which is false on other devices.

        An upper limit is false there too, ``< (8, 0)``, which chooses a path of CUDA, unless it refuses a device.
        """
        draft = Draft(module)
        if (
            not isinstance(limit.ops[0], _LOWER)
            and needs_guard(module, limit, entry.guard)
            and rejects(module, limit)
        ):
            draft.surround(limit, "{type} != {q}cuda{q} or ", "", OR)
        else:
            add_guard(draft, limit, entry._replace(otherwise="False"))
        if not draft.edits:
            return self.already_portable(module, call, _CAPABILITY, "is called on CUDA only", "stays")
        return self.automatic_change(call, _CAPABILITY, "belongs to CUDA", "is called on CUDA only", draft)

    def _field(self, module: Module, call: ast.Call, field: ast.Attribute, entry: CudaName) -> Finding:
        """Return the finding of ``torch.cuda.get_device_properties(0).total_memory``."""
        subject = "torch.cuda.get_device_properties"
        draft = Draft(module)
        if field.attr in _ON_CPU:
            draft.replace(call.func, _PROPERTIES)
            entry = entry._replace(guard=Guard.ACCELERATOR, otherwise=_ON_CPU[field.attr])
        elif field.attr in _ELSEWHERE:
            entry = entry._replace(guard=Guard.CUDA, otherwise=_ELSEWHERE[field.attr])
        else:
            return self._keep_cuda_fields(module, call, field.attr)
        add_guard(draft, field, entry)
        if not draft.edits:
            return self.already_portable(module, call, subject, "is called on CUDA only", "stays")
        return self.automatic_change(
            call, subject, "belongs to CUDA", describe_replacement(module, call, entry), draft
        )

    def _keep_cuda_fields(self, module: Module, call: ast.Call, names: str) -> Finding:
        """Return the finding of properties with fields of CUDA's, which stay."""
        subject, message = (
            "torch.cuda.get_device_properties",
            f"is asked for `{names}`, which other accelerators may lack",
        )
        module.claimed.update(ast.walk(call))
        return self.undecided(
            module, call, subject, message, "query it on CUDA only, and choose a value for other devices"
        )


def _limit(module: Module, call: ast.Call) -> ast.Compare | None:
    """Return the comparison of a call, or of an element of its result: a lower limit, or a condition."""
    below: ast.AST = call
    above = module.parents[call]
    if isinstance(above, ast.Subscript):
        below, above = above, module.parents[above]
    if not isinstance(above, ast.Compare) or above.left is not below or len(above.ops) != 1:
        return None
    return above if isinstance(above.ops[0], _LOWER) or _is_condition(module, above) else None


def _is_condition(module: Module, test: ast.Compare) -> bool:
    """Whether a comparison is a condition, or a part of one, and its value is not kept."""
    above = module.parents[test]
    return isinstance(above, ast.BoolOp) or test is getattr(above, "test", None)
