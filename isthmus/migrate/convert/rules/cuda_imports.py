"""Remove imports of CUDA names that other rules replaced."""

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst
from libcst.metadata import ScopeProvider

from isthmus.migrate.convert.rule import Context, Rule

_PACKAGES = ("torch.cuda", "apex")
Imports = TypeVar("Imports", cst.Import, cst.ImportFrom)
Block = TypeVar("Block", cst.IndentedBlock, cst.Module)


class CudaImports(Rule):
    """Imports of names that are no longer used."""

    code = "IM130"
    name = "cuda-imports"
    summary = "drops imports of CUDA names whose uses were all replaced"
    before = "from torch.cuda import synchronize"
    after = ""
    words = ("from torch.cuda", "from torch import cuda", "import torch.cuda", "from apex", "import apex")
    order = 95

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._comments: set[cst.CSTNode] = set()  # placeholders with the comments of dropped lines

    def is_needed(self) -> bool:
        """Whether uses of any name but PyTorch's were replaced."""
        return bool(self.context.converted - {self.context.torch})

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

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        """Keep the comments above a line that is dropped."""
        if updated_node.body or not any(line.comment for line in updated_node.leading_lines):
            return updated_node
        line = cst.SimpleStatementLine([cst.Pass()], updated_node.leading_lines)
        self._comments.add(line)
        return line

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Move these comments to the next statement."""
        return self._with_comments(updated_node)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Move comments at the end of the module to its footer."""
        return self._with_comments(updated_node)

    def _with_comments(self, block: Block) -> Block:
        if self._comments.isdisjoint(block.body) or self._comments.issuperset(block.body):
            return block
        body: list[cst.BaseStatement | cst.BaseSmallStatement] = []
        above: list[cst.EmptyLine] = []
        statement: cst.BaseStatement | cst.BaseSmallStatement
        for statement in block.body:
            lines: list[cst.EmptyLine] = [*above, *getattr(statement, "leading_lines", ())]
            above = lines if statement in self._comments else []
            if statement not in self._comments:
                body.append(statement.with_changes(leading_lines=lines))
        return block.with_changes(body=body, footer=[*above, *block.footer])

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
            self.note(original, f"the import of `{alias.evaluated_name}` is dropped: it is no longer used")
        assert not isinstance(original.names, cst.ImportStar)
        kept = [each for each in original.names if each not in unused]
        if not kept:
            return cst.RemoveFromParent()
        if kept[-1] is not original.names[-1]:
            kept[-1] = kept[-1].with_changes(comma=original.names[-1].comma)
        return updated.with_changes(names=kept)


def _of_cuda(name: str) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in _PACKAGES)
