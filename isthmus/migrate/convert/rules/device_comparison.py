"""Tests for CUDA: ``device.type == "cuda"``, ``x.is_cuda``."""

import re
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import ExpressionContext, ExpressionContextProvider

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.integers import bindings, may_default_to_none
from isthmus.migrate.convert.strings import DeviceStrings, is_cuda, is_numbered
from isthmus.migrate.source.findings import Severity

_DEVICE = re.compile(r"(\.type|\b\w*dev(ice)?(_?(type|name|str|string))?\W*)$", re.IGNORECASE)
_OWN_IS_CUDA = re.compile(r"\.is_cuda\s*=[^=]|def is_cuda\b")
_ACCELERATORS = {"cuda", "hpu", "maia", "mlu", "mps", "mtia", "musa", "npu", "xla", "xpu"}
_TYPE = re.compile(r"(\.type|dev(ice)?_?(type|name|str|string))$", re.IGNORECASE)
_TEXT = m.Call(m.Name("str"))
_STRING = m.SimpleString() | m.FormattedString() | _TEXT | m.Attribute(attr=m.Name("type"))
_BINDS_TEXT = (
    m.Assign(value=_STRING)
    | m.Assign(value=m.IfExp(body=_STRING, orelse=_STRING))
    | m.Param(annotation=m.Annotation(m.Name("str")))
)
_PACKED = re.compile(r"PackedSequence|\bpack_(padded_)?sequence\b")
_OF_NONE = "compares the text of a device that may be None"
_ADVICE = "rewrite the test for the device in use"
_CONTRARY: dict[type, Any] = {
    cst.Equal: cst.NotEqual,
    cst.NotEqual: cst.Equal,
    cst.In: cst.NotIn,
    cst.NotIn: cst.In,
}
_EQUALITY: dict[type, Any] = {cst.In: cst.Equal, cst.NotIn: cst.NotEqual}  # of one type instead of several
_IS_CUDA = m.Attribute(attr=m.Name("is_cuda"))
_NOT = m.UnaryOperation(m.Not())
_STARTS_WITH = m.Call(m.Attribute(attr=m.Name("startswith")), [m.Arg(m.SimpleString())])


