"""Tests for CUDA: ``device.type == "cuda"``, ``"cuda" in str(device)``, ``device.startswith("cuda")``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.rules.device_choice import compares_device, makes_device
from isthmus.migrate.rules.draft import AND, COMPARISON, NOT, Draft
from isthmus.migrate.rules.rule import Rule, is_read
from isthmus.migrate.rules.strings import rename
from isthmus.migrate.source.conditions import stays
from isthmus.migrate.source.constants import is_own_type
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import is_cuda, names_cuda, text
from isthmus.migrate.source.verdicts import Use, Verdict, place_of

_REMEDY = "rewrite the test for the device in use"
_STAYS = "guards code for CUDA, and stays a test for CUDA"
_BECOMES = "becomes a test for the accelerator in use"
_NOT_SHOWN = Verdict(Use.UNKNOWN, False, "has a value that is not shown")
_OWN_IS_CUDA = re.compile(r"\.is_cuda\s*=[^=]|def is_cuda\b|^\s+is_cuda\s*[:=]", re.MULTILINE)
_PACKED = re.compile(r"PackedSequence|\bpack_(padded_)?sequence\b")


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
        if any(map(is_own_type, (node.left, *node.comparators))):
            module.claimed.update(ast.walk(node))  # written by an earlier conversion
            return
        strings = [each for each in _operands(node) if names_cuda(each)]
        verdict = _verdict(module, node)
        module.claimed.update(strings)
        subject = f"`{_short(module, node)}`"
        if kept := self._staying(module, node, verdict, "compares words, not a device"):
            yield kept
        elif (draft := self._converted(module, node)) is None:
            yield self.left(module, node, subject, "tests for CUDA in a way that is not converted", _REMEDY)
        else:
            module.claimed.update(_operands(node))
            yield self.changed(node, subject, "tests for CUDA", _BECOMES, draft, verdict.why)

    def _staying(self, module: Module, node: ast.expr, verdict: Verdict, word: str) -> Finding | None:
        """Return the finding of a test that stays; None if it is to be converted.

        Args:
            module: the module.
            node: the test.
            verdict: what is tested.
            word: what the test does if it is no device that is tested.
        """
        subject = f"`{_short(module, node)}`"
        if verdict.use is Use.WORD:
            return self.right(module, node, subject, word, "stays")
        if verdict.use is not Use.DEVICE or not verdict.certain:
            return self.unclear(module, node, subject, f"may test a device: {verdict.why}", _REMEDY)
        if stays(module, node):
            return self.right(module, node, subject, _STAYS, "stays")
        return None

    def _converted(self, module: Module, node: ast.Compare) -> Draft | None:
        """Return the edits of a comparison; None if there is no form for it."""
        if compares_device(module, node):
            return _devices(module, node)
        if all(isinstance(each, ast.Eq) for each in node.ops):
            return _equal(module, node)
        if len(node.ops) != 1:
            return None
        operator, left, right = node.ops[0], node.left, node.comparators[0]
        if isinstance(operator, ast.NotEq):
            return _unequal(module, node)
        if not isinstance(operator, ast.In | ast.NotIn):
            return None
        if is_cuda(left):
            return _contained(module, node, isinstance(operator, ast.NotIn))
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            return _member(module, node, right)
        return None

    # ---- startswith -----------------------------------------------------------------------------------------
    def _starts(self, module: Module, call: ast.Call, owner: ast.expr) -> Iterator[Finding]:
        """``device.startswith("cuda")``."""
        verdict = module.around.flow.values.get(place_of(owner), _NOT_SHOWN)
        module.claimed.add(call.args[0])
        subject = f"`{_short(module, call)}`"
        if kept := self._staying(module, call, verdict, "asks about a word, not a device"):
            yield kept
            return
        draft = Draft(module)
        draft.replace(call.args[0], "{type}" if text(call.args[0]) == "cuda" else "{type} + {q}:{q}")
        if not module.around.target:
            draft.surround(call, "", " and {type} != {q}cpu{q}", AND)
        yield self.changed(call, subject, "tests for CUDA", _BECOMES, draft, verdict.why)

    # ---- is_cuda --------------------------------------------------------------------------------------------
    def _is_cuda(self, module: Module, node: ast.Attribute) -> Finding:
        """``x.is_cuda``."""
        subject = f"`{_short(module, node)}`"
        if _OWN_IS_CUDA.search(module.text):
            return self.unclear(module, node, subject, "may be an attribute of a class of this file", _REMEDY)
        if stays(module, node):
            return self.right(module, node, subject, _STAYS, "stays")
        return self.changed(node, subject, "tests for CUDA", _BECOMES, _is_cuda_draft(module, node))


def _asks_start(call: ast.Call) -> bool:
    starts = getattr(call.func, "attr", "") == "startswith" and len(call.args) == 1
    return starts and text(call.args[0]) in ("cuda", "cuda:")


def _is_cuda_draft(module: Module, node: ast.Attribute) -> Draft:
    """Return the edits that make ``x.is_cuda`` a test for the device in use."""
    draft = Draft(module)
    is_packed = _PACKED.search(module.text) and "pack" in module.code(node.value)
    data = ".data" if is_packed else ""  # a PackedSequence has no attribute device
    dot = module.text.rindex(
        ".", module.end(node.value), module.end(node)
    )  # after the parentheses of the object
    draft.swap(node, dot, module.end(node), f"{data}.device.type")
    parent = module.parents[node]
    if module.around.target:
        return draft.surround(node, "", " == {type}", COMPARISON)
    if module.around.flow.others:
        return draft.surround(node, "", " == {type}" + _not_others(module), COMPARISON)
    if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
        draft.swap(parent, module.start(parent), module.start(node), "")
        return draft.surround(node, "", " == {q}cpu{q}", COMPARISON)
    return draft.surround(node, "", " != {q}cpu{q}", COMPARISON)


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


def _short(module: Module, node: ast.expr) -> str:
    code = " ".join(module.code(node).split())
    return code if len(code) <= 60 else f"{code[:57]}..."


def _is_device_type(module: Module, node: ast.expr) -> bool:
    """Whether an expression is the type of a device, ``x.device.type``, and no other kind of device is at hand."""
    return isinstance(node, ast.Attribute) and node.attr == "type" and not module.around.flow.others


def _not_others(module: Module) -> str:
    """Return the template of the end of ``node == DEVICE.type``: the device in use is not the CPU, nor another's."""
    if module.around.target:
        return ""
    if module.around.flow.others - {"meta"}:
        others = ", ".join(
            f"{{q}}{each}{{q}}" for each in ("cpu", *sorted(module.around.flow.others - {"meta"}))
        )
        return f" not in ({others})"
    return " != {q}cpu{q}"


