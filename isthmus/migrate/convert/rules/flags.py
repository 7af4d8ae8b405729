"""Flags of cuDNN and of CUDA's matrix products."""

import libcst as cst

from isthmus.migrate.convert.functions import FunctionRule, source_of
from isthmus.migrate.source import cuda_names
from isthmus.migrate.source.cuda_names import CudaName, Guard


class Flags(FunctionRule):
    """Assignments of flags that apply to CUDA only."""

    code = "IM122"
    name = "cuda-flags"
    summary = "flags of cuDNN and TF32 are set on CUDA only"
    before = "torch.backends.cudnn.benchmark = True"
    after = 'if DEVICE.type == "cuda":\n    torch.backends.cudnn.benchmark = True'
    words = ("cudnn", "backends.cuda")
    mention = ""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        """Guard a line that only sets flags."""
        flags = [self._flag(statement) for statement in original_node.body]
        if not all(flags) or self.context.target == "cuda" or self.within_guard(original_node, Guard.CUDA):
            return updated_node
        self.note(original_node, f"`{', '.join(flags)}` is set on CUDA only")
        self.context.lines[original_node] = source_of(self.test(original_node, Guard.CUDA))
        return updated_node

    def entry(self, original: cst.CSTNode) -> CudaName | None:
        """Return None: flags are not called."""
        return None

    def _flag(self, statement: cst.BaseSmallStatement) -> str:
        """Return the flag set by a statement; "" for other statements."""
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
            return ""
        return next(
            (name for name in self.qualified(statement.targets[0].target) if name in cuda_names.FLAGS), ""
        )
