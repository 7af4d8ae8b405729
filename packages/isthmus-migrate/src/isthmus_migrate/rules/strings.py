"""Replacement of strings that name a CUDA device."""

from __future__ import annotations

import ast
import re

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_PLAIN = re.compile(r"""[uU]?('[^'\\\n]*'|"[^"\\\n]*")""")
_SIMPLE = (ast.Name, ast.Attribute, ast.Constant)


def is_plain(module: Module, node: ast.AST) -> bool:
    """Whether a string is written as one literal in one pair of quotation marks."""
    return _PLAIN.fullmatch(module.code(node)) is not None


def rename(draft: Draft, node: ast.expr) -> bool:
    """Replace ``cuda`` in a string that names a device by the device constant's type.

    Returns:
        Whether the string is written in a way that is understood; if not, there is no edit.
    """
    module = draft.module
    if isinstance(node, ast.Constant):
        if not is_plain(module, node):
            return False
        number = text(node).removeprefix("cuda")
        if number:
            quote = module.code(node)[-1]
            draft.swap(
                node,
                module.start(node),
                module.end(node),
                f"f{quote}{{type}}{{number}}{quote}",
                number=number,
            )
            _with_braces(draft)
        else:
            draft.replace(node, "{type}")
        return True
    if isinstance(node, ast.JoinedStr):
        start = module.text.index("cuda:", module.start(node))
        draft.swap(node, start, start + len("cuda"), "{type}")
        _with_braces(draft)
        return True
    return _operation(draft, node) if isinstance(node, ast.BinOp) else _format(draft, node)


def _with_braces(draft: Draft) -> None:
    """Put the device constant of the last edit, which is in an f-string, in braces."""
    edit = draft.edits[-1]
    constant = f"{draft.module.device}.type"
    draft.edits[-1] = edit._replace(text=edit.text.replace(constant, f"{{{constant}}}"))


def _operation(draft: Draft, node: ast.BinOp) -> bool:
    """``"cuda:" + str(rank)``, ``"cuda:%d" % rank``."""
    module = draft.module
    number: ast.expr | None = _sole_element(node.right)
    if not is_plain(module, node.left):
        return False
    if isinstance(node.op, ast.Add):
        is_str = (
            isinstance(number, ast.Call) and isinstance(number.func, ast.Name) and number.func.id == "str"
        )
        number = number.args[0] if is_str and len(number.args) == 1 else None  # type: ignore[union-attr]
    elif not isinstance(number, _SIMPLE) or "%s" in text(node.left):
        number = None
    if number is not None and _fits_in_braces(module, number):
        _collapse(draft, node, node.left, number)
        return True
    rest = text(node.left).removeprefix("cuda")
    quote = module.code(node.left)[-1]
    start, end = module.start(node.left), module.end(node.left)
    draft.swap(node.left, start, end, f"f{quote}{{type}}{{rest}}{quote}", rest=rest)
    _with_braces(draft)
    return True


def _format(draft: Draft, node: ast.expr) -> bool:
    """``"cuda:{}".format(rank)``."""
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    module, owner, number = draft.module, node.func.value, node.args[0]
    if not is_plain(module, owner):
        return False
    if text(owner) in ("cuda:{}", "cuda:{0}") and _fits_in_braces(module, number):
        _collapse(draft, node, owner, number)
        return True
    start = module.start(owner)
    draft.swap(
        owner, start, module.end(owner), "({type} + {q}{rest}{q})", rest=text(owner).removeprefix("cuda")
    )
    return True


def _collapse(draft: Draft, node: ast.expr, string: ast.expr, number: ast.expr) -> None:
    """Write a string and its number as one f-string; changes inside the number stay."""
    module = draft.module
    quote = module.code(string)[-1]
    draft.swap(node, module.start(node), module.start(number), f"f{quote}{{type}}:{{open}}", open="{")
    _with_braces(draft)
    draft.swap(node, module.end(number), module.end(node), f"{{close}}{quote}", close="}")


def _sole_element(node: ast.expr) -> ast.expr:
    """Return the element of a 1-tuple."""
    return node.elts[0] if isinstance(node, ast.Tuple) and len(node.elts) == 1 else node


def _fits_in_braces(module: Module, node: ast.expr) -> bool:
    """Whether an expression can be in an f-string with any quotes."""
    if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Tuple | ast.GeneratorExp | ast.Starred):
        return False
    return not re.search(r"[\"'{}\\\n#]", module.code(node))
