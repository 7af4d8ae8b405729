"""``"cuda"`` and ``"cuda:0"`` where they name a device."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.strings import DeviceStrings, is_cuda, is_numbered
from isthmus.migrate.source import words

# Contexts of plain strings that are not values: docstring, index, part of a longer string, pattern.
_NO_VALUE = (
    cst.Expr,
    cst.Index,
    cst.ConcatenatedString,
    cst.MatchValue,
    cst.ComparisonTarget,
    cst.Comparison,
)
_CONTAINERS = (cst.Element, cst.List, cst.Tuple, cst.Set)
_CHOICE = m.Name("Choice") | m.Attribute(attr=m.Name("Choice"))
_ADVICE = "add an entry for the device in use, DEVICE.type"


class DeviceString(DeviceStrings):
    """Strings that name a device as a value: arguments, defaults, assignments, lists."""

    code = "IM102"
    name = "device-string"
    summary = "the name of a CUDA device becomes that of the device in use"
    before = 'x = torch.zeros(2, device="cuda")'
    after = "x = torch.zeros(2, device=DEVICE.type)"
    words = ('"cuda', "'cuda")

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        """Replace a string that is a value."""
        if not (is_cuda(original_node) or is_numbered(original_node)) or not self._is_value(original_node):
            return updated_node
        holder = self._holder(original_node)
        if self._is_identifier(holder) or self._is_choices(holder):
            return updated_node
        if self._is_enum_value(holder):
            self._left(original_node, "a value of an Enum, which other values are compared with")
            return updated_node
        new = self.neutral(original_node, updated_node)
        self.note(original_node, f"{original_node.value} becomes `{source_of(new)}`")
        return new

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.List:
        """Add the device in use to ``choices=["cpu", "cuda"]``."""
        elements = [each.value for each in original_node.elements]
        known = {f"{self.context.device}.type", "DEVICE.type"} & set(map(source_of, elements))
        if known or not any(map(is_cuda, elements)) or not self._is_choices(self.parent(original_node)):
            return updated_node
        self.note(original_node, f"the type of `{self.context.device}` is a choice too")
        return updated_node.with_changes(elements=[*updated_node.elements, cst.Element(self.device_type())])

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Report ``{"cuda": ..., "cpu": ...}[device.type]``, which has no entry for another device."""
        table = original_node.value
        if isinstance(table, cst.Dict) and any(
            isinstance(each, cst.DictElement) and is_cuda(each.key) for each in table.elements
        ):
            self._left(original_node, "a table indexed by device type, with an entry for CUDA")
        return updated_node

    def leave_MatchValue(
        self, original_node: cst.MatchValue, updated_node: cst.MatchValue
    ) -> cst.MatchPattern:
        """Report ``case "cuda":``."""
        if is_cuda(original_node.value) or is_numbered(original_node.value):
            self._left(original_node, "a pattern that matches no other device")
        return updated_node

    def _left(self, original: cst.CSTNode, message: str) -> None:
        self.left(original, '"cuda"', message, _ADVICE)

    def _holder(self, original: cst.CSTNode) -> cst.CSTNode:
        """Return the parent of a string, or of the list that contains it."""
        holder = self.parent(original)
        while isinstance(holder, _CONTAINERS):
            holder = self.parent(holder)
        return holder

    def _is_identifier(self, holder: cst.CSTNode) -> bool:
        """Whether a string is a Python identifier: in ``__all__``, ``__slots__``, fields of a namedtuple."""
        if isinstance(holder, cst.Assign | cst.AugAssign | cst.AnnAssign):
            targets = (
                [each.target for each in holder.targets]
                if isinstance(holder, cst.Assign)
                else [holder.target]
            )
            return any(source_of(target) in words.IDENTIFIERS for target in targets)
        call = self.parent(holder) if isinstance(holder, cst.Arg) else None
        return isinstance(call, cst.Call) and "collections.namedtuple" in self.qualified(call.func)

    def _is_enum_value(self, holder: cst.CSTNode) -> bool:
        if not isinstance(holder, cst.Assign | cst.AnnAssign):
            return False
        block = self.parent(self.parent(holder))
        owner = block if isinstance(block, cst.Module) else self.parent(block)
        return isinstance(owner, cst.ClassDef) and any(
            source_of(base.value).endswith("Enum") for base in owner.bases
        )

    def _is_choices(self, holder: cst.CSTNode) -> bool:
        """Whether an argument is the choices of an argparse or click option."""
        if not isinstance(holder, cst.Arg):
            return False
        if holder.keyword is not None:
            return holder.keyword.value == "choices"
        call = self.parent(holder)
        return isinstance(call, cst.Call) and m.matches(call.func, _CHOICE)

    def _is_value(self, original: cst.SimpleString) -> bool:
        parent = self.parent(original)
        if isinstance(parent, _NO_VALUE):
            return False
        if isinstance(parent, cst.DictElement):
            return parent.value is original
        if isinstance(parent, cst.Arg):
            return self._is_device_argument(parent)
        return True

    def _is_device_argument(self, argument: cst.Arg) -> bool:
        if argument.keyword is not None:
            return argument.keyword.value not in words.KEYWORDS
        function = self.parent(argument)
        if not isinstance(function, cst.Call):  # a base class
            return False
        if any(name.startswith("torch.library.") for name in self.qualified(function.func)):
            return False
        if isinstance(function.func, cst.Attribute):
            return function.func.attr.value not in words.METHODS
        return not (isinstance(function.func, cst.Name) and function.func.value in words.FUNCTIONS)