def _equal(module: Module, node: ast.Compare) -> Draft:
    """``device.type == "cuda"``, ``"cuda" == device``, ``a == "cuda" == b``, ``device == "cuda:1"``."""
    draft = Draft(module)
    parts = [node.left, *node.comparators]
    strings = [each for each in parts if names_cuda(each)]
    for each in strings:
        rename(draft, each)
    if not all(map(is_cuda, strings)):
        return draft  # the CPU has no number
    other = next(each for each in parts if not names_cuda(each))
    if len(parts) == 2 and _is_device_type(module, other) and not module.around.target:
        return _simple(module, node, strings[0], "!=", "==")
    return draft.insert(node, module.end(node), _not_others(module))


def _simple(module: Module, node: ast.Compare, string: ast.expr, operator: str, old: str) -> Draft:
    """Write a test as one against the CPU."""
    draft = Draft(module)
    quote = module.code(string)[-1]
    start, end = module.start(string), module.end(string)
    draft.swap(string, start, end, f"{quote}cpu{quote}")
    first = module.end(node.left)
    place = module.text.index(old, first)
    return draft.swap(node, place, place + len(old), operator)


def _unequal(module: Module, node: ast.Compare) -> Draft | None:
    """``device.type != "cuda"``."""
    parts = [node.left, node.comparators[0]]
    string = next(each for each in parts if names_cuda(each))
    other = next(each for each in parts if each is not string)
    draft = Draft(module)
    if not is_cuda(string):
        rename(draft, string)
        return draft
    if _is_device_type(module, other) and not module.around.target:
        return _simple(module, node, string, "==", "!=")
    if string is node.left:
        return None
    draft.replace(string, "{type}")
    if not module.around.target:
        draft.negated(node, _not_others(module))
    return draft


def _contained(module: Module, node: ast.Compare, is_negative: bool) -> Draft:
    """``"cuda" in str(device)``."""
    draft = Draft(module)
    if module.around.target:
        return draft.replace(node.left, "{type}")
    draft.replace(node.left, "{q}cpu{q} != {type}")
    if is_negative:
        start, end = module.end(node.left), module.start(node.comparators[0])
        place = module.text.index("not", start, end)
        draft.swap(node, place, module.text.index("in", place, end), "")
        draft.surround(node, "not (", ")", NOT)
    return draft


def _member(module: Module, node: ast.Compare, types: ast.Tuple | ast.List | ast.Set) -> Draft | None:
    """``device.type in ("cuda", "cpu")``."""
    names = [text(each) for each in types.elts]
    draft = Draft(module)
    for each in types.elts:
        if names_cuda(each) and not rename(draft, each):
            return None
    if "cpu" in names or module.around.target:
        return draft
    if isinstance(node.ops[0], ast.NotIn):
        return None
    return draft.insert(node, module.start(node), "{q}cpu{q} != ")


def _devices(module: Module, node: ast.Compare) -> Draft:
    """``x.device == torch.device("cuda")``."""
    draft = Draft(module)
    for each in (node.left, node.comparators[0]):
        if makes_device(module, each, is_cuda):
            draft.replace(each, "{device}")
        elif names_cuda(each):
            rename(draft, each)
    if module.around.target:
        return draft
    end = " != torch.device({q}cpu{q})"
    if isinstance(node.ops[0], ast.Eq):
        return draft.insert(node, module.end(node), end)
    return draft.negated(node, end)
