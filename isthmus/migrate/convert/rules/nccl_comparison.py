"""Tests whether a backend is NCCL, or NCCL is available."""

import libcst as cst
import libcst.matchers as m

from isthmus.migrate.convert.backends import DEFAULT, is_nccl
from isthmus.migrate.convert.rule import Rule

_COLLECTION = m.List() | m.Tuple() | m.Set()


class NcclComparison(Rule):
    """Comparisons with ``"nccl"``, lists of backends, and ``is_nccl_available``."""

    code = "IM202"
    name = "nccl-comparison"
    summary = "tests for NCCL become tests for the backend of the device in use"
    before = 'if backend == "nccl":'
    after = "if backend == torch.distributed.get_default_backend_for_device(DEVICE):"
    words = ("nccl",)

    def visit_Call(self, node: cst.Call) -> None:
        """Claim the called name."""
        if self._is_question(node):
            self.claim(node.func)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Replace ``is_nccl_available()``."""
        if not self._is_question(original_node):
            return updated_node
        self.replaced(original_node.func)
        self.note(original_node, "`is_nccl_available` becomes `is_backend_available`")
        return self.expression(f"torch.distributed.is_backend_available({DEFAULT})")

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.BaseExpression:
        """Replace a name in a comparison or a list."""
        if not is_nccl(original_node):
            return updated_node
        parent = self.parent(original_node)
        listed = isinstance(parent, cst.Element) and m.matches(self.parent(parent), _COLLECTION)
        if not listed and not isinstance(parent, cst.Comparison | cst.ComparisonTarget):
            return updated_node
        self.note(original_node, '`"nccl"` becomes the default backend of the device')
        return self.expression(DEFAULT)

    def _is_question(self, node: cst.Call) -> bool:
        return not {
            "torch.distributed.is_nccl_available",
            "torch.distributed.distributed_c10d.is_nccl_available",
        }.isdisjoint(self.qualified(node.func))
