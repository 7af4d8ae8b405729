"""``DistributedDataParallel(model, device_ids=[local_rank])`` on a machine without an accelerator."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.draft import TERNARY, Draft
from isthmus_migrate.rules.functions import is_within, needs_guard
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.cuda_names import Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_NAMES = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
_PARAMETERS = ("device_ids", "output_device")  # the second and third


class DdpDeviceIds(Rule):
    """Device indices of DistributedDataParallel, which raises for modules on the CPU."""

    code = "IM203"
    name = "ddp-device-ids"
    summary = "DistributedDataParallel gets device indices only on an accelerator"
    before = "model = DistributedDataParallel(model, device_ids=[rank])"
    after = 'model = DistributedDataParallel(model, device_ids=[rank] if DEVICE.type != "cpu" else None)'
    words = ("DistributedDataParallel",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find device indices, by name or by position."""
        if module.around.target not in ("", "cpu"):
            return
        for call in module.of(ast.Call):
            if module.names.qualified(call.func) in _NAMES:
                for name, value in _passed_indices(call):
                    yield self._end(module, call, name, value)

    def _end(self, module: Module, call: ast.Call, name: str, value: ast.expr) -> Finding:
        chosen = _branch_not_none(value) if isinstance(value, ast.IfExp) else call
        is_needless = is_within(
            module, call, module.around.project.behind_tests
        )  # on the CPU it raised before too
        if module.around.target != "cpu" and (
            is_needless or not needs_guard(module, chosen, Guard.ACCELERATOR)
        ):
            return self.already_portable(module, value, name, "is passed with an accelerator only", "stays")
        if isinstance(value, ast.IfExp):
            return self.undecided(
                module, value, name, "is chosen by a condition", "pass None for a model on the CPU"
            )
        draft = Draft(module).surround(value, "", " if {type} != {q}cpu{q} else None", TERNARY)
        said, advice = "raises if the model is on the CPU", "becomes None on the CPU"
        return self.automatic_change(value, name, said, advice, draft)


def _passed_indices(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the indices that a call passes, other than None."""
    positional = zip(_PARAMETERS, call.args[1:], strict=False)
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    named = ((each.arg or "", each.value) for each in call.keywords)
    for name, value in (*(() if starred else positional), *named):
        if name in _PARAMETERS and not _is_none(value):
            yield name, value


def _branch_not_none(choice: ast.IfExp) -> ast.expr:
    """Return the branch of a choice that is not None; the choice if neither is."""
    if _is_none(choice.orelse):
        return choice.body
    return choice.orelse if _is_none(choice.body) else choice


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
