"""Imports from ``torch.cuda`` of what the other rules replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst
from libcst.metadata import ScopeProvider

from isthmus.migrate.convert.rule import Rule

_PACKAGES = ("torch.cuda", "apex")
Imports = TypeVar("Imports", cst.Import, cst.ImportFrom)


class CudaImports(Rule):
    """Drops the names that nothing uses any longer."""

    code = "IM130"
    name = "cuda-imports"
    summary = "drops imports of CUDA names whose uses were all replaced"
    before = "from torch.cuda import synchronize"
    after = ""
    words = ("from torch.cuda", "from torch import cuda", "import torch.cuda", "from apex", "import apex")
    order = 95

    def leave_Import(
        self, original_node: cst.Import, updated_node: cst.Import
    ) -> cst.Import | cst.RemovalSentinel:
        """Drop ``import torch.cuda.amp as amp`` and ``import apex``."""
        aliased = [
            each
            for each in original_node.names
            if each.asname is not None or each.evaluated_name.partition(".")[0] == "apex"
        ]
        unused = [
            each for each in aliased if _of_cuda(each.evaluated_name) and self._is_unused(original_node, each)
        ]
        return self._without(original_node, updated_node, unused)

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        """Drop names of ``from torch.cuda import a, b`` and ``from torch import cuda``."""
        names = original_node.names
        if isinstance(names, cst.ImportStar) or original_node.module is None or original_node.relative:
            return updated_node
        module = cst.helpers.get_full_name_for_node(original_node.module)
        unused = [
            each
            for each in names
            if _of_cuda(f"{module}.{each.evaluated_name}") and self._is_unused(original_node, each)
        ]
        return self._without(original_node, updated_node, unused)

    def _is_unused(self, original: cst.Import | cst.ImportFrom, alias: cst.ImportAlias) -> bool:
        name = alias.evaluated_alias or alias.evaluated_name
        scope = self.get_metadata(ScopeProvider, original)
        if name not in self.context.converted or scope is None:
            return False
        return not any(assignment.references for assignment in scope[name])

    def _without(
        self, original: Imports, updated: Imports, unused: Sequence[cst.ImportAlias]
    ) -> Imports | cst.RemovalSentinel:
        if not unused:
            return updated
        for alias in unused:
            self.note(
                original, f"the import of `{alias.evaluated_name}` is dropped: nothing uses it any longer"
            )
        assert not isinstance(original.names, cst.ImportStar)
        kept = [each for each in original.names if each not in unused]
        if not kept:
            return cst.RemoveFromParent()
        if kept[-1] is not original.names[-1]:
            kept[-1] = kept[-1].with_changes(comma=original.names[-1].comma)
        return updated.with_changes(names=kept)


def _of_cuda(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in _PACKAGES)
