"""Tensor types such as ``torch.cuda.FloatTensor``."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.arguments import keyword
from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.source.findings import Severity
from isthmus.shim.rules import TENSOR_TYPES

_PREFIX = "torch.cuda."


class TensorTypes(Rule):
    """Legacy tensor types, each a dtype and a device."""

    code = "IM120"
    name = "tensor-types"
    severity = Severity.REVIEW
    summary = "a legacy tensor type becomes a dtype and the device in use"
    before = "x = x.type(torch.cuda.FloatTensor)"
    after = "x = x.to(DEVICE, torch.float32)"
    words = tuple(TENSOR_TYPES)
    mention = "cuda"

    def visit_Call(self, node: cst.Call) -> None:
        """Report ``torch.set_default_tensor_type`` of a choice between legacy types."""
        if "torch.set_default_tensor_type" not in self.qualified(node.func):
            return
        choice = node.args[0].value if len(node.args) == 1 else None
        if isinstance(choice, cst.IfExp) and (self._dtype(choice.body) or self._dtype(choice.orelse)):
            self.claim(choice)
            advice = "set the default dtype and, with torch.set_default_device(DEVICE), the default device"
            self.left(node, "torch.set_default_tensor_type", "is given a choice of legacy types", advice)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace ``x.type(type)``, ``isinstance(x, type)``, and calls of a type."""
        dtype = self._dtype(original_node.func)
        if dtype:
            return self._construct(original_node, updated_node, dtype)
        if len(original_node.args) == 1 and m.matches(original_node.func, m.Attribute(attr=m.Name("type"))):
            return self._convert(original_node, updated_node)
        if len(original_node.args) == 2 and m.matches(original_node.func, m.Name("isinstance")):
            return self._test(original_node, updated_node)
        return updated_node

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Replace a stored type: ``Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor``."""
        if not self._dtype(original_node) or isinstance(
            self.parent(original_node), cst.Arg | cst.Call | cst.Annotation
        ):
            return updated_node
        return self._reference(original_node)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        """Replace ``torch.set_default_tensor_type(type)`` by two statements."""
        if not m.matches(original_node, _DEFAULT_TYPE):
            return updated_node
        call = cst.ensure_type(cst.ensure_type(original_node.body[0], cst.Expr).value, cst.Call)
        dtype = self._dtype(call.args[0].value)
        if "torch.set_default_tensor_type" not in self.qualified(call.func) or not dtype:
            return updated_node
        self.note(original_node, "the default type becomes a default dtype and a default device")
        first = self.expression(f"torch.set_default_dtype(torch.{dtype})")
        second = self.expression("torch.set_default_device({device})")
        return cst.FlattenSentinel(
            [
                updated_node.with_changes(
                    body=[cst.Expr(first)], trailing_whitespace=cst.TrailingWhitespace()
                ),
                updated_node.with_changes(body=[cst.Expr(second)], leading_lines=[]),
            ]
        )

    def _dtype(self, original: cst.CSTNode) -> str:
        """Return the dtype of a CUDA tensor type or its name; "" for anything else."""
        if isinstance(original, cst.SimpleString):
            names = [str(original.raw_value)]
        elif isinstance(original, cst.Name | cst.Attribute):
            names = list(self.qualified(original))
        else:
            return ""
        types = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return next((TENSOR_TYPES[name] for name in types if name in TENSOR_TYPES), "")

    def _reference(self, original: cst.BaseExpression) -> cst.BaseExpression:
        """Return the tensor type of the device in use; the CPU's is in ``torch`` itself."""
        name = next(each for each in self.qualified(original) if each.startswith(_PREFIX)).removeprefix(
            _PREFIX
        )
        self.replaced(original)
        self.note(original, f"`{source_of(original)}` becomes the type of the device in use")
        quote = self.quote(original)
        return self.expression(f"getattr({{module}}, {quote}{name}{quote}, torch.{name})")

    def _convert(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        dtype = self._dtype(original.args[0].value)
        if not dtype:
            return updated
        self.replaced(original.args[0].value)
        self.note(original, f"a conversion to the device in use and torch.{dtype}")
        arguments = [cst.Arg(self.device()), cst.Arg(self.expression(f"torch.{dtype}"))]
        method = cst.ensure_type(updated.func, cst.Attribute).with_changes(attr=cst.Name("to"))
        return updated.with_changes(func=method, args=arguments)

    def _test(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        dtype = self._dtype(original.args[1].value)
        if not dtype:
            return updated
        self.replaced(original.args[1].value)
        self.note(original, f"tests for an accelerator and torch.{dtype}")
        quote = self.quote(original)
        template = f"{{x}}.device.type != {quote}cpu{quote} and {{x}}.dtype == torch.{dtype}"
        return self.fitted(original, self.expression(template, x=updated.args[0].value))

    def _construct(self, original: cst.Call, updated: cst.Call, dtype: str) -> cst.BaseExpression:
        """Replace a call of a type: a list is data, integers are a size."""
        values = [argument.value for argument in original.args]
        is_data = len(values) == 1 and isinstance(values[0], cst.List | cst.Tuple | cst.ListComp)
        is_size = len(values) != 1 or isinstance(values[0], cst.Integer)
        if not (is_data or is_size) or any(argument.star or argument.keyword for argument in original.args):
            return updated.with_changes(func=self._reference(original.func))
        function = "torch.tensor" if is_data else "torch.empty"
        self.replaced(original.func)
        self.note(original, f"`{source_of(original.func)}` becomes `{function}`")
        sizes = updated.args if values else [cst.Arg(cst.Integer("0"))]
        arguments = [
            *(argument.with_changes(comma=cst.MaybeSentinel.DEFAULT) for argument in sizes),
            keyword("dtype", self.expression(f"torch.{dtype}")),
            keyword("device", self.device()),
        ]
        return updated.with_changes(func=self.expression(function), args=arguments)


_DEFAULT_TYPE = m.SimpleStatementLine([m.Expr(m.Call(args=[m.Arg()]))])
