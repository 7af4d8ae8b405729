"""Questions whether something is on CUDA: ``device.type == "cuda"``, ``x.is_cuda``."""

from __future__ import annotations

import re
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import ExpressionContext, ExpressionContextProvider

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.strings import DeviceStrings, is_cpu, is_cuda, is_numbered
from isthmus.migrate.findings import Severity

_DEVICE = re.compile(r"(\.type|\b\w*dev(ice)?(_?(type|name|str|string))?\W*)$", re.IGNORECASE)
_OWN_IS_CUDA = re.compile(r"\.is_cuda\s*=[^=]|def is_cuda\b")
_OTHER_TYPE = re.compile(r"""==\s*["'](mps|xpu|npu|hpu|xla|mtia|meta)["']""")
_SWAPPED = (cst.Equal, cst.NotEqual, cst.In, cst.NotIn)  # "cuda" on their left
_CONTRARY: dict[type, Any] = {
    cst.Equal: cst.NotEqual,
    cst.NotEqual: cst.Equal,
    cst.In: cst.NotIn,
    cst.NotIn: cst.In,
}
_EQUALITY: dict[type, Any] = {cst.In: cst.NotEqual, cst.NotIn: cst.Equal}
_IS_CUDA = m.Attribute(attr=m.Name("is_cuda"))
_STARTS_WITH = m.Call(m.Attribute(attr=m.Name("startswith")), [m.Arg(m.SimpleString())])


