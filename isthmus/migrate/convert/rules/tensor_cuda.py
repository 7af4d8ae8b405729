"""``x.cuda()`` becomes ``x.to(DEVICE)``."""

import re

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.integers import bindings, is_current, is_index, is_integer
from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.convert.rules.map_location import moves_storage
from isthmus.migrate.convert.strings import is_formatted
from isthmus.migrate.source import words
from isthmus.migrate.source.own_methods import ADVICE


class TensorCuda(Rule):
    """Calls of ``cuda`` on tensors and modules."""

    code = "IM101"
    name = "tensor-cuda"
    summary = "tensors and modules move to the device in use"
    before = "model = model.cuda()"
    after = "model = model.to(DEVICE)"
    words = (".cuda(",)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Rewrite the call."""
        method = updated_node.func
        if not m.matches(original_node.func, m.Attribute(attr=m.Name("cuda"))) or self._is_moved(
            original_node
        ):
            return updated_node
        if not isinstance(method, cst.Attribute):
            return updated_node
        why = self._obstacle(original_node)
        if why:
            self.left(original_node, ".cuda()", why, ADVICE if self.context.own_cuda else _ADVICE)
            return updated_node
        arguments = self._arguments(original_node, updated_node)
        self.note(original_node, f"`.cuda(...)` becomes `.to({source_of(arguments[0])})`")
        return updated_node.with_changes(func=method.with_changes(attr=cst.Name("to")), args=arguments)

    def _is_moved(self, call: cst.Call) -> bool:
        """Whether a call is that of ``lambda storage, location: storage.cuda()``, which is replaced as a whole."""
        function = self.parent(call)
        return isinstance(function, cst.Lambda) and moves_storage(function)

    def _obstacle(self, call: cst.Call) -> str:
        """Return why a call is not converted; "" if it is."""
        owner = cst.ensure_type(call.func, cst.Attribute).value
        if self.context.own_cuda and not self._is_of_torch(owner):
            return f"may call the method `cuda` of {self.context.own_cuda}"
        if any(each.star for each in call.args):
            return "has unknown arguments"
        if len([each for each in call.args if each.keyword is None]) > len(_PARAMETERS):
            return "has more arguments than `Tensor.cuda`"
        if any(_CLASS.search(name) for name in self.qualified(owner)):
            return "calls the method of a class"
        for position, argument in enumerate(call.args):
            is_device = argument.keyword.value == "device" if argument.keyword else position == 0
            if is_device and not self._is_understood(argument.value):
                return f"`{source_of(argument.value)}` may be an index, a device or None"
        return ""

    def _is_of_torch(self, owner: cst.BaseExpression) -> bool:
        """Whether a node is created by PyTorch and so not an object of the project."""
        return isinstance(owner, cst.Call) and any(
            name.startswith("torch.") for name in self.qualified(owner.func)
        )

    def _is_understood(self, device: cst.BaseExpression) -> bool:
        if source_of(device) == "None" or self._is_certain_device(device) or is_index(self, device):
            return True
        return m.matches(device, m.Name() | m.Attribute()) and _names_device(device)

    def _arguments(self, original: cst.Call, updated: cst.Call) -> list[cst.Arg]:
        """Return the arguments of ``to``: the device first, the others by name."""
        device: cst.BaseExpression | None = None
        others: list[cst.Arg] = []
        for position, argument in enumerate(updated.args):
            keyword = argument.keyword.value if argument.keyword else _PARAMETERS[position]
            if keyword == "device":
                device = self._device_of(original.args[position].value, argument.value)
            elif keyword == "async":
                others.append(_keyword("non_blocking", argument))
            else:
                others.append(_keyword(keyword, argument))
        first = cst.Arg(device if device is not None else self.device())
        is_storage = m.matches(original.func, m.Attribute(value=_STORAGE))
        return [_keyword("device", first) if is_storage else first, *others]

    def _device_of(self, original: cst.BaseExpression, index: cst.BaseExpression) -> cst.BaseExpression:
        """Return the device of an argument: an index, None, or a device."""
        if isinstance(index, cst.Integer):
            return self.formatted(self.device_type(), f":{index.value}", quote=self.quote(original))
        if source_of(original) == "None" or is_current(self, original):
            return self.device()
        if self._is_certain_device(original):
            return index
        new = (
            index
            if _names_device(original)
            else self.expression("torch.device({type}, {index})", index=index)
        )
        if self._may_be_none(original):
            return self.expression("{device} if {index} is None else {new}", index=index, new=new)
        return new

    def _is_certain_device(self, node: cst.BaseExpression) -> bool:
        """Whether an argument is a device or its name, and not None."""
        if isinstance(node, cst.SimpleString) or is_formatted(node):
            return True
        if isinstance(node, cst.Call):
            return "torch.device" in self.qualified(node.func)
        found = bindings(self, node)
        return bool(found) and all(
            isinstance(each, cst.Assign)
            and not isinstance(each.value, cst.Name)
            and self._is_certain_device(each.value)
            for each in found
        )

    def _may_be_none(self, original: cst.BaseExpression) -> bool:
        """Whether an index or device may be None without a test around the call."""
        text = source_of(original)
        if any(f"{text} is not None" in source_of(test) for test in self.conditions(original)):
            return False
        asks = re.search(rf"{re.escape(text)}\s+is\s+(not\s+)?None", self.context.source) is not None
        return asks or not is_integer(self, original)


# A storage's `to` takes its arguments by keyword.
_STORAGE = m.Call(m.Attribute(attr=m.Name("untyped_storage") | m.Name("storage")))
_PARAMETERS = ("device", "non_blocking")
_ADVICE = "write `.to(device)` by hand"
_CLASS = re.compile(r"^torch\.(\w+\.)*[A-Z]\w*$")


def _names_device(node: cst.BaseExpression) -> bool:
    """Whether a dotted name is one of a device."""
    return words.DEVICE.fullmatch(source_of(node)) is not None


def _keyword(name: str, argument: cst.Arg) -> cst.Arg:
    if argument.keyword is not None and argument.keyword.value == name:
        return argument
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return argument.with_changes(keyword=cst.Name(name), equal=equal)
