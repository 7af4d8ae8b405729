"""Strings that name a CUDA device, and their replacements."""

import re

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.integers import is_integer
from isthmus.migrate.convert.rule import Quote, Rule

_NUMBERED = re.compile(r"cuda:\d+")
_PERCENT = re.compile(r"cuda:%[dis]")
_BRACES = re.compile(r"cuda:\{0?(:d)?\}")


def is_cuda(node: cst.CSTNode) -> bool:
    """Whether a node is the string ``"cuda"``."""
    return _raw(node) == "cuda"


def is_numbered(node: cst.CSTNode) -> bool:
    """Whether a node is a string such as ``"cuda:0"``."""
    return _NUMBERED.fullmatch(_raw(node)) is not None


def is_cpu(node: cst.CSTNode) -> bool:
    """Whether a node is the string ``"cpu"``."""
    return _raw(node) == "cpu"


def is_formatted(node: cst.CSTNode) -> bool:
    """Whether a node appends a number to ``"cuda:"``: an f-string, ``+``, ``%`` or ``format``."""
    if isinstance(node, cst.FormattedString):
        return _is_formatted_string(node)
    if isinstance(node, cst.BinaryOperation):
        adds = isinstance(node.operator, cst.Add) and _raw(node.left) == "cuda:"
        return adds or (
            isinstance(node.operator, cst.Modulo) and _PERCENT.fullmatch(_raw(node.left)) is not None
        )
    if isinstance(node, cst.Call) and m.matches(
        node, m.Call(m.Attribute(attr=m.Name("format")), [m.Arg(star="")])
    ):
        text = cst.ensure_type(node.func, cst.Attribute).value
        return node.args[0].keyword is None and _BRACES.fullmatch(_raw(text)) is not None
    return False


def _raw(node: cst.CSTNode) -> str:
    """Return the text of a plain string; "" for anything else."""
    return str(node.raw_value) if isinstance(node, cst.SimpleString) and "b" not in node.prefix else ""


def _is_formatted_string(node: cst.FormattedString) -> bool:
    return len(node.parts) == 2 and m.matches(node.parts[0], m.FormattedStringText("cuda:"))


class DeviceStrings(Rule):
    """Base class of rules that replace strings naming a device."""

    def neutral(self, original: cst.CSTNode, updated: cst.CSTNode) -> cst.BaseExpression:
        """Replace a string that is_cuda, is_numbered or is_formatted by the device in use.

        Args:
            original: the original node.
            updated: the node with converted children.
        """
        if isinstance(updated, cst.SimpleString):
            if is_cuda(original):
                return self.device_type()
            return self._string(updated, f":{updated.raw_value.removeprefix('cuda:')}")
        if isinstance(updated, cst.FormattedString):
            colon = cst.FormattedStringText(":")
            device_type = cst.FormattedStringExpression(self.device_type())
            return updated.with_changes(parts=[device_type, colon, *updated.parts[1:]])
        if isinstance(updated, cst.BinaryOperation):
            return self._operation(cst.ensure_type(original, cst.BinaryOperation), updated)
        return self._format(cst.ensure_type(updated, cst.Call))

    def _string(self, text: cst.BaseExpression, *parts: str | cst.BaseExpression) -> cst.BaseExpression:
        quote = text.quote if isinstance(text, cst.SimpleString) else '"'
        new = self.formatted(self.device_type(), *parts, quote=_short(quote))
        return new.with_changes(lpar=text.lpar, rpar=text.rpar)

    def _operation(self, original: cst.BinaryOperation, node: cst.BinaryOperation) -> cst.BaseExpression:
        number = _only(node.right)
        rest = _raw(node.left).removeprefix("cuda")
        if isinstance(node.operator, cst.Add):
            if m.matches(number, m.Call(m.Name("str"), [m.Arg(keyword=None, star="")])):
                number = cst.ensure_type(number, cst.Call).args[0].value
            else:
                return node.with_changes(left=self._string(node.left, rest))
        elif not is_integer(self, _only(original.right)):  # `%` formats its operand, or unpacks a tuple
            return node.with_changes(left=self._string(node.left, rest))
        if _fits_in_braces(number):
            return self._string(node.left, ":", number).with_changes(lpar=node.lpar, rpar=node.rpar)
        return node.with_changes(left=self._string(node.left, rest))

    def _format(self, node: cst.Call) -> cst.BaseExpression:
        method = cst.ensure_type(node.func, cst.Attribute)
        number = node.args[0].value
        if _fits_in_braces(number) and ":" not in _raw(method.value).removeprefix("cuda:"):
            return self._string(method.value, ":", number).with_changes(lpar=node.lpar, rpar=node.rpar)
        rest = cst.SimpleString(repr(_raw(method.value).removeprefix("cuda")))
        text = self.expression("({type} + {rest})", rest=rest)
        return node.with_changes(func=method.with_changes(value=text))


def _only(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the element of a 1-tuple."""
    if isinstance(node, cst.Tuple) and len(node.elements) == 1 and isinstance(node.elements[0], cst.Element):
        return node.elements[0].value
    return node


def _fits_in_braces(node: cst.BaseExpression) -> bool:
    """Whether an expression can be in an f-string with any quotes."""
    if isinstance(node, cst.Lambda | cst.NamedExpr | cst.Tuple | cst.GeneratorExp):
        return False
    return not re.search(r"[\"'{}\\\n#]", source_of(node))


def _short(quote: str) -> Quote:
    return "'" if quote.endswith("'") else '"'
