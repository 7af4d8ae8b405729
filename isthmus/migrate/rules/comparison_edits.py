"""Edits that make a test for CUDA one for the accelerator in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from isthmus.migrate.rules.device_choice import makes_device
from isthmus.migrate.rules.draft import AND, COMPARISON, OR, Draft
from isthmus.migrate.rules.strings import rename
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import is_cuda, names_cuda, text

_PACKED = re.compile(r"PackedSequence|\bpack_(padded_)?sequence\b")


def attribute(module: Module, node: ast.Attribute) -> Draft:
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
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if negated:
        draft.swap(parent, module.start(parent), module.start(node), "")
    return draft.surround(node, "", _excluded(module, equal=negated), COMPARISON)


def _is_device_type(node: ast.expr) -> bool:
    """Whether an expression is the type of a device, ``x.device.type``."""
    return isinstance(node, ast.Attribute) and node.attr == "type"


def _is_plain(module: Module, node: ast.expr) -> bool:
    """Whether an expression is a name with attributes, not of PyTorch, which can be written twice."""
    if (module.names.qualified(node) or "").startswith("torch."):
        return False
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _excluded(module: Module, equal: bool = False) -> str:
    """Return the template of a test that a type is not the CPU's, nor one that the file tests for apart.

    Args:
        module: the module.
        equal: for the opposite.
    """
    return _unlike(sorted(module.around.flow.others), equal)


def _unlike(others: list[str], equal: bool) -> str:
    if not others:
        return f" {'==' if equal else '!='} {{q}}cpu{{q}}"
    types = ", ".join(f"{{q}}{each}{{q}}" for each in ("cpu", *others))
    return f"{' in' if equal else ' not in'} ({types})"


def _also(draft: Draft, test: ast.Compare, subject: str, known: Collection[str] = ()) -> Draft:
    """Let a comparison with the device constant be false where it was: on the CPU, and on what the file tests apart.

    Args:
        draft: the draft.
        test: the comparison.
        subject: source of the type that is compared.
        known: types that it is compared with too.
    """
    others = sorted(draft.module.around.flow.others.difference(known, ("meta",)))
    if draft.module.around.target:
        return draft
    if isinstance(test.ops[0], ast.NotEq | ast.NotIn):
        return draft.surround(test, "", " or {subject}" + _unlike(others, True), OR, subject=subject)
    return draft.surround(test, "", " and {subject}" + _unlike(others, False), AND, subject=subject)


def equal(module: Module, node: ast.Compare) -> Draft:
    """``device.type == "cuda"``, ``"cuda" == device``, ``a == "cuda" == b``, ``device == "cuda:1"``."""
    parts = [node.left, *node.comparators]
    strings = [each for each in parts if names_cuda(each)]
    other = next(each for each in parts if not names_cuda(each))
    if len(parts) == 2 and _is_simple(module, strings[0], other):
        return _simple(module, node, strings[0])
    draft = Draft(module)
    for each in strings:
        rename(draft, each)
    if not all(map(is_cuda, strings)) or module.around.target:
        return draft  # the CPU has no number
    if _is_plain(module, other):
        return _also(draft, node, module.code(other))
    return draft.insert(node, module.end(node), _excluded(module))


def _is_simple(module: Module, string: ast.expr, other: ast.expr) -> bool:
    """Whether a test is one of a device's type, ``x.device.type == "cuda"``, without the device constant after it."""
    is_last = module.start(string) > module.start(other) or not module.around.flow.others
    return is_cuda(string) and _is_device_type(other) and is_last and not module.around.target


def _simple(module: Module, node: ast.Compare, string: ast.expr) -> Draft:
    """Write a test of a device's type as one against the CPU."""
    is_equal = isinstance(node.ops[0], ast.Eq)
    operator = "==" if is_equal else "!="
    place = module.text.index(operator, module.end(node.left))
    draft = Draft(module)
    if module.around.flow.others:
        end = _excluded(module, equal=not is_equal).lstrip()
        return draft.swap(node, place, module.end(string), end)
    quote = module.code(string)[-1]
    draft.swap(string, module.start(string), module.end(string), f"{quote}cpu{quote}")
    return draft.swap(node, place, place + len(operator), "!=" if is_equal else "==")


def unequal(module: Module, node: ast.Compare) -> Draft | None:
    """``device.type != "cuda"``."""
    parts = [node.left, node.comparators[0]]
    string = next(each for each in parts if names_cuda(each))
    other = next(each for each in parts if each is not string)
    draft = Draft(module)
    if not is_cuda(string):
        rename(draft, string)
        return draft
    if _is_simple(module, string, other):
        return _simple(module, node, string)
    draft.replace(string, "{type}")
    if _is_plain(module, other) or module.around.target:
        return _also(draft, node, module.code(other))
    return None if string is node.left else draft.negated(node, _excluded(module))


def contained(module: Module, node: ast.Compare) -> Draft:
    """``"cuda" in str(device)``, ``"cuda" in device.type``."""
    if not module.around.target and _is_device_type(node.comparators[0]):
        operator = _excluded(module, equal=isinstance(node.ops[0], ast.NotIn))
        tested = module.code(node.comparators[0])
        return Draft(module).replace(node, "{tested}" + operator, COMPARISON, tested=tested)
    draft = Draft(module).replace(node.left, "{type}")
    if module.around.target:
        return draft
    if isinstance(node.ops[0], ast.NotIn):
        return draft.surround(node, "", " or {type} == {q}cpu{q}", OR)
    return draft.surround(node, "", " and {type} != {q}cpu{q}", AND)


def member(module: Module, node: ast.Compare, types: ast.Tuple | ast.List | ast.Set) -> Draft | None:
    """``device.type in ("cuda", "cpu")``."""
    names = [text(each) for each in types.elts]
    draft = Draft(module)
    for each in types.elts:
        if names_cuda(each) and not rename(draft, each):
            return None
    if "cpu" in names or module.around.target:
        return draft
    if isinstance(node.ops[0], ast.In) and _is_plain(module, node.left):
        return _also(draft, node, module.code(node.left), names)
    return None


def devices(module: Module, node: ast.Compare) -> Draft:
    """``x.device == torch.device("cuda")``."""
    draft = Draft(module)
    for each in (node.left, node.comparators[0]):
        if makes_device(module, each, is_cuda):
            draft.replace(each, "{device}")
        elif names_cuda(each):
            rename(draft, each)
    other = next(each for each in (node.left, node.comparators[0]) if not makes_device(module, each, is_cuda))
    if _is_plain(module, other):
        return _also(draft, node, f"{module.code(other)}.type")
    if module.around.target:
        return draft
    end = " != torch.device({q}cpu{q})"
    if isinstance(node.ops[0], ast.Eq):
        return draft.insert(node, module.end(node), end)
    return draft.negated(node, end)
