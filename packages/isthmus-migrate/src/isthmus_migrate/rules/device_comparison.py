"""Tests for CUDA: ``device.type == "cuda"``, ``"cuda" in str(device)``, ``device.startswith("cuda")``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules import comparison_edits
from isthmus_migrate.rules.device_branches import find_decided
from isthmus_migrate.rules.device_choice import compares_device
from isthmus_migrate.rules.draft import AND, Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.cuda_branches import is_asserted, stays
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.packed_sequences import is_packed
from isthmus_migrate.source.strings import is_cuda, names_cuda, text
from isthmus_migrate.source.verdicts import Use, Verdict, place_of

_REMEDY = "rewrite the test for the device in use"
_STAYS = "guards code for CUDA, and stays a test for CUDA"
_BECOMES = "becomes a test for the accelerator in use"
_NOT_SHOWN = Verdict(Use.UNKNOWN, False, "has a value that is not shown")
_OWN_IS_CUDA = re.compile(r"\.is_cuda\s*=[^=]|def is_cuda\b|^\s+is_cuda\s*[:=]", re.MULTILINE)


class DeviceComparison(Rule):
    """Tests for CUDA become tests for the accelerator in use, where the data flow shows that a device is tested."""

    code = "IM119"
    name = "device-comparison"
    summary = "tests for CUDA become tests for the accelerator in use; those in front of code for CUDA stay"
    before = 'if x.device.type == "cuda" or y.is_cuda:'
    after = 'if x.device.type != "cpu" or y.device.type != "cpu":'
    words = ("is_cuda", '"cuda', "'cuda")
    order = 60

    def find(self, module: Module) -> Iterator[Finding]:
        """Find comparisons, ``startswith`` and ``is_cuda``."""
        for node in module.of(ast.Compare):
            if (node not in module.claimed and any(map(names_cuda, _operands(node)))) or compares_device(
                module, node
            ):
                yield from self._comparison(module, node)
        for call in module.of(ast.Call):
            if isinstance(call.func, ast.Attribute) and _asks_start(call):
                yield from self._starts(module, call, call.func.value)
        for attribute in module.of(ast.Attribute):
            if attribute.attr == "is_cuda" and is_read(attribute):
                yield self._is_cuda(module, attribute)

    # ---- comparisons ----------------------------------------------------------------------------------------
    def _comparison(self, module: Module, node: ast.Compare) -> Iterator[Finding]:
        own = f"{module.device}.type"
        if own in map(ast.unparse, (node.left, *node.comparators)) and not module.has_own_choice:
            module.claimed.update(ast.walk(node))  # written by an earlier conversion
            return
        strings = [each for each in _operands(node) if names_cuda(each)]
        verdict = _verdict(module, node)
        module.claimed.update(strings)
        subject = f"`{_short_source(module, node)}`"
        if kept := self._staying_finding(module, node, verdict, "compares words, not a device"):
            yield kept
        elif (draft := self._draft_comparison(module, node)) is None or not _sliced(draft, node):
            yield self.needs_manual_change(
                module, node, subject, "tests for CUDA in a way that is not converted", _REMEDY
            )
        else:
            module.claimed.update(_operands(node))
            yield self.automatic_change(node, subject, "tests for CUDA", _BECOMES, draft, verdict.why)

    def _staying_finding(self, module: Module, node: ast.expr, verdict: Verdict, word: str) -> Finding | None:
        """Return the finding of a test that stays; None if it is to be converted.

        Args:
            module: the module.
            node: the test.
            verdict: what is tested.
            word: what the test does if what is tested is not a device.
        """
        subject = f"`{_short_source(module, node)}`"
        if verdict.use is Use.WORD:
            return self.already_portable(module, node, subject, word, "stays")
        if verdict.use is not Use.DEVICE or not verdict.certain:
            return self.undecided(module, node, subject, f"may test a device: {verdict.why}", _REMEDY)
        if stays(module, node):
            return self.already_portable(module, node, subject, _STAYS, "stays")
        return find_decided(self, module, node, subject)

    def _draft_comparison(self, module: Module, node: ast.Compare) -> Draft | None:
        """Return the edits of a comparison; None if there is no form for it."""
        if any(_is_test(each) for each in _operands(node)):
            return None
        if compares_device(module, node):
            return comparison_edits.devices(module, node)
        if all(isinstance(each, ast.Eq) for each in node.ops):
            return comparison_edits.replace_equality(module, node)
        if len(node.ops) != 1:
            return None
        operator, left, right = node.ops[0], node.left, node.comparators[0]
        if isinstance(operator, ast.NotEq):
            return comparison_edits.replace_inequality(module, node)
        if not isinstance(operator, ast.In | ast.NotIn):
            return None
        if is_cuda(left):
            return comparison_edits.replace_containment(module, node)
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            return comparison_edits.member(module, node, right)
        return None

    # ---- startswith -----------------------------------------------------------------------------------------
    def _starts(self, module: Module, call: ast.Call, owner: ast.expr) -> Iterator[Finding]:
        """``device.startswith("cuda")``."""
        verdict = module.around.flow.values.get(place_of(owner), _NOT_SHOWN)
        module.claimed.add(call.args[0])
        subject = f"`{_short_source(module, call)}`"
        if kept := self._staying_finding(module, call, verdict, "asks about a word, not a device"):
            yield kept
            return
        draft = Draft(module)
        draft.replace(call.args[0], "{type}" if text(call.args[0]) == "cuda" else "{type} + {q}:{q}")
        if not module.around.target and not is_asserted(module, call):
            draft.surround(call, "", " and {type} != {q}cpu{q}", AND)
        yield self.automatic_change(call, subject, "tests for CUDA", _BECOMES, draft, verdict.why)

    # ---- is_cuda --------------------------------------------------------------------------------------------
    def _is_cuda(self, module: Module, node: ast.Attribute) -> Finding:
        """``x.is_cuda``."""
        subject = f"`{_short_source(module, node)}`"
        if module.mentions(_OWN_IS_CUDA):
            return self.undecided(
                module, node, subject, "may be an attribute of a class of this file", _REMEDY
            )
        if stays(module, node):
            return self.already_portable(module, node, subject, _STAYS, "stays")
        if kept := find_decided(self, module, node, subject):
            return kept
        if is_packed(module, node.value) is None:
            said = "may be of a packed sequence, which has no attribute `device`"
            return self.undecided(module, node, subject, said, "test `.data.device.type` if it is one")
        return self.automatic_change(
            node, subject, "tests for CUDA", _BECOMES, comparison_edits.attribute(module, node)
        )


def _is_test(node: ast.expr) -> bool:
    """Whether a value is true or false, and never equal to a device."""
    return isinstance(node, ast.Compare | ast.BoolOp) or getattr(node, "attr", "") == "is_cuda"


def _sliced(draft: Draft, test: ast.Compare) -> bool:
    """Let ``device[:4] == "cuda"`` compare as many characters as the type in use has; False for any other slice."""
    for each in _operands(test):
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Slice):
            if ast.unparse(each.slice) not in (":4", "0:4"):
                return False
            draft.replace(each.slice.upper, "len({type})")  # type: ignore[arg-type]
    return True


def _asks_start(call: ast.Call) -> bool:
    starts = getattr(call.func, "attr", "") == "startswith" and len(call.args) == 1
    return starts and text(call.args[0]) in ("cuda", "cuda:")


_RANK = (Use.DEVICE, Use.BACKEND, Use.WORD, Use.UNKNOWN, Use.KEY)


def _operands(node: ast.Compare) -> list[ast.expr]:
    """Return the operands of a comparison, and the elements of those that are collections of literals."""
    found: list[ast.expr] = []
    for each in (node.left, *node.comparators):
        found += each.elts if isinstance(each, ast.Tuple | ast.List | ast.Set) else [each]
    return found


def _verdict(module: Module, node: ast.Compare) -> Verdict:
    """Return what the operands are that are not the strings; the surest of them."""
    values = module.around.flow.values
    others = [each for each in (node.left, *node.comparators) if not names_cuda(each)]
    found = [values[place_of(each)] for each in others if place_of(each) in values]
    ranked = sorted(found, key=lambda each: (_RANK.index(each.use), not each.certain))
    return ranked[0] if ranked else _NOT_SHOWN


def _short_source(module: Module, node: ast.expr) -> str:
    code = " ".join(module.code(node).split())
    return code if len(code) <= 60 else f"{code[:57]}..."
