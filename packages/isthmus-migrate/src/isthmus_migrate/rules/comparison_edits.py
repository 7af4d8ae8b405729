"""Edits that make a test for CUDA one for the accelerator in use."""

from __future__ import annotations

import ast
from collections.abc import Collection

from isthmus_migrate.rules.device_choice import makes_device
from isthmus_migrate.rules.draft import AND, COMPARISON, OR, Draft
from isthmus_migrate.rules.strings import rename
from isthmus_migrate.source import mps
from isthmus_migrate.source.cuda_branches import is_asserted
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.packed_sequences import is_packed
from isthmus_migrate.source.strings import is_cuda, names_cuda, text

_OF_TENSORS = frozenset({"dtype", "ndim", "requires_grad", "shape"})


def attribute(module: Module, node: ast.Attribute) -> Draft:
    """Return the edits that make ``x.is_cuda`` a test for the device in use."""
    draft = Draft(module)
    data = ".data" if is_packed(module, node.value) else ""  # a PackedSequence has no attribute device
    dot = module.text.rindex(
        ".", module.end(node.value), module.end(node)
    )  # after the parentheses of the object
    draft.swap(node, dot, module.end(node), f"{data}.device.type")
    parent = module.parents[node]
    if module.around.target or is_asserted(module, node):
        return draft.surround(node, "", " == {type}", COMPARISON)
    negated = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if negated:
        draft.swap(parent, module.start(parent), module.start(node), "")
    return draft.surround(node, "", _exclusion_template(module, node, equal=negated), COMPARISON)


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


def _exclusion_template(module: Module, test: ast.expr, equal: bool = False) -> str:
    """Return the template of a test that a type is not the CPU's, nor one that stays apart.

    Args:
        module: the module.
        test: the test for CUDA.
        equal: for the opposite.
    """
    return _unlike(sorted(mps.device_types_compared_false(module, test)), equal)


def _unlike(others: list[str], equal: bool) -> str:
    if not others:
        return f" {'==' if equal else '!='} {{q}}cpu{{q}}"
    types = ", ".join(f"{{q}}{each}{{q}}" for each in ("cpu", *others))
    return f"{' in' if equal else ' not in'} ({types})"


def _also(draft: Draft, test: ast.Compare, subject: str, known: Collection[str] = ()) -> Draft:
    """Let a comparison with the device constant be false where it was: on the CPU, and on what stays apart.

    Args:
        draft: the draft.
        test: the comparison.
        subject: source of the type that is compared.
        known: types that it is compared with too.
    """
    if draft.module.around.target or _is_asserted(draft.module, test):
        return draft
    others = sorted(mps.device_types_compared_false(draft.module, test).difference(known, ("meta",)))
    if isinstance(test.ops[0], ast.NotEq | ast.NotIn):
        return draft.surround(test, "", " or {subject}" + _unlike(others, True), OR, subject=subject)
    return draft.surround(test, "", " and {subject}" + _unlike(others, False), AND, subject=subject)


def replace_equality(module: Module, node: ast.Compare) -> Draft:
    """``device.type == "cuda"``, ``"cuda" == device``, ``a == "cuda" == b``, ``device == "cuda:1"``."""
    parts = [node.left, *node.comparators]
    strings = [each for each in parts if names_cuda(each)]
    other = next(each for each in parts if not names_cuda(each))
    if len(parts) == 2 and _is_simple(module, node, strings[0], other):
        return _compare_with_cpu(module, node, strings[0])
    draft = Draft(module)
    for each in strings:
        rename(draft, each)
    if not all(map(is_cuda, strings)) or module.around.target or is_asserted(module, node):
        return draft  # the CPU has no number
    if _is_plain(module, other):
        return _also(draft, node, module.code(other))
    return draft.insert(node, module.end(node), _exclusion_template(module, node))


def _is_simple(module: Module, test: ast.Compare, string: ast.expr, other: ast.expr) -> bool:
    """Whether a test is one of a device's type, ``x.device.type == "cuda"``, without the device constant after it."""
    is_last = module.start(string) > module.start(other) or not mps.device_types_compared_false(module, test)
    is_free = not module.around.target and not _is_asserted(module, test)
    return is_cuda(string) and _is_device_type(other) and is_last and is_free


def _is_asserted(module: Module, test: ast.Compare) -> bool:
    """Whether an assertion requires that a test for CUDA is true: the device in use is what it may require."""
    return isinstance(test.ops[0], ast.Eq | ast.In) and is_asserted(module, test)


def _compare_with_cpu(module: Module, node: ast.Compare, string: ast.expr) -> Draft:
    """Write a test of a device's type as one against the CPU."""
    is_equal = isinstance(node.ops[0], ast.Eq)
    operator = "==" if is_equal else "!="
    place = module.text.index(operator, module.end(node.left))
    draft = Draft(module)
    if mps.device_types_compared_false(module, node):
        end = _exclusion_template(module, node, equal=not is_equal).lstrip()
        return draft.swap(node, place, module.end(string), end)
    quote = module.code(string)[-1]
    draft.swap(string, module.start(string), module.end(string), f"{quote}cpu{quote}")
    return draft.swap(node, place, place + len(operator), "!=" if is_equal else "==")


