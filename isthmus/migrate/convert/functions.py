"""Base class of rules that replace functions of ``torch.cuda`` by the table in cuda_names."""

import functools
from typing import ClassVar

import libcst as cst
import libcst.matchers as m
from libcst.metadata import ExpressionContext, ExpressionContextProvider

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.source import cuda_names
from isthmus.migrate.source.cuda_names import CudaName, Guard

_TESTS = {Guard.ACCELERATOR: "torch.accelerator.is_available()", Guard.CUDA: "{type} == {quote}cuda{quote}"}
# Tests that imply an accelerator, or CUDA.
_AVAILABLE = {"torch.cuda.is_available", "torch.accelerator.is_available"}


class FunctionRule(Rule):
    """A rule whose replacements are the table's entries with its code.

    Attributes:
        positional: whether the replacement takes its arguments by position only.
    """

    positional: ClassVar[bool] = False
    mention = "cuda"

    def visit_Call(self, node: cst.Call) -> bool | None:
        """Claim the called name, since the whole call is replaced."""
        if self.entry(node.func) is not None:
            self.claim(node.func)
        return None

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace a call, with a guard if it applies to some devices only."""
        entry = self.entry(original_node.func)
        if entry is None:
            return updated_node
        return self.replace_call(original_node, updated_node, entry)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Replace a name that is not called."""
        return self.replace_name(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Replace an imported name that is not called."""
        return self.replace_name(original_node, updated_node)

    def entry(self, original: cst.CSTNode) -> CudaName | None:
        """Return the name's entry of this rule that has a replacement."""
        if not isinstance(original, cst.Name | cst.Attribute):
            return None
        if isinstance(original, cst.Attribute) and original.attr.value not in _last_parts(self.code):
            return None
        for name in self.qualified(original):
            found = cuda_names.look_up(name)
            if found is not None and found.code == self.code and found.becomes:
                return found
        return None

    def replace_call(self, original: cst.Call, updated: cst.Call, entry: CudaName) -> cst.BaseExpression:
        """Return the call of the entry's function with the entry's guard."""
        if entry.guard is Guard.CUDA and self.within_guard(original, entry.guard):
            return updated
        function = self.expression(entry.becomes)
        self.replaced(original.func)
        what = "is called on CUDA only" if entry.guard is Guard.CUDA else f"becomes `{source_of(function)}`"
        self.note(original, f"`{source_of(original.func)}` {what}")
        call = updated.with_changes(func=function, args=self.arguments(updated))
        return self.guarded(original, call, entry)

    def arguments(self, updated: cst.Call) -> list[cst.Arg]:
        """Return the arguments of the replacement."""
        if not self.positional:
            return list(updated.args)
        return [_without_keyword(each) for each in updated.args]

    def replace_name(
        self, original: cst.Name | cst.Attribute, updated: cst.BaseExpression
    ) -> cst.BaseExpression:
        """Return the entry's function for a name that is read but not called."""
        entry = self.entry(original)
        if entry is None or entry.guard is Guard.CUDA or not self._is_read(original):
            return updated
        self.replaced(original)
        new = self.expression(entry.becomes)
        self.note(original, f"`{source_of(original)}` becomes `{source_of(new)}`")
        return self.fitted(original, new)

    def _is_read(self, original: cst.BaseExpression) -> bool:
        return self.get_metadata(ExpressionContextProvider, original, None) is ExpressionContext.LOAD

    def needs_guard(self, original: cst.CSTNode, guard: Guard) -> bool:
        """Whether a node may run where the guard is false."""
        pinned = self.context.target
        if guard is Guard.NONE or pinned == "cuda" or (pinned and guard is Guard.ACCELERATOR):
            return False
        return not self.within_guard(original, guard)

    def guarded(
        self, original: cst.BaseExpression, call: cst.BaseExpression, entry: CudaName
    ) -> cst.BaseExpression:
        """Put the call under the entry's guard: an ``if`` around a statement, else a conditional expression."""
        if not self.needs_guard(original, entry.guard):
            return call
        test = self.test(original, entry.guard)
        line = self.parent(self.parent(original))
        if isinstance(line, cst.SimpleStatementLine) and m.matches(line, m.SimpleStatementLine([m.Expr()])):
            self.context.lines[line] = source_of(test)
            return call
        otherwise = self.expression(entry.otherwise)
        if m.matches(otherwise, m.Name("False")):
            new = self.expression("{test} and {call}", call=call, test=test)
        else:
            new = self.expression(
                "{call} if {test} else {otherwise}", call=call, test=test, otherwise=otherwise
            )
        return self.fitted(original, new)

    def test(self, original: cst.CSTNode, guard: Guard) -> cst.BaseExpression:
        """Return the condition of the guard."""
        return self.expression(_TESTS[guard].replace("{quote}", self.quote(original)))

    def within_guard(self, original: cst.CSTNode, guard: Guard) -> bool:
        """Whether an enclosing test of the source already implies the guard."""
        return any(self._says(test, guard) for test in self.conditions(original))

    def _says(self, test: cst.BaseExpression, guard: Guard) -> bool:
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            return self._says(test.left, guard) or self._says(test.right, guard)
        if m.matches(test, _IS_CUDA):  # a test of another device is converted to a test for an accelerator
            ours = source_of(cst.ensure_type(test, cst.Comparison).left) == f"{self.context.device}.type"
            return ours or guard is Guard.ACCELERATOR
        called = isinstance(test, cst.Call) and not _AVAILABLE.isdisjoint(self.qualified(test.func))
        return guard is Guard.ACCELERATOR and called


@functools.cache
def _last_parts(code: str) -> frozenset[str]:
    """Return the last parts of the table's names with a code."""
    return frozenset(
        name.rpartition(".")[2] for name, entry in cuda_names.NAMES.items() if entry.code == code
    )


_IS_CUDA = m.Comparison(
    m.Attribute(attr=m.Name("type")),
    [m.ComparisonTarget(m.Equal(), m.SimpleString(m.MatchIfTrue(lambda text: text.strip("\"'") == "cuda")))],
)


def source_of(node: cst.CSTNode) -> str:
    """Return the source of a node."""
    return cst.Module([]).code_for_node(node)


def _without_keyword(argument: cst.Arg) -> cst.Arg:
    return argument.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
