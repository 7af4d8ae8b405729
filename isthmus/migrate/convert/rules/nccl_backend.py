"""``"nccl"`` becomes the default backend of the device."""

import libcst as cst

from isthmus.migrate.convert.backends import AVAILABLE, DEFAULT, is_gloo, is_nccl, is_word, pairs
from isthmus.migrate.convert.rule import Rule


class NcclBackend(Rule):
    """Backend names as arguments, assigned values or defaults."""

    code = "IM201"
    name = "nccl-backend"
    summary = "process groups use the backend of the device in use"
    before = 'torch.distributed.init_process_group("nccl")'
    after = "torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device(DEVICE))"
    words = ("nccl",)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        """Claim a choice that is replaced."""
        if self._is_choice(node):
            self.claim(node.test)
            self.claim(node.body)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        """Replace ``"nccl" if torch.cuda.is_available() else "gloo"`` by the device's default."""
        if not self._is_choice(original_node):
            return updated_node
        self.replaced(original_node.test)
        self.note(original_node, "the choice of a backend is the default of the device")
        return self.fitted(original_node, self.expression(DEFAULT))

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        """Replace one name, or the pair for CUDA among several."""
        parent = self.parent(original_node)
        if isinstance(parent, cst.Comparison | cst.ComparisonTarget | cst.Element):
            return updated_node
        if is_word(original_node, parent, self.parent(parent)):
            return updated_node
        if is_nccl(original_node):
            self.note(original_node, '`"nccl"` becomes the default backend of the device')
            return self.expression(DEFAULT)
        found = pairs(original_node)
        return self._pairs(original_node, found) if found else updated_node

    def _pairs(self, original: cst.SimpleString, found: list[str]) -> cst.BaseExpression:
        """Replace CUDA's pair by the device's; on the CPU only the other pairs remain."""
        position = found.index("cuda:nccl")
        before = "".join(f"{each}," for each in found[:position])
        after = "".join(f",{each}" for each in found[position + 1 :])
        parts = (before, self.device_type(), ":", self.expression(DEFAULT), after)
        quote = self.quote(original)
        new: cst.BaseExpression = self.formatted(*(part for part in parts if part != ""), quote=quote)
        self.note(original, "the pair for CUDA becomes the device's")
        if self.context.target:
            return new
        others = ",".join(each for each in found if each != "cuda:nccl")
        rest = cst.SimpleString(f"{quote}{others}{quote}")
        test = f"{{type}} != {quote}cpu{quote}"
        new = self.expression(f"{{new}} if {test} else {{rest}}", new=new, rest=rest)
        return self.fitted(original, new)

    def _is_choice(self, node: cst.IfExp) -> bool:
        asks = isinstance(node.test, cst.Call) and not set(AVAILABLE).isdisjoint(
            self.qualified(node.test.func)
        )
        return asks and is_nccl(node.body) and is_gloo(node.orelse)
