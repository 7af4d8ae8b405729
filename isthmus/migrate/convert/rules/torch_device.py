"""``torch.device("cuda")`` becomes the device in use."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.convert.strings import is_cuda


class TorchDevice(Rule):
    """Devices created from a literal."""

    code = "IM105"
    name = "torch-device"
    summary = "a CUDA device becomes the device in use"
    before = 'device = torch.device("cuda")'
    after = "device = DEVICE"
    words = ("device(",)
    mention = "cuda"

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the type from the rule of strings."""
        if self._is_device(node):
            self.claim(node.args[0].value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace ``torch.device("cuda")``, and the type of ``torch.device("cuda", index)``."""
        if not self._is_device(original_node):
            return updated_node
        self.replaced(original_node.func)
        if len(original_node.args) == 1:
            self.note(original_node, f'`torch.device("cuda")` becomes `{self.context.device}`')
            return self.fitted(original_node, self.device())
        self.note(original_node, f"the type of a device becomes `{self.context.device}.type`")
        first = updated_node.args[0].with_changes(value=self.device_type())
        return updated_node.with_changes(args=[first, *updated_node.args[1:]])

    def _is_device(self, call: cst.Call) -> bool:
        return (
            "torch.device" in self.qualified(call.func)
            and len(call.args) in (1, 2)
            and m.matches(call.args[0], m.Arg(keyword=None) | m.Arg(keyword=m.Name("type")))
            and is_cuda(call.args[0].value)
        )
