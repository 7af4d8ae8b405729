"""Availability of an accelerator, and its number of devices."""

import ast

from isthmus.migrate.rules.draft import COMPARISON, Draft
from isthmus.migrate.rules.functions import FunctionRule
from isthmus.migrate.source.cuda_names import CudaName
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module

_MPS = frozenset({"torch.backends.mps.is_available", "torch.mps.is_available"})


class Availability(FunctionRule):
    """Availability of devices."""

    code = "IM110"
    name = "availability"
    summary = "tests for any accelerator instead of CUDA"
    before = "if torch.cuda.is_available():"
    after = "if torch.accelerator.is_available():"
    words = ("is_available", "device_count", "init", "is_built")

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; in a switch of a file that has another one for MPS, MPS does not count.

        ``torch.accelerator`` is MPS on a Mac, so that ``use_cuda = not args.no_cuda and
        torch.accelerator.is_available()`` would use MPS there in spite of ``--no-mps``.
        """
        name = module.names.qualified(call.func) or ""
        if name != "torch.cuda.is_available" or not _is_switch(module, call) or not _asks_mps(module):
            return super().call(module, call, entry)
        draft = Draft(module).replace(call, "{type} not in ({q}cpu{q}, {q}mps{q})", COMPARISON)
        advice = "becomes DEVICE.type not in ('cpu', 'mps'): the file has another switch for MPS"
        return self.changed(call, name, "belongs to CUDA", advice, draft)


def _is_switch(module: Module, call: ast.Call) -> bool:
    """Whether a call is an operand of ``and``: available, and asked for."""
    parent = module.parents[call]
    return not module.around.target and isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And)


def _asks_mps(module: Module) -> bool:
    return any(module.names.qualified(each.func) in _MPS for each in module.of(ast.Call))
