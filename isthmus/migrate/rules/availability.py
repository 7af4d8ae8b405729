"""Availability of an accelerator, and its number of devices."""

import ast
import re

from isthmus.migrate.rules.draft import COMPARISON, Draft
from isthmus.migrate.rules.functions import FunctionRule
from isthmus.migrate.source.conditions import arms, asks_cuda, guarded, keeps_cuda
from isthmus.migrate.source.cuda_names import CudaName
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module

_AVAILABLE = "torch.cuda.is_available"
_MPS = frozenset({"torch.backends.mps.is_available", "torch.mps.is_available"})
_MPS_ARM = re.compile(r"\bmps\b")
_OTHER_ARM = re.compile(r"\btorch\.(xpu|npu|hpu|mlu|musa|mtia)\b|is_(xpu|npu|hpu)_available")
_MOVES = re.compile(r"\.cuda\(|\.to\(|device\s*=")


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
        if module.names.qualified(call.func) != _AVAILABLE:
            return super().call(module, call, entry)
        if asks_cuda(module, call):
            message = "is asked with a question that only CUDA answers, and stays a test for CUDA"
            return self.right(module, call, _AVAILABLE, message, "stays")
        if keeps_cuda(module, call):
            return self._kept(module, call)
        others = [ast.unparse(each) for each in arms(module, call)]
        if any(map(_OTHER_ARM.search, others)):
            message = "is one of several tests for accelerators, each with an arm of its own"
            return self.unclear(module, call, _AVAILABLE, message, "add an arm for any accelerator")
        is_apart = any(map(_MPS_ARM.search, others)) or (_is_switch(module, call) and _asks_mps(module))
        if is_apart and not module.around.target:
            return self._without_mps(module, call)
        return super().call(module, call, entry)

    def _kept(self, module: Module, call: ast.Call) -> Finding:
        if any(_MOVES.search(module.code(each)) for each in guarded(module, call)):
            message = "guards code that only CUDA has, and code for any accelerator"
            return self.unclear(module, call, _AVAILABLE, message, "test for each on its own")
        message = "guards code for CUDA, and stays a test for CUDA"
        return self.right(module, call, _AVAILABLE, message, "stays")

    def _without_mps(self, module: Module, call: ast.Call) -> Finding:
        """Return the change of a test beside another one for MPS, which on a Mac is the accelerator too."""
        negated = module.parents[call]
        draft = Draft(module)
        if isinstance(negated, ast.UnaryOp) and isinstance(negated.op, ast.Not):
            draft.replace(negated, "{type} in ({q}cpu{q}, {q}mps{q})", COMPARISON)
        else:
            draft.replace(call, "{type} not in ({q}cpu{q}, {q}mps{q})", COMPARISON)
        advice = "becomes DEVICE.type not in ('cpu', 'mps'): the file has another switch for MPS"
        return self.changed(call, _AVAILABLE, "belongs to CUDA", advice, draft)


def _is_switch(module: Module, call: ast.Call) -> bool:
    """Whether a call is an operand of ``and``: available, and asked for."""
    parent = module.parents[call]
    return isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And)


def _asks_mps(module: Module) -> bool:
    return any(module.names.qualified(each.func) in _MPS for each in module.of(ast.Call))
