"""Flags of cuDNN and of CUDA's matrix products."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.cuda_names import FLAGS
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class Flags(Rule):
    """Assignments of flags that only CUDA reads."""

    code = "IM122"
    name = "cuda-flags"
    summary = "flags of cuDNN and TF32 stay: PyTorch accepts them on every machine"
    before = "torch.backends.cudnn.benchmark = True"
    after = "torch.backends.cudnn.benchmark = True"
    words = ("cudnn", "backends.cuda")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find assignments of flags."""
        for node in module.of(ast.Attribute):
            name = module.names.qualified(node) or ""
            if isinstance(node.ctx, ast.Store) and name in FLAGS:
                yield self.already_portable(module, node, name, "is a flag of CUDA", FLAGS[name].advice)
