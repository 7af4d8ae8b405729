"""Rule IM121: named ranges for NVIDIA's profiler."""

import ast

from isthmus_migrate.rules.functions import FunctionRule
from isthmus_migrate.source.cuda_names import CudaName
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class Nvtx(FunctionRule):
    """Named ranges of time."""

    code = "IM121"
    name = "nvtx"
    summary = "named ranges become torch.profiler's; marks that need not nest stay on CUDA"
    before = 'with torch.cuda.nvtx.range("step"):'
    after = 'with torch.profiler.record_function("step"):'
    words = ("nvtx", "profiler")

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; record_function neither formats its name nor takes it as ``msg``."""
        is_plain = len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred)
        if entry.becomes == "torch.profiler.record_function" and not is_plain:
            message = "formats its name, or takes it by keyword, which record_function does not"
            return self.needs_manual_change(
                module, call, "torch.cuda.nvtx.range", message, 'write record_function(f"...")'
            )
        return super().call(module, call, entry)
