"""Optimizers and normalizations of apex with equivalents in PyTorch."""

from collections.abc import Sequence
from typing import NamedTuple

import libcst as cst

from isthmus.migrate.convert.arguments import keyword
from isthmus.migrate.convert.rule import Rule


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

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the called name."""
        if self._known(node) is not None:
            self.claim(node.func)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace the class by its equivalent for these arguments."""
        name = self._known(original_node)
        if name is None:
            return updated_node
        counterpart = next((each for each in COUNTERPARTS[name] if _fits(each, original_node)), None)
        if counterpart is None:
            self.left(original_node, name, "has arguments that PyTorch's class lacks", _ADVICE)
            return updated_node
        self.replaced(original_node.func)
        self.note(original_node, f"`{name}` becomes `{counterpart.name}`")
        return updated_node.with_changes(
            func=self.expression(counterpart.name), args=_arguments(counterpart, updated_node)
        )

    def _known(self, node: cst.Call) -> str | None:
        names = (_public(name) for name in self.qualified(node.func))
        return next((name for name in names if name in COUNTERPARTS), None)


def _public(name: str) -> str:
    """``apex.normalization.fused_layer_norm.FusedLayerNorm`` is ``apex.normalization.FusedLayerNorm``."""
    parts = name.split(".")
    return ".".join([*parts[:2], parts[-1]])


def _fits(counterpart: Counterpart, call: cst.Call) -> bool:
    positional = [each for each in call.args if each.keyword is None and not each.star]
    if len(positional) > counterpart.positional or any(each.star for each in call.args):
        return False
    given = {each.keyword.value: _text(each.value) for each in call.args if each.keyword is not None}
    if "adam_w_mode" in counterpart.dropped:  # False must be explicit
        given.setdefault("adam_w_mode", "True")
    unknown = given.keys() - counterpart.same - counterpart.dropped.keys()
    agree = (not must or given.get(name, must) == must for name, must in counterpart.dropped.items())
    return not unknown and all(agree)


def _arguments(counterpart: Counterpart, call: cst.Call) -> list[cst.Arg]:
    kept = [each for each in call.args if each.keyword is None or each.keyword.value in counterpart.same]
    given = {each.keyword.value for each in kept if each.keyword is not None}
    positional = len(kept) - len(given)
    order = ("normalized_shape", "eps") if "normalized_shape" in counterpart.same else ()
    given |= set(order[:positional])
    added = [
        keyword(name, cst.parse_expression(value))
        for name, value in counterpart.defaults.items()
        if name not in given
    ]
    return _separated([*kept, *added], call.args)


def _separated(new: list[cst.Arg], old: Sequence[cst.Arg]) -> list[cst.Arg]:
    """The new arguments with the commas and line breaks of the old ones."""
    comma = old[-2].comma if len(old) > 1 else cst.MaybeSentinel.DEFAULT
    inner = [
        each if each is not old[-1] and each in old else each.with_changes(comma=comma) for each in new[:-1]
    ]
    last = new[-1].with_changes(comma=old[-1].comma, whitespace_after_arg=old[-1].whitespace_after_arg)
    return [*inner, last]


def _text(node: cst.BaseExpression) -> str:
    return cst.Module([]).code_for_node(node)
