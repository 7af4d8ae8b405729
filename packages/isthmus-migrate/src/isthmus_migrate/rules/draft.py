"""A draft of a change: edits at nodes of a module, written as templates of source."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence

from isthmus_migrate.source import versions
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.module import Module

_STANDARD = re.compile(r"\b(collections|contextlib|functools|os)\.")

# Precedence of the source that replaces an expression, from loosest.
TERNARY, OR, AND, NOT, COMPARISON, SUM, ATOM = 1, 2, 3, 4, 5, 6, 10


class Draft:
    """The edits of one change.

    Templates may contain ``{device}`` (the device constant), ``{type}`` (its type, a string), ``{module}`` (the
    device's module), ``{q}`` (a quotation mark that is right at the node), ``torch``, ``torch.distributed``,
    ``torch.nn`` and ``torch.optim`` for these under the file's names for them, and names in braces of further parts,
    given as keyword arguments, which are inserted as they are.

    Args:
        module: the module to edit.

    Attributes:
        module: the module to edit.
        edits: the edits so far.
        is_misplaced: whether an edit was in an f-string at a position that is not certain, or cannot have a string.
        lacking: why the edits cannot be written for the PyTorch of the request, or "".
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.edits: list[Edit] = []
        self.is_misplaced = False
        self.lacking = ""

    @property
    def is_empty(self) -> bool:
        """Whether every edit leaves the text as it is."""
        text = self.module.text
        return all(text[each.start : each.end] == each.text and not each.guard for each in self.edits)

    def require(self, name: str) -> Draft:
        """Require a name of ``versions.SINCE`` that is in no template."""
        self.lacking = self.lacking or versions.find_missing(name, self.module.around.torch)
        return self

    @property
    def asks_for_device(self) -> bool:
        """Whether the edits use the device constant or ask for the accelerator."""
        return any("device" in each.needs or ".accelerator." in each.text + each.guard for each in self.edits)

    def replace(self, node: ast.expr, template: str, precedence: int = ATOM, **parts: str) -> Draft:
        """Replace an expression; parentheses are added where it needs them. Later rules skip what is inside it."""
        self.module.claimed.update(ast.walk(node))
        text, needs = self._write_template(node, template, parts)
        if needs_parentheses(self.module, node, precedence):
            text = f"({text})"
        self.edits.append(Edit(self.module.start(node), self.module.end(node), text, needs=needs))
        return self

    def swap(self, node: ast.AST, start: int, end: int, template: str, **parts: str) -> Draft:
        """Replace the text between two offsets; ``node`` is where it is, for the quotation marks."""
        text, needs = self._write_template(node, template, parts)
        self.edits.append(Edit(start, end, text, needs=needs))
        return self

    def insert(self, node: ast.AST, offset: int, template: str, **parts: str) -> Draft:
        """Insert text at an offset."""
        return self.swap(node, offset, offset, template, **parts)

    def insert_before(self, call: ast.Call, offset: int, template: str) -> Draft:
        """Insert text before an argument of a call and whatever is inserted around the argument."""
        text, needs = self._write_template(call, template, {})
        size = self.module.end(call) - self.module.start(call)
        self.edits.append(Edit(offset, offset, text, -size, needs))
        return self

    def surround(self, node: ast.expr, before: str, after: str, precedence: int, **parts: str) -> Draft:
        """Insert text around an expression, and parentheses around the whole where it needs them.

        Changes inside the expression stay.

        Args:
            node: the expression.
            before: template of the text before it.
            after: template of the text after it.
            precedence: of the result.
        """
        if needs_parentheses(self.module, node, precedence):
            before, after = f"({before}", f"{after})"
        size = self.module.end(node) - self.module.start(node)
        for template, offset, span in (
            (before, self.module.start(node), -size),
            (after, self.module.end(node), size),
        ):
            if template:
                text, needs = self._write_template(node, template, parts)
                self.edits.append(Edit(offset, offset, text, span, needs))
        return self

    def negated(self, test: ast.Compare, end: str) -> Draft:
        """Write ``a != b`` as ``not (a == b)``.

        Args:
            test: the comparison, with the one operator ``!=``.
            end: template of what follows ``b``, inside the parentheses.
        """
        place = self.module.text.index("!=", self.module.end(test.left))
        self.swap(test, place, place + len("!="), "==")
        return self.surround(test, "not (", f"{end})", NOT)

    def argument(self, call: ast.Call, template: str, **parts: str) -> Draft:
        """Add a last argument to a call."""
        if not self.module.is_placed(call):
            return self.swap(call, 0, 0, template, **parts)
        given = [*call.args, *(each.value for each in call.keywords)]
        if not given:
            return self.insert(call, self.module.end(call) - 1, template, **parts)
        last = max(given, key=self.module.end)
        end = self.module.end(last)
        while self.module.text[end : self.module.end(call) - 1].lstrip()[:1] == ")":  # f((x))
            end = self.module.text.index(")", end) + 1
        return self.insert(call, end, f", {template}", **parts)

    def first_argument(self, call: ast.Call, template: str, following: str = "") -> Draft:
        """Add a first argument to a call, and text before the argument that was the first."""
        if not self.module.is_placed(call):
            return self.swap(call, 0, 0, template)
        has_more = bool(call.args or call.keywords)
        return self.insert_before(
            call, self.opening(call) + 1, f"{template}, {following}" if has_more else template
        )

    def remove_argument(self, call: ast.Call, argument: ast.expr | ast.keyword) -> Draft:
        """Remove an argument of a call, and one comma."""
        if not self.module.is_placed(call):
            return self.swap(call, 0, 0, "")
        return self.remove_items([*call.args, *call.keywords], [argument])

    def remove_items(self, items: Sequence[ast.AST], removed: Sequence[ast.AST]) -> Draft:
        """Remove some of the items of a list that is separated by commas, each with one comma."""
        text = self.module.text
        items = sorted(items, key=self.module.start)
        for gone, group in itertools.groupby(items, key=lambda each: each in removed):
            run = list(group)
            start, end = self.module.start(run[0]), self.module.end(run[-1])
            if not gone:
                continue
            self.module.claimed.update(each for item in run for each in ast.walk(item))
            if run[-1] is not items[-1]:
                end = self.module.start(items[items.index(run[-1]) + 1])
            elif run[0] is not items[0]:
                start = text.rindex(",", 0, start)
            elif text[end:].lstrip().startswith(","):
                end = text.index(",", end) + 1
            self.swap(run[0], start, end, "")
        return self

    def guard(self, statement: ast.stmt, template: str, **parts: str) -> Draft:
        """Put a statement, alone on its lines, under an ``if`` with this condition."""
        text, needs = self._write_template(statement, template, parts)
        start, end = self.module.start(statement), self.module.end(statement)
        self.edits.append(Edit(start, end, "", needs=needs, guard=text))
        return self

    def opening(self, call: ast.Call) -> int:
        """Return the offset of a call's opening parenthesis."""
        return self.module.text.index("(", self.module.end(call.func))

    def _write_template(
        self, node: ast.AST, template: str, parts: Mapping[str, str]
    ) -> tuple[str, frozenset[str]]:
        """Return the source of a template, and what it needs."""
        module = self.module
        is_possible = module.is_placed(node) and ("{q}" not in template or module.can_quote(node))
        self.is_misplaced = self.is_misplaced or not is_possible
        template, why = versions.write_template(template, module.around.torch, module.around.target)
        self.lacking = self.lacking or why
        template = template.replace("{module}", "torch.get_device_module({device})")
        for name, (alias, line) in module.parts_of_torch.items():
            if line < getattr(node, "lineno", 0):
                template = re.sub(rf"\b{re.escape(name)}\.", f"{alias}.", template)
        needs = {"torch"} if re.search(r"\btorch\b", template) else set[str]()
        needs |= {"device"} if "{device}" in template or "{type}" in template else set[str]()
        needs |= set(_STANDARD.findall(template))
        known = {"device": module.device, "type": f"{module.device}.type", "q": module.quote(node), **parts}

        def instead(found: re.Match[str]) -> str:
            return module.torch if found[0] == "torch" else known.get(found[1], found[0])

        return re.sub(r"\{(\w+)\}|\btorch\b", instead, template), frozenset(needs)


def operand(node: ast.expr) -> tuple[str, str]:
    """Return the parentheses that an expression needs as an operand of ``and``."""
    is_or = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
    return ("(", ")") if is_or or isinstance(node, ast.IfExp | ast.Lambda | ast.NamedExpr) else ("", "")


def needs_parentheses(module: Module, node: ast.expr, precedence: int) -> bool:
    """Whether source of a precedence needs parentheses in the place of an expression."""
    if precedence == ATOM or precedence >= _required(module, node):
        return False
    before = module.text[: module.start(node)].rstrip()
    return not (before.endswith("(") and module.text[module.end(node) :].lstrip().startswith(")"))


def _required(module: Module, node: ast.expr) -> int:
    """Return the precedence that the place of an expression requires."""
    parent = module.parents[node]
    if isinstance(parent, ast.Call):
        return ATOM if node is parent.func else TERNARY
    if isinstance(parent, ast.BoolOp):
        return OR if isinstance(parent.op, ast.Or) else AND
    if isinstance(parent, ast.UnaryOp):
        return NOT if isinstance(parent.op, ast.Not) else ATOM
    if isinstance(parent, ast.IfExp):
        return TERNARY if node is parent.orelse else OR
    if isinstance(parent, ast.comprehension):
        return OR
    if isinstance(parent, ast.Compare):
        return SUM
    if isinstance(parent, ast.Subscript):
        return ATOM if node is parent.value else TERNARY
    return TERNARY if isinstance(parent, _HOLDERS) else ATOM


# Nodes that contain any expression without parentheses.
_HOLDERS = (
    ast.AnnAssign, ast.arguments, ast.Assert, ast.Assign, ast.AugAssign, ast.Dict, ast.DictComp, ast.Expr,
    ast.FormattedValue, ast.GeneratorExp, ast.If, ast.keyword, ast.Lambda, ast.List, ast.ListComp, ast.NamedExpr,
    ast.Return, ast.Set, ast.SetComp, ast.Slice, ast.Tuple, ast.While, ast.Yield, ast.withitem,
)  # fmt: skip