def replace_inequality(module: Module, node: ast.Compare) -> Draft | None:
    """``device.type != "cuda"``."""
    parts = [node.left, node.comparators[0]]
    string = next(each for each in parts if names_cuda(each))
    other = next(each for each in parts if each is not string)
    draft = Draft(module)
    if not is_cuda(string):
        rename(draft, string)
        return draft
    if _is_simple(module, node, string, other):
        return _compare_with_cpu(module, node, string)
    draft.replace(string, "{type}")
    if _is_plain(module, other) or module.around.target:
        return _also(draft, node, module.code(other))
    return None if string is node.left else draft.negated(node, _exclusion_template(module, node))


def replace_containment(module: Module, node: ast.Compare) -> Draft:
    """``"cuda" in str(device)``; that of a tensor becomes a test of its device's type."""
    draft = Draft(module)
    shown = node.comparators[0]
    if (device := _device_of_tensor(module, shown)) is not None:
        kind = f"{module.code(device)}.type"
        equal = isinstance(node.ops[0], ast.NotIn)
        own = module.around.target or _is_asserted(module, node)
        end = f" {'!=' if equal else '=='} {{type}}" if own else _exclusion_template(module, node, equal)
        return draft.replace(node, "{kind}" + end, COMPARISON, kind=kind)
    if not module.around.target and not _is_asserted(module, node) and _is_device_type(shown):
        operator = _exclusion_template(module, node, isinstance(node.ops[0], ast.NotIn))
        return draft.replace(node, "{tested}" + operator, COMPARISON, tested=module.code(shown))
    draft.replace(node.left, "{type}")
    if module.around.target or _is_asserted(module, node):
        return draft
    if isinstance(node.ops[0], ast.NotIn):
        return draft.surround(node, "", " or {type} == {q}cpu{q}", OR)
    return draft.surround(node, "", " and {type} != {q}cpu{q}", AND)


def _device_of_tensor(module: Module, shown: ast.expr) -> ast.expr | None:
    """Return the device in ``str(x.device)`` of a tensor; None for other expressions.

    A tensor is what its function asks for its shape, or what is an argument with a number, ``args[0]``.
    """
    node = shown.args[0] if isinstance(shown, ast.Call) and shown.args else shown
    if ast.unparse(shown) != f"str({ast.unparse(node)})" or not isinstance(node, ast.Attribute):
        return None
    return node if node.attr == "device" and _is_tensor(module, node) else None


def _is_tensor(module: Module, node: ast.Attribute) -> bool:
    """Whether a function shows that what has an attribute is a tensor."""
    if isinstance(node.value, ast.Subscript):
        return isinstance(getattr(node.value.slice, "value", None), int)  # args[0].device
    function = module.nearest(node, ast.FunctionDef) or module.tree
    owner = ast.unparse(node.value)
    asked = (
        each for each in ast.walk(function) if isinstance(each, ast.Attribute) and each.attr in _OF_TENSORS
    )
    return any(ast.unparse(each.value) == owner for each in asked)


def member(module: Module, node: ast.Compare, types: ast.Tuple | ast.List | ast.Set) -> Draft | None:
    """``device.type in ("cuda", "cpu")``."""
    names = [text(each) for each in types.elts]
    draft = Draft(module)
    for each in types.elts:
        if names_cuda(each) and not rename(draft, each):
            return None
    if "cpu" in names or module.around.target or _is_asserted(module, node):
        return draft
    if isinstance(node.ops[0], ast.In) and _is_plain(module, node.left):
        return _also(draft, node, module.code(node.left), names)
    return None


def _only_moves(module: Module, test: ast.Compare, device: ast.expr) -> bool:
    """Whether a test only stands in front of ``x = x.to(torch.device("cuda"))``, with ``x.device`` compared."""
    branch = module.parents[test]
    if not isinstance(branch, ast.If) or len(branch.body) != 1 or branch.orelse:
        return False
    moved, call = ast.unparse(device).removesuffix(".device"), getattr(branch.body[0], "value", None)
    if not isinstance(test.ops[0], ast.NotEq) or not isinstance(call, ast.Call) or len(call.args) != 1:
        return False
    to = is_cuda(call.args[0]) or makes_device(module, call.args[0], is_cuda)
    return to and not call.keywords and ast.unparse(call.func) == f"{moved}.to"


def devices(module: Module, node: ast.Compare) -> Draft:
    """``x.device == torch.device("cuda")``."""
    draft = Draft(module)
    for each in (node.left, node.comparators[0]):
        if makes_device(module, each, is_cuda):
            draft.replace(each, "{device}")
        elif names_cuda(each):
            rename(draft, each)
    others = [each for each in (node.left, node.comparators[0]) if not makes_device(module, each, is_cuda)]
    if not others:
        return draft
    (other,) = others
    if _only_moves(module, node, other):
        return draft
    if _is_plain(module, other):
        return _also(draft, node, f"{module.code(other)}.type")
    if module.around.target or _is_asserted(module, node):
        return draft
    end = " != torch.device({q}cpu{q})"
    if isinstance(node.ops[0], ast.Eq):
        return draft.insert(node, module.end(node), end)
    return draft.negated(node, end)
