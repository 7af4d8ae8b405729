"""``map_location`` of ``torch.load``: dictionaries of tags, and functions."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.functions import source_of
from isthmus.migrate.convert.integers import is_current, is_index, is_integer, last
from isthmus.migrate.convert.strings import DeviceStrings, is_formatted, is_numbered
from isthmus.migrate.source import words

_STORAGE_CUDA = m.Lambda(body=m.Call(m.Attribute(m.Name(), m.Name("cuda"))))


class MapLocation(DeviceStrings):
    """Devices of a checkpoint's tensors."""

    code = "IM108"
    name = "map-location"
    summary = "checkpoints that were written on CUDA and those written by the converted source both load"
    before = 'torch.load(path, map_location={"cuda:0": "cuda:1"})'
    after = 'torch.load(path, map_location={"cuda:0": f"{DEVICE.type}:1", f"{DEVICE.type}:0": f"{DEVICE.type}:1"})'
    words = ('"cuda', "'cuda", "lambda")
    mention = "cuda"

    def visit_Dict(self, node: cst.Dict) -> None:
        """Claim the tags stored in checkpoints from the rules of strings."""
        if not self._is_map(node):
            return
        for element in node.elements:
            if isinstance(element, cst.DictElement) and _is_tag(element.key):
                self.claim(element.key)

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        """Add the tags that the converted source writes."""
        tags = [each.key for each in original_node.elements if isinstance(each, cst.DictElement)]
        if not self._is_map(original_node) or not any(map(_is_tag, tags)):
            return updated_node
        if any(not _is_pure(each) for each in m.findall(original_node, _EFFECT)):
            self.left(original_node, "map_location", "the values call functions", "map the tags by hand")
            return updated_node
        known = {source_of(tag) for tag in tags}
        elements: list[cst.BaseDictElement] = []
        for old, new in zip(original_node.elements, updated_node.elements, strict=True):
            elements.append(new)
            if isinstance(old, cst.DictElement) and isinstance(new, cst.DictElement) and _is_tag(old.key):
                tag = self.neutral(old.key, old.key)
                if source_of(tag) not in known:
                    elements[-1] = new.with_changes(comma=_COMMA)
                    elements.append(new.with_changes(key=tag))
        if len(elements) == len(updated_node.elements):
            return updated_node
        self.note(original_node, "maps the tags of the device in use as well")
        return updated_node.with_changes(elements=elements)

    def _is_map(self, node: cst.Dict) -> bool:
        """Whether a dictionary is a map_location argument, or is assigned to a similar name."""
        parent = self.parent(node)
        if isinstance(parent, cst.Assign):
            return any(m.matches(each, m.AssignTarget(m.Name("map_location"))) for each in parent.targets)
        if not isinstance(parent, cst.Arg):
            return False
        if parent.keyword is not None:
            return parent.keyword.value == "map_location"
        call = self.parent(parent)
        return (
            isinstance(call, cst.Call)
            and "torch.load" in self.qualified(call.func)
            and call.args.index(parent) == 1
        )

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.BaseExpression:
        """Replace a function that moves every storage to a device by the device."""
        if not moves_storage(original_node):
            return updated_node
        call, new = (cst.ensure_type(each.body, cst.Call) for each in (original_node, updated_node))
        place = _device(call)
        if place is not None and not is_index(self, call.args[place].value):
            why = f"`{source_of(call.args[place].value)}` may be an index, a device or None"
            self.left(original_node, "map_location", why, "pass the device itself as map_location")
            return updated_node
        self.note(original_node, "every tensor of the checkpoint goes to the device in use")
        if place is None or is_current(self, call.args[place].value):
            return self.fitted(original_node, self.device())
        return self.fitted(original_node, self._indexed(call.args[place].value, new.args[place].value))

    def _indexed(self, original: cst.BaseExpression, index: cst.BaseExpression) -> cst.BaseExpression:
        """Return the device of an index that may be None."""
        if isinstance(index, cst.Integer):
            return self.formatted(self.device_type(), f":{index.value}", quote=self.quote(original))
        new = self.expression("torch.device({type}, {index})", index=index)
        if is_integer(self, original):
            return new
        return self.expression("{device} if {index} is None else {new}", index=index, new=new)


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
# Nodes that must not be evaluated twice.
_EFFECT = m.Call() | m.Await() | m.Yield() | m.NamedExpr()


def _is_tag(node: cst.BaseExpression) -> bool:
    return is_numbered(node) or is_formatted(node)


def _is_pure(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and (
        last(node.func) in words.PURE or words.INTEGERS.search(last(node.func)) is not None
    )


def _device(call: cst.Call) -> int | None:
    """Return the position of the device among the arguments of ``cuda``."""
    for position, argument in enumerate(call.args):
        if (argument.keyword.value if argument.keyword else ("device", "")[position > 0]) == "device":
            return position
    return None


def moves_storage(node: cst.Lambda) -> bool:
    """Whether a function of storage and location always moves the storage."""
    if len(node.params.params) != 2 or not m.matches(node, _STORAGE_CUDA):
        return False
    call = cst.ensure_type(node.body, cst.Call)
    return (
        not any(each.star for each in call.args)
        and source_of(call.func) == f"{node.params.params[0].name.value}.cuda"
    )
