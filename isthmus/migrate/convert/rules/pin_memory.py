"""``pin_memory_device`` of data loaders."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.rule import Rule

_PINNED = m.Arg(keyword=m.Name("pin_memory_device"))


class PinMemoryDevice(Rule):
    """``pin_memory_device`` of data loaders, which PyTorch ignores."""

    code = "IM123"
    name = "pin-memory-device"
    summary = "memory is pinned for the accelerator in use without naming it"
    before = 'DataLoader(data, pin_memory=True, pin_memory_device="cuda")'
    after = "DataLoader(data, pin_memory=True)"
    words = ("pin_memory_device",)

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the argument from the rule of strings."""
        for argument in node.args:
            if m.matches(argument, _PINNED):
                self.claim(argument.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Drop the argument, which PyTorch ignores."""
        kept = [argument for argument in updated_node.args if not m.matches(argument, _PINNED)]
        if len(kept) == len(updated_node.args):
            return updated_node
        self.note(original_node, "`pin_memory_device` is dropped: PyTorch pins for the accelerator in use")
        if kept:
            kept[-1] = kept[-1].with_changes(comma=updated_node.args[-1].comma)
        return updated_node.with_changes(args=kept)
