"""``apex.parallel`` becomes PyTorch's DistributedDataParallel and SyncBatchNorm."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.apex import is_type_test, public_name
from isthmus_migrate.rules.draft import TERNARY, Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_DDP = "torch.nn.parallel.DistributedDataParallel"
_CONVERT = "torch.nn.SyncBatchNorm.convert_sync_batchnorm"
# Arguments of apex's DistributedDataParallel that tune reductions; PyTorch tunes them in other ways.
_DROPPED = {"message_size", "delay_allreduce", "shared_param", "allreduce_trigger_params"}
_DROPPED |= {"retain_allreduce_buffers", "num_allreduce_streams"}
_BECOMES = {"apex.parallel.DistributedDataParallel": _DDP, "apex.parallel.convert_syncbn_model": _CONVERT}
_SAID = "has a counterpart in PyTorch"


class ApexParallel(Rule):
    """Data parallelism by apex."""

    code = "IM231"
    name = "apex-parallel"
    summary = "apex.parallel becomes torch.nn.parallel.DistributedDataParallel and torch.nn.SyncBatchNorm"
    before = "model = apex.parallel.DistributedDataParallel(model, delay_allreduce=True)"
    after = "model = torch.nn.parallel.DistributedDataParallel(model)"
    words = ("apex",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find calls of the class and the function, tests for the class, and other uses."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            name = public_name(module.names.qualified(node) or "")
            if name not in _BECOMES or not is_read(node):
                continue
            parent = module.parents[node]
            if not (isinstance(parent, ast.Call) and parent.func is node):
                yield self._replace_reference(module, node, name)
            elif _BECOMES[name] == _DDP:
                yield self._wrapped(module, parent, name)
            else:
                yield self._convert_sync_batchnorm(module, parent, name)

    def _wrapped(self, module: Module, call: ast.Call, name: str) -> Finding:
        """Replace the class, if every argument has a counterpart."""
        dropped = [each for each in call.keywords if each.arg in _DROPPED]
        kept = [each for each in (*call.args, *call.keywords) if each not in dropped]
        if len(kept) != 1 or isinstance(kept[0], ast.Starred) or getattr(kept[0], "arg", "") is None:
            return self.needs_manual_change(
                module, call, name, "has arguments that PyTorch's lacks", f"use {_DDP}"
            )
        draft = Draft(module).replace(call.func, _DDP)
        draft.remove_items([*call.args, *call.keywords], dropped)
        return self.automatic_change(call, name, _SAID, f"becomes {_DDP}", draft)

    def _convert_sync_batchnorm(self, module: Module, call: ast.Call, name: str) -> Finding:
        """Replace the function, on an accelerator only: SyncBatchNorm does not train on the CPU."""
        given = [*call.args, *(each.value for each in call.keywords)]
        named = {each.arg for each in call.keywords} - {"module"}
        if len(given) != 1 or named or isinstance(given[0], ast.Starred):
            return self.needs_manual_change(
                module, call, name, "has more arguments than a module", f"use {_CONVERT}"
            )
        draft = Draft(module)
        is_plain = isinstance(given[0], ast.Name | ast.Attribute)
        function = _CONVERT
        if not module.around.target and not is_plain:
            function = f"({_CONVERT} if {{type}} != {{q}}cpu{{q}} else torch.nn.Identity())"
        draft.replace(call.func, function)
        for each in call.keywords:
            draft.swap(call, module.start(each), module.start(each.value), "")
        if not module.around.target and is_plain:
            after = " if {type} != {q}cpu{q} else {model}"
            draft.surround(call, "", after, TERNARY, model=module.code(given[0]))
        return self.automatic_change(call, name, _SAID, f"becomes {_CONVERT} on an accelerator", draft)

    def _replace_reference(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Replace the class in a test for it; how another use calls it is not known here."""
        if not is_type_test(module, node):
            return self.undecided(module, node, name, "is used other than by a call", f"use {_BECOMES[name]}")
        draft = Draft(module).replace(node, _BECOMES[name])
        return self.automatic_change(node, name, _SAID, f"becomes {_BECOMES[name]}", draft)
