"""Ranges for NVIDIA's profiler."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule
from isthmus.migrate.source.cuda_names import CudaName


class Nvtx(FunctionRule):
    """Named ranges of time."""

    code = "IM121"
    name = "nvtx"
    summary = "named ranges become torch.profiler's; marks that need not nest stay on CUDA"
    before = 'with torch.cuda.nvtx.range("step"):'
    after = 'with torch.profiler.record_function("step"):'
    words = ("nvtx", "profiler")

    def replace_call(self, original: cst.Call, updated: cst.Call, entry: CudaName) -> cst.BaseExpression:
        """Replace the call, unless its name is formatted or a keyword, which record_function does not support."""
        is_plain = len(original.args) == 1 and not (original.args[0].keyword or original.args[0].star)
        if entry.becomes == "torch.profiler.record_function" and not is_plain:
            message = "formats its name, or takes it by keyword, which record_function does not"
            self.left(original, "torch.cuda.nvtx.range", message, 'write record_function(f"...")')
            return updated
        return super().replace_call(original, updated, entry)
