"""Availability of an accelerator, and its number of devices."""

import ast
import re

from isthmus.migrate.rules.functions import FunctionRule
from isthmus.migrate.source.conditions import guarded, has_own_arm, keeps_cuda
from isthmus.migrate.source.cuda_names import CudaName
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module

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
        """Return the finding of a call; one in front of code for CUDA stays, and so does one beside a test for XPU."""
        name = module.names.qualified(call.func) or ""
        if name == "torch.cuda.is_available" and keeps_cuda(module, call):
            if any(_MOVES.search(module.code(each)) for each in guarded(module, call)):
                message = "guards code that only CUDA has, and code for any accelerator"
                return self.unclear(module, call, name, message, "test for each on its own")
            return self.right(module, call, name, "guards code for CUDA, and stays a test for CUDA", "stays")
        if name == "torch.cuda.is_available" and has_own_arm(module, call):
            message = "is one of several tests for accelerators, each with an arm of its own"
            return self.unclear(
                module, call, name, message, "add an arm for torch.accelerator.is_available()"
            )
        return super().call(module, call, entry)