class DeviceComparison(DeviceStrings):
    """Tests for CUDA become tests for any accelerator: not the CPU."""

    code = "IM119"
    name = "device-comparison"
    severity = Severity.REVIEW
    summary = "tests for CUDA become tests for an accelerator, that is, not the CPU"
    before = 'if x.device.type == "cuda" or y.is_cuda:'
    after = 'if x.device.type != "cpu" or y.device.type != "cpu":'
    words = ("is_cuda", '"cuda', "'cuda")

    def visit_Comparison(self, node: cst.Comparison) -> None:
        """Claim device types that are replaced as a whole or not at all."""
        if _is_in_types(node):
            self.claim(node.comparisons[0].comparator)

    def leave_Comparison(
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        """``device.type == "cuda"``, ``"cuda" in str(device)``, ``device.type in ("cuda", "xpu")``."""
        if (
            len(original_node.comparisons) != 1
            or source_of(original_node.left) == f"{self.context.device}.type"
        ):
            return updated_node  # the latter guards what only CUDA has
        why = self._obstacle(original_node)
        if why:
            self.left(original_node, source_of(original_node), why, _ADVICE)
            return updated_node
        new = self._comparison(original_node, updated_node)
        if new is updated_node:
            return updated_node
        self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return self.fitted(original_node, new)

    def _obstacle(self, original: cst.Comparison) -> str:
        """Return why a comparison is not converted; "" if it is."""
        left, right = original.left, original.comparisons[0].comparator
        if _is_in_types(original) and not _types(right) <= _ACCELERATORS:
            return "tests for CUDA among types that are not accelerators"
        if is_cuda(left) and self._is_text_of_none(right):
            return _OF_NONE
        compared = right if is_cuda(left) else left
        if "cuda" in source_of(original) and self._is_one_of_several(original, compared):
            return "is one of several tests of device types"
        return ""

    def _is_one_of_several(self, original: cst.Comparison, compared: cst.BaseExpression) -> bool:
        """Whether the enclosing function or module also compares the same expression with ``"mps"``."""
        block: cst.CSTNode = original
        while not isinstance(block, cst.FunctionDef | cst.Module):
            block = self.parent(block)
        other = rf"{re.escape(source_of(compared))}\s*==\s*[\"'](?!cuda)({'|'.join(_ACCELERATORS)}|meta)[\"']"
        return re.search(other, source_of(block)) is not None

    def _comparison(self, original: cst.Comparison, updated: cst.Comparison) -> cst.BaseExpression:
        left, target, now = original.left, original.comparisons[0], updated.comparisons[0]
        right, operator = target.comparator, target.operator
        if is_cuda(left) and isinstance(operator, cst.In | cst.NotIn):
            new = updated.with_changes(left=self._cpu(left), comparisons=[_contrary(now, now.comparator)])
            return new if _is_device(right) else updated
        if _is_in_types(original):
            one = now.with_changes(operator=_EQUALITY[type(operator)]())
            return self._question(left, updated.with_changes(comparisons=[one]), self._cpu(right))
        if not isinstance(operator, cst.Equal | cst.NotEqual):
            return updated
        if is_cuda(right):
            return self._question(left, updated, self._cpu(right))
        if is_cuda(left):
            swapped = cst.Comparison(now.comparator, [now.with_changes(comparator=updated.left)])
            return self._question(right, swapped, self._cpu(left))
        if self._is_cuda_device(right):
            cpu = self.expression("torch.device({cpu})", cpu=self._cpu(right))
            return self._exactly(updated.left, operator, self.device(), cpu)
        if is_numbered(right):
            return updated.with_changes(comparisons=[now.with_changes(comparator=self.neutral(right, right))])
        return updated

    def _question(
        self, original: cst.BaseExpression, updated: cst.Comparison, cpu: cst.SimpleString
    ) -> cst.BaseExpression:
        """Make a test that the left side of a comparison is an accelerator: a device type other than the CPU."""
        now = updated.comparisons[0]
        if self._is_type(original):
            return updated.with_changes(comparisons=[_contrary(now, cpu)])
        return self._exactly(updated.left, now.operator, self.device_type(), cpu)

    def _exactly(
        self,
        compared: cst.BaseExpression,
        operator: cst.BaseCompOp,
        value: cst.BaseExpression,
        cpu: cst.BaseExpression,
    ) -> cst.BaseExpression:
        """Make a test that an expression, maybe not a device, is the device in use and not the CPU."""
        is_negative = isinstance(operator, cst.NotEqual)
        if self.context.target:
            template = "{compared} != {value}" if is_negative else "{compared} == {value}"
            return self.expression(template, compared=compared, value=value)
        template = "{compared} == {value} != {cpu}"
        if is_negative:
            template = f"not ({template})"
        return self.expression(template, compared=compared, value=value, cpu=cpu)

    def _is_type(self, original: cst.BaseExpression) -> bool:
        """Whether an expression is the type or name of a device as text, so neither a device nor None."""
        if not _is_device(original) or may_default_to_none(self, original):
            return False
        if _TYPE.search(source_of(original)) or m.matches(original, _TEXT):
            return True
        found = bindings(self, original)
        return bool(found) and all(m.matches(each, _BINDS_TEXT) for each in found)

    def _is_text_of_none(self, original: cst.BaseExpression) -> bool:
        """Whether a node is ``str(device)`` of a parameter that is None by default."""
        if not isinstance(original, cst.Call) or not m.matches(original, _TEXT) or len(original.args) != 1:
            return False
        return may_default_to_none(self, original.args[0].value)

    def _is_cuda_device(self, original: cst.BaseExpression) -> bool:
        """Whether a node is ``torch.device("cuda")``."""
        if not isinstance(original, cst.Call) or len(original.args) != 1:
            return False
        return is_cuda(original.args[0].value) and "torch.device" in self.qualified(original.func)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """``device.startswith("cuda")``."""
        if not m.matches(original_node, _STARTS_WITH):
            return updated_node
        text, method = original_node.args[0].value, cst.ensure_type(original_node.func, cst.Attribute)
        if not (is_cuda(text) or source_of(text).strip("\"'") == "cuda:") or not _is_device(method.value):
            return updated_node
        if self._is_text_of_none(method.value):
            self.left(original_node, source_of(original_node), _OF_NONE, _ADVICE)
            return updated_node
        call = updated_node.with_changes(args=[cst.Arg(self._cpu(text))], lpar=[], rpar=[])
        new = self.fitted(original_node, cst.UnaryOperation(cst.Not(), call))
        self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return new

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        """Simplify ``not`` of a converted comparison."""
        inner = updated_node.expression
        if not isinstance(updated_node.operator, cst.Not) or inner is original_node.expression:
            return updated_node
        if m.matches(inner, _NOT) and not m.matches(original_node.expression, _NOT):
            positive = cst.ensure_type(inner, cst.UnaryOperation).expression.with_changes(lpar=[], rpar=[])
            return self.fitted(original_node, positive)
        if m.matches(original_node.expression, _IS_CUDA) and isinstance(inner, cst.Comparison):
            equal = _contrary(inner.comparisons[0], inner.comparisons[0].comparator)
            return self.fitted(original_node, inner.with_changes(comparisons=[equal]))
        return updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Replace ``x.is_cuda``, unless the source defines it."""
        context = self.get_metadata(ExpressionContextProvider, original_node, None)
        if original_node.attr.value != "is_cuda" or context is not ExpressionContext.LOAD:
            return updated_node
        if _OWN_IS_CUDA.search(self.context.source):
            return updated_node
        quote = self.quote(original_node)
        data = (
            ".data" if _PACKED.search(self.context.source) else ""
        )  # a PackedSequence has no attribute device
        new = self.expression(f"{{x}}{data}.device.type != {quote}cpu{quote}", x=updated_node.value)
        self.note(original_node, f"`{source_of(original_node)}` becomes `{source_of(new)}`")
        return self.fitted(original_node, new)

    def _cpu(self, original: cst.BaseExpression) -> cst.SimpleString:
        """Return the string ``"cpu"`` with the quotes of the original string."""
        quote = source_of(original)[0] if isinstance(original, cst.SimpleString) else self.quote(original)
        return cst.SimpleString(f"{quote}cpu{quote}")


def _is_device(node: cst.BaseExpression) -> bool:
    """Whether an expression's name suggests a device or the name of one."""
    return _DEVICE.search(source_of(node)) is not None


def _types(node: cst.BaseExpression) -> set[str]:
    """Return the strings of a tuple, list or set of strings."""
    elements = node.elements if isinstance(node, cst.Tuple | cst.List | cst.Set) else ()
    strings = [each.value for each in elements]
    if not all(isinstance(each, cst.SimpleString) for each in strings):
        return set()
    return {str(each.raw_value) for each in strings if isinstance(each, cst.SimpleString)}


def _is_in_types(node: cst.Comparison) -> bool:
    """Whether a comparison tests for one of several types, including CUDA but not the CPU."""
    target = node.comparisons[0]
    types = _types(target.comparator)
    is_in = isinstance(target.operator, cst.In | cst.NotIn)
    return is_in and "cuda" in types and "cpu" not in types and _is_device(node.left)


def _contrary(target: cst.ComparisonTarget, comparator: cst.BaseExpression) -> cst.ComparisonTarget:
    """Return the opposite comparison with another operand."""
    kind = _CONTRARY[type(target.operator)]
    spaces = {name: getattr(target.operator, name) for name in ("whitespace_before", "whitespace_after")}
    return target.with_changes(operator=kind(**spaces), comparator=comparator)
