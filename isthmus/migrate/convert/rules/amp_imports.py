"""Move imports from ``torch.cuda.amp`` to the same names in ``torch.amp``."""

import re

import libcst as cst
import libcst.matchers as m
from libcst.helpers import get_full_name_for_node

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.source.cuda_names import AMP_MODULES, AMP_NAMES

# A call with unknown positional arguments: torch.amp takes them in another order.
_UNPACKS = re.compile(r"\bautocast\(\s*\*(?!\*)")


class AmpImports(Rule):
    """Imports from ``torch.amp``."""

    code = "IM131"
    name = "amp-imports"
    summary = "imports mixed precision from torch.amp"
    before = "from torch.cuda.amp import autocast, GradScaler"
    after = "from torch.amp import autocast, GradScaler"
    words = ("amp",)
    mention = "cuda"

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        """Rewrite ``from torch.cuda.amp import autocast`` and ``from torch.cuda import amp``."""
        if not _moves_from(original_node, self.context.source):
            return updated_node
        module = "torch.amp" if _module(original_node) in AMP_MODULES else "torch"
        self.note(original_node, f"imports from `{module}`")
        return updated_node.with_changes(module=cst.parse_expression(module))

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        """Rewrite ``import torch.cuda.amp as amp``."""
        if not _moves(original_node):
            return updated_node
        self.note(original_node, "imports `torch.amp`")
        alias = updated_node.names[0].with_changes(name=cst.parse_expression("torch.amp"))
        return updated_node.with_changes(names=[alias])


def moved_names(module: cst.Module, source: str) -> set[str]:
    """Return the names bound by imports that move to torch.amp."""
    names = set()
    for node in m.findall(module, m.ImportFrom() | m.Import()):
        if isinstance(node, cst.ImportFrom) and _moves_from(node, source):
            names |= _bound(node)
        elif isinstance(node, cst.Import) and _moves(node) and node.names[0].asname is not None:
            names |= {str(node.names[0].evaluated_alias)}
    return names


def _module(node: cst.ImportFrom) -> str:
    absolute = node.module is not None and not node.relative
    return get_full_name_for_node(node.module) or "" if absolute and node.module is not None else ""


def _bound(node: cst.ImportFrom) -> set[str]:
    assert not isinstance(node.names, cst.ImportStar)
    return {alias.evaluated_alias or alias.evaluated_name for alias in node.names}


def _moves_from(node: cst.ImportFrom, source: str) -> bool:
    """Whether every imported name exists in torch.amp and is used in the source."""
    if isinstance(node.names, cst.ImportStar):
        return False
    names = {alias.evaluated_name for alias in node.names}
    known = _module(node) in AMP_MODULES and names <= AMP_NAMES
    if not known and not (_module(node) == "torch.cuda" and names == {"amp"}):
        return False
    if _UNPACKS.search(source):  # a call that stays needs its import
        return False
    return all(len(re.findall(rf"\b{name}\b", source)) > 1 for name in _bound(node))


def _moves(node: cst.Import) -> bool:
    return len(node.names) == 1 and node.names[0].evaluated_name == "torch.cuda.amp"