class DeviceComparison(DeviceStrings):
    """Where the source asks for CUDA it means an accelerator: anything but the CPU."""

    code = "IM119"
    name = "device-comparison"
    severity = Severity.REVIEW
    summary = "asks whether something is on an accelerator: not on the CPU"
    before = 'if x.device.type == "cuda" or y.is_cuda:'
    after = 'if x.device.type != "cpu" or y.device.type != "cpu":'
    words = ("is_cuda", '"cuda', "'cuda")

    def visit_Comparison(self, node: cst.Comparison) -> None:
        """Keep the rule of strings away from types that are replaced as a whole."""
        if _is_in_types(node):
            self.claim(node.comparisons[0].comparator)

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        """``device.type == "cuda"``, ``"cuda" in str(device)``, ``device.type in ("cuda", "xpu")``."""
        left, target = original_node.left, original_node.comparisons[0]
        if len(original_node.comparisons) != 1 or source_of(left) == f"{self.context.device}.type":
            return updated_node  # the latter guards what only CUDA has
        if self._names_other_types(original_node):
            message = "is one of several branches, each for a type of device"
            advice = "decide which branch the device in use takes"
            self.left(original_node, source_of(original_node), message, advice)
            return updated_node
        new = self._comparison(left, target, updated_node)
        if new is not updated_node:
            self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return new

    def _names_other_types(self, original: cst.Comparison) -> bool:
        """Whether a comparison with CUDA is the test of an ``if`` of which another branch is for ``"mps"``."""
        branch = self.parent(original)
        if not isinstance(branch, cst.If) or "cuda" not in source_of(original):
            return False
        while isinstance(above := self.parent(branch), cst.If) and above.orelse is branch:
            branch = above
        tests = []
        each: cst.If | cst.Else | None = branch
        while isinstance(each, cst.If):
            tests.append(source_of(each.test))
            each = each.orelse
        return any(_OTHER_TYPE.search(test) for test in tests)

    def _comparison(
        self, left: cst.BaseExpression, target: cst.ComparisonTarget, updated: cst.Comparison
    ) -> cst.Comparison:
        right, now = target.comparator, updated.comparisons[0]
        if is_cuda(left) and isinstance(target.operator, _SWAPPED) and _is_device(right):
            return updated.with_changes(left=self._cpu(left), comparisons=[_contrary(now, now.comparator)])
        if isinstance(target.operator, cst.In | cst.NotIn) and _is_types(right) and _is_device(left):
            return updated.with_changes(comparisons=[_contrary(now, self._cpu(right), equality=True)])
        if not isinstance(target.operator, cst.Equal | cst.NotEqual):
            return updated
        if is_cuda(right) and _is_device(left):
            return updated.with_changes(comparisons=[_contrary(now, self._cpu(right))])
        if is_cuda(right) or is_numbered(right):
            return updated.with_changes(comparisons=[now.with_changes(comparator=self.neutral(right, right))])
        return updated

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """``device.startswith("cuda")``."""
        if not m.matches(original_node, _STARTS_WITH):
            return updated_node
        text, method = original_node.args[0].value, cst.ensure_type(original_node.func, cst.Attribute)
        if not (is_cuda(text) or source_of(text).strip("\"'") == "cuda:") or not _is_device(method.value):
            return updated_node
        call = updated_node.with_changes(args=[cst.Arg(self._cpu(text))], lpar=[], rpar=[])
        new = self.fitted(original_node, cst.UnaryOperation(cst.Not(), call))
        self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return new

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        """``not`` of what this rule made."""
        inner = updated_node.expression
        if not isinstance(updated_node.operator, cst.Not) or inner is original_node.expression:
            return updated_node
        if m.matches(original_node.expression, _STARTS_WITH) and isinstance(inner, cst.UnaryOperation):
            return inner.expression
        if m.matches(original_node.expression, _IS_CUDA) and isinstance(inner, cst.Comparison):
            equal = _contrary(inner.comparisons[0], inner.comparisons[0].comparator)
            return self.fitted(original_node, inner.with_changes(comparisons=[equal]))
        return updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """``x.is_cuda``, unless the source defines what that is."""
        context = self.get_metadata(ExpressionContextProvider, original_node, None)
        if original_node.attr.value != "is_cuda" or context is not ExpressionContext.LOAD:
            return updated_node
        if _OWN_IS_CUDA.search(self.context.source):
            return updated_node
        quote = self.quote(original_node)
        new = self.expression(f"{{x}}.device.type != {quote}cpu{quote}", x=updated_node.value)
        self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return self.fitted(original_node, new)

    def _cpu(self, original: cst.BaseExpression) -> cst.SimpleString:
        """The string ``"cpu"``, in the quotes of the string that was there."""
        quote = source_of(original)[0] if isinstance(original, cst.SimpleString) else self.quote(original)
        return cst.SimpleString(f"{quote}cpu{quote}")


def _is_device(node: cst.BaseExpression) -> bool:
    """Whether an expression is a device or the name of one, as far as its own name says."""
    return _DEVICE.search(source_of(node)) is not None


def _is_types(node: cst.BaseExpression) -> bool:
    """Whether a node is a tuple, list or set of types of accelerators, CUDA among them."""
    if not isinstance(node, cst.Tuple | cst.List | cst.Set):
        return False
    strings = [element.value for element in node.elements]
    return (
        all(isinstance(each, cst.SimpleString) for each in strings)
        and any(map(is_cuda, strings))
        and not any(map(is_cpu, strings))
    )


def _is_in_types(node: cst.Comparison) -> bool:
    operator = isinstance(node.comparisons[0].operator, cst.In | cst.NotIn)
    return operator and _is_types(node.comparisons[0].comparator) and _is_device(node.left)


def _contrary(
    target: cst.ComparisonTarget, comparator: cst.BaseExpression, equality: bool = False
) -> cst.ComparisonTarget:
    """The contrary comparison with something else; equality: ``in`` becomes ``!=``, ``not in`` ``==``."""
    operator = target.operator
    kind = type(operator)
    new = (_EQUALITY if equality else _CONTRARY)[kind]()
    spaces = {name: getattr(operator, name) for name in ("whitespace_before", "whitespace_after")}
    return target.with_changes(operator=new.with_changes(**spaces), comparator=comparator)
