"""Availability of an accelerator, and its number of devices."""

import ast
import re

from isthmus_migrate.rules.cuda_builds import chosen_cuda_build
from isthmus_migrate.rules.data_parallel import starts_data_parallel
from isthmus_migrate.rules.device_branches import find_decided
from isthmus_migrate.rules.draft import AND, ATOM, COMPARISON, Draft
from isthmus_migrate.rules.functions import FunctionRule
from isthmus_migrate.rules.skip_reasons import named_need
from isthmus_migrate.source import mps, words
from isthmus_migrate.source.assignments import assigned_values
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.cuda_branches import (
    SKIPS,
    asks_cuda,
    decision,
    guarded_nodes,
    is_cuda_only,
    keeps_cuda,
    places_on_device,
)
from isthmus_migrate.source.cuda_names import CudaName
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import region

_AVAILABLE = "torch.cuda.is_available"
_COUNT = "torch.cuda.device_count"
_IF_PORTABLE = "test for any accelerator if what the text names runs there"
_OTHER_CHOICE = "stays for CUDA; add the choice of other accelerators"
_NAMED = re.compile(
    r"triton|cuda_?graph|flex_?att(entio)?n|(?<![a-z])fla(?=_)|vllm|sglang|lmdeploy", re.IGNORECASE
)


class Availability(FunctionRule):
    """Availability of devices."""

    code = "IM110"
    name = "availability"
    summary = "tests for any accelerator instead of CUDA"
    before = "if torch.cuda.is_available():"
    after = "if torch.accelerator.is_available():"
    words = ("is_available", "device_count", "init", "is_built")

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; a test that guards code for CUDA stays."""
        name = module.names.qualified(call.func) or ""
        if name in (_AVAILABLE, _COUNT) and starts_data_parallel(module, call):
            return self.already_portable(
                module, call, name, "guards DataParallel, which runs on CUDA only", "stays"
            )
        if name != _AVAILABLE:
            return super().call(module, call, entry)
        if asks_cuda(module, call):
            message = "stands in front of a question that only CUDA answers, and stays a test for CUDA"
            return self.already_portable(module, call, _AVAILABLE, message, "stays")
        if tested := _tested_cuda_code(module, call):
            message = f"skips tests of {tested}, which may run code that not every device has"
            return self.undecided(
                module, call, _AVAILABLE, message, "test for any accelerator if it runs there"
            )
        if keeps_cuda(module, call):
            return self._keep_test(module, call)
        if need := named_need(module, call):
            return self.undecided(module, call, _AVAILABLE, f'is required by a test, "{need}"', _IF_PORTABLE)
        if named := _cuda_name_or_word(module, call):
            message = f"guards code that names {named}, which may be for CUDA only"
            return self.undecided(module, call, _AVAILABLE, message, _IF_PORTABLE)
        if choice := chosen_cuda_build(module, call):
            return self.undecided(module, call, _AVAILABLE, choice, _OTHER_CHOICE)
        if stays := find_decided(self, module, call, _AVAILABLE):
            return stays
        if (apart := mps.device_types_kept_false(module, call)) and not module.around.target:
            return self._exclude_devices(module, call, sorted(apart))
        return super().call(module, call, entry)

    def _keep_test(self, module: Module, call: ast.Call) -> Finding:
        parts = list(guarded_nodes(module, call))
        if any(places_on_device(module, each) for each in parts if region(module, each) is None):
            message = "guards code that only CUDA has, and code for any accelerator"
            return self.undecided(module, call, _AVAILABLE, message, "test for each on its own")
        if any(_is_apart(module, each) for each in parts):
            message = "guards code that only CUDA has, and calls that may run on any accelerator"
            return self.undecided(module, call, _AVAILABLE, message, "test for each on its own")
        message = "guards code for CUDA, and stays a test for CUDA"
        return self.already_portable(module, call, _AVAILABLE, message, "stays")

    def _exclude_devices(self, module: Module, call: ast.Call, apart: list[str]) -> Finding:
        """Return the change of a test beside others, for MPS or XPU, which may be the accelerator too."""
        if module.around.project.late_choice or module.around.project.mocks_choice:
            return self._at_run_time(module, call, apart)
        types = ", ".join(f"{{q}}{each}{{q}}" for each in ("cpu", *apart))
        negated = module.parents[call]
        draft = Draft(module)
        if isinstance(negated, ast.UnaryOp) and isinstance(negated.op, ast.Not):
            draft.replace(negated, f"{{type}} in ({types})", COMPARISON)
        else:
            draft.replace(call, f"{{type}} not in ({types})", COMPARISON)
        advice = f"becomes DEVICE.type not in ('cpu', {', '.join(map(repr, apart))}), which the project keeps apart"
        return self.automatic_change(call, _AVAILABLE, "belongs to CUDA", advice, draft)

    def _at_run_time(self, module: Module, call: ast.Call, apart: list[str]) -> Finding:
        """Return such a change where a device is hidden, or replaced by a mock, after the constant was defined."""
        tests = " and ".join(f"{{type}} != {{q}}{each}{{q}}" for each in apart)
        precedence = ATOM if _is_switch(module, call) else AND  # `and` in `and` needs no parentheses
        draft = Draft(module).replace(call, f"torch.accelerator.is_available() and {tests}", precedence)
        advice = f"becomes torch.accelerator.is_available() without {', '.join(apart)}, which the project keeps apart"
        return self.automatic_change(call, _AVAILABLE, "belongs to CUDA", advice, draft)


def _is_switch(module: Module, call: ast.Call) -> bool:
    """Whether a call is an operand of ``and``: available, and asked for."""
    parent = module.parents[call]
    return isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And)


def _tested_cuda_code(module: Module, call: ast.Call) -> str:
    """Return what a skipped test uses of the project's functions and classes that may run code for CUDA, or ""."""
    skip = decision(module, call).part
    if not isinstance(skip, ast.Call) or last_name(skip.func) not in SKIPS:
        return ""
    names = (
        module.names.qualified(node) or "" for part in guarded_nodes(module, call) for node in ast.walk(part)
    )
    return next((each for each in names if each in module.around.project.may_run_cuda), "").rpartition(".")[2]


def _cuda_name_or_word(module: Module, call: ast.Call) -> str:
    """Return a name or word behind a test that speaks of kernels, graphs or engines for CUDA, else ""."""
    if not module.mentions(_NAMED):
        return ""
    function = module.nearest(call, ast.FunctionDef)
    inside = [
        node for part in guarded_nodes(module, call) if isinstance(part, ast.stmt) for node in ast.walk(part)
    ]
    for node in (*([function] if inside and function is not None else ()), *inside):
        if found := _NAMED.search(_word(node)):
            return found.group()
    return ""


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return next((getattr(node, each) for each in ("id", "attr", "name") if getattr(node, each, None)), "")


def _is_apart(module: Module, part: ast.AST) -> bool:
    """Whether a statement of an ``if`` is a call of a method or function that is not CUDA's."""
    if not isinstance(part, ast.Expr) or not isinstance(part.value, ast.Call):
        return False
    if not isinstance(module.parents[part], ast.If):
        return False
    name = module.names.qualified(part.value.func) or ""
    is_said = name == "print" or last_name(part.value.func) in words.METHODS
    owner = getattr(part.value.func, "value", None)
    made = assigned_values(module, owner) if isinstance(owner, ast.Name) else []
    names = (node for each in (part, *made) for node in ast.walk(each))
    return not (is_said or name.startswith("torch.") or any(is_cuda_only(module, each) for each in names))
