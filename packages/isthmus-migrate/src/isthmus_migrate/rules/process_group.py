"""``torch.distributed.ProcessGroupNCCL``, which only CUDA has."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.backends import is_for_nccl
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_NAME = "torch.distributed.ProcessGroupNCCL"
_NAMES = (_NAME, "torch.distributed.distributed_c10d.ProcessGroupNCCL")


class ProcessGroup(Rule):
    """CUDA's process group."""

    code = "IM290"
    name = "process-group"
    summary = "reports CUDA's process group, which a person replaces; changes nothing"
    before = "options = torch.distributed.ProcessGroupNCCL.Options()"
    after = "options = torch.distributed.ProcessGroupNCCL.Options()"
    words = ("ProcessGroupNCCL",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find uses of the class."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            if not is_read(node) or module.names.qualified(node) not in _NAMES:
                continue
            if is_for_nccl(module, node):
                yield self.already_portable(module, node, _NAME, "is used with NCCL only", "stays")
            else:
                advice = "use torch.distributed.init_process_group and its default backend"
                yield self.needs_manual_change(module, node, _NAME, "is CUDA's process group", advice)
