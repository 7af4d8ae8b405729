"""Replace ``"cuda" if torch.cuda.is_available() else "cpu"`` by the device constant."""

from collections.abc import Callable

import libcst as cst

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.convert.strings import is_cpu, is_cuda


class DeviceChoice(Rule):
    """Choices between CUDA and the CPU."""

    code = "IM104"
    name = "device-choice"
    summary = "the choice between CUDA and the CPU is made once, where the device is defined"
    before = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    after = "device = DEVICE"
    words = ("is_available",)
    mention = "cuda"

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the replaced choice."""
        if self._is_chosen_device(node):
            self.claim(node.args[0])

    def visit_IfExp(self, node: cst.IfExp) -> None:
        """Claim the replaced choice."""
        if self._is_choice(node):
            self.claim(node.test)
            self.claim(node.body)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace ``torch.device("cuda" if torch.cuda.is_available() else "cpu")``."""
        if not self._is_chosen_device(original_node):
            return updated_node
        self.replaced(original_node.func)
        self.note(original_node, f"the choice of a device is `{self.context.device}`")
        return self.fitted(original_node, self.device())

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        """Replace the choice of a string or of two devices."""
        if not self._is_choice(original_node):
            return updated_node
        self.replaced(original_node.test)
        text = is_cuda(original_node.body)
        new = self.device_type() if text else self.device()
        self.note(
            original_node, f"the choice of a device is `{self.context.device}{'.type' if text else ''}`"
        )
        return self.fitted(original_node, new)

    def _is_chosen_device(self, call: cst.Call) -> bool:
        """Whether a call is torch.device of a choice; then the choice itself is not visited."""
        return self._makes(call, self._is_choice_of_strings)

    def _is_choice(self, node: cst.IfExp) -> bool:
        if not self._asks(node.test):
            return False
        strings = is_cuda(node.body) and is_cpu(node.orelse)
        return strings or (self._makes(node.body, is_cuda) and self._makes(node.orelse, is_cpu))

    def _is_choice_of_strings(self, node: cst.CSTNode) -> bool:
        return (
            isinstance(node, cst.IfExp)
            and is_cuda(node.body)
            and is_cpu(node.orelse)
            and self._asks(node.test)
        )

    def _makes(self, node: cst.BaseExpression, what: Callable[[cst.CSTNode], bool]) -> bool:
        """Whether a node is torch.device of a matching argument."""
        return (
            isinstance(node, cst.Call)
            and len(node.args) == 1
            and "torch.device" in self.qualified(node.func)
            and what(node.args[0].value)
        )

    def _asks(self, test: cst.BaseExpression) -> bool:
        return isinstance(test, cst.Call) and "torch.cuda.is_available" in self.qualified(test.func)
