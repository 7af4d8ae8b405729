"""Optimizers and normalizations of apex with equivalents in PyTorch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.apex import is_optional, is_type_test, public_name, root_of
from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.conditions import conditions
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class Counterpart(NamedTuple):
    """An equivalent class of PyTorch.

    Attributes:
        name: of the class.
        positional: number of equivalent positional arguments.
        same: equivalent keyword arguments.
        dropped: arguments without effect on the result, with the required literal; "" for any.
        defaults: apex's defaults that differ from PyTorch's.
    """

    name: str
    positional: int
    same: frozenset[str]
    dropped: dict[str, str]
    defaults: dict[str, str]


_ADAM = frozenset({"params", "lr", "betas", "eps", "weight_decay", "capturable"})
_ADAM_DROPPED = {
    "bias_correction": "True",
    "amsgrad": "False",
    "set_grad_none": "True",
    "master_weights": "False",
}
_SHAPE = frozenset({"normalized_shape", "eps", "elementwise_affine"})
_ADAM_W = Counterpart(
    "torch.optim.AdamW", 2, _ADAM, {**_ADAM_DROPPED, "adam_w_mode": "True"}, {"weight_decay": "0.0"}
)
_ADAM_L2 = Counterpart("torch.optim.Adam", 2, _ADAM, {**_ADAM_DROPPED, "adam_w_mode": "False"}, {})
_LAYER_NORM = Counterpart("torch.nn.LayerNorm", 3, _SHAPE, {"memory_efficient": ""}, {})
_RMS_NORM = Counterpart("torch.nn.RMSNorm", 3, _SHAPE, {"memory_efficient": ""}, {"eps": "1e-05"})
_SGD = Counterpart(
    "torch.optim.SGD",
    6,
    frozenset({"params", "lr", "momentum", "dampening", "weight_decay", "nesterov"}),
    {"wd_after_momentum": "False", "materialize_master_grads": "", "set_grad_none": "True"},
    {},
)
COUNTERPARTS = {
    "apex.optimizers.FusedAdam": (_ADAM_W, _ADAM_L2),
    "apex.optimizers.FusedSGD": (_SGD,),
    "apex.normalization.FusedLayerNorm": (_LAYER_NORM,),
    "apex.normalization.FusedRMSNorm": (_RMS_NORM,),
}
_ADVICE = "write it with PyTorch's class by hand, or use `isthmus run --provide apex`"


class ApexModules(Rule):
    """FusedAdam, FusedSGD, FusedLayerNorm and FusedRMSNorm."""

    code = "IM232"
    name = "apex-modules"
    summary = "apex's fused optimizers and normalizations become PyTorch's, with apex's defaults"
    before = "optimizer = apex.optimizers.FusedAdam(model.parameters(), lr=1e-3)"
    after = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)"
    words = ("apex",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find calls of the classes, tests for them, and other uses."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            name = public_name(module.names.qualified(node) or "")
            if name not in COUNTERPARTS or not is_read(node):
                continue
            parent = module.parents[node]
            if module.names.is_rebound(node):
                yield self.already_portable(
                    module, node, name, _SAID, "stays: the file gives the name another class too"
                )
            elif is_optional(module, node):
                yield self._optional(module, node, name)
            elif isinstance(parent, ast.Call) and parent.func is node:
                yield self._call(module, parent, name)
            else:
                yield self._replace_reference(module, node, name)

    def _optional(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Leave a class that the file only has where apex is installed: the trainings there keep it."""
        said = "is used where apex is installed; the file goes on without it"
        if _is_asked(module, node):
            return self.already_portable(module, node, name, said, "stays: the file tests for it")
        instead = COUNTERPARTS[name][0]
        shown = "".join(f" (with apex's {each}={value})" for each, value in instead.defaults.items())
        advice = f"elsewhere, choose {instead.name}{shown}, or bind it to the name where the import fails"
        return self.undecided(module, node, name, said, advice)

    def _call(self, module: Module, call: ast.Call, name: str) -> Finding:
        """Replace the class by its equivalent for these arguments."""
        counterpart = next((each for each in COUNTERPARTS[name] if _fits(each, call)), None)
        if counterpart is None:
            return self.needs_manual_change(
                module, call, name, "has arguments that PyTorch's class lacks", _ADVICE
            )
        draft = Draft(module).replace(call.func, counterpart.name)
        _convert_arguments(draft, counterpart, call)
        return self.automatic_change(call, name, _SAID, f"becomes {counterpart.name}", draft)

    def _replace_reference(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Replace the class in a test for it; how another use calls it is not known here."""
        known = COUNTERPARTS[name]
        if len(known) > 1 or not is_type_test(module, node):
            return self.undecided(module, node, name, "is used other than by a call", _ADVICE)
        draft = Draft(module).replace(node, known[0].name)
        return self.automatic_change(node, name, _SAID, f"becomes {known[0].name}", draft)


_SAID = "has a counterpart in PyTorch"


def _is_asked(module: Module, node: ast.expr) -> bool:
    """Whether a node runs on a condition about its name: ``if FusedAdam is not None:``."""
    tests = (each.test for each in conditions(module, node))
    names = {each.id for test in tests for each in ast.walk(test) if isinstance(each, ast.Name)}
    return root_of(node) in names


def _fits(counterpart: Counterpart, call: ast.Call) -> bool:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    if starred or len(call.args) > counterpart.positional or any(not each.arg for each in call.keywords):
        return False
    given = {each.arg or "": ast.unparse(each.value) for each in call.keywords}
    if "adam_w_mode" in counterpart.dropped:  # False must be explicit
        given.setdefault("adam_w_mode", "True")
    unknown = given.keys() - counterpart.same - counterpart.dropped.keys()
    agree = (not must or given.get(name, must) == must for name, must in counterpart.dropped.items())
    return not unknown and all(agree)


def _convert_arguments(draft: Draft, counterpart: Counterpart, call: ast.Call) -> None:
    """Drop arguments without effect, and add apex's defaults, the first in the place of a dropped one."""
    dropped = [each for each in call.keywords if each.arg not in counterpart.same]
    given = {each.arg for each in call.keywords}
    given |= set(_SHAPE_ORDER[: len(call.args)]) if "normalized_shape" in counterpart.same else set()
    added = [f"{name}={value}" for name, value in counterpart.defaults.items() if name not in given]
    if dropped and added:
        instead = dropped.pop(0)
        draft.swap(call, draft.module.start(instead), draft.module.end(instead), "{new}", new=added.pop(0))
    draft.remove_items([*call.args, *call.keywords], dropped)
    for each in added:
        draft.argument(call, "{new}", new=each)


_SHAPE_ORDER = ("normalized_shape", "eps")
