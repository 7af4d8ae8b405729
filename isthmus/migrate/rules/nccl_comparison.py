"""Tests whether a backend is NCCL, or NCCL is available."""

import ast
from collections.abc import Iterator

from isthmus.migrate.rules import backends
from isthmus.migrate.rules.backends import ASKED, BECOMES, DEFAULT
from isthmus.migrate.rules.draft import Draft
from isthmus.migrate.rules.rule import Rule, is_read
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.verdicts import Use

_COLLECTIONS = (ast.List, ast.Tuple, ast.Set)
_CHECK = (
    "compare with torch.distributed.get_default_backend_for_device(device) if the other side is a backend"
)
_STAYS = "stands in front of code for NCCL only"


class NcclComparison(Rule):
    """Comparisons with ``"nccl"``, lists of backends, and ``is_nccl_available``."""

    code = "IM202"
    name = "nccl-comparison"
    summary = "tests for NCCL become tests for the backend of the device in use"
    before = 'if torch.distributed.get_backend() == "nccl":'
    after = "if torch.distributed.get_backend() == torch.distributed.get_default_backend_for_device(DEVICE):"
    words = ("nccl", "NCCL")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find questions for NCCL, compared names, and names in lists."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            if is_read(node) and module.names.qualified(node) in ASKED:
                yield self._question(module, node)
        for node in (*module.of(ast.Constant), *module.of(ast.Attribute)):
            parent = module.parents[node]
            if not backends.is_nccl(module, node):
                continue
            if isinstance(parent, ast.Compare):
                yield self._compared(module, node, parent)
            elif isinstance(parent, _COLLECTIONS):
                yield from self._listed(module, node, parent)

    def _question(self, module: Module, node: ast.expr) -> Finding:
        """Replace ``is_nccl_available()``."""
        call = module.parents[node]
        place = (node, "torch.distributed.is_nccl_available", "tests for CUDA's collectives")
        if not isinstance(call, ast.Call) or call.func is not node:
            return self.left(module, *place, f"call torch.distributed.is_backend_available({_SHOWN}) instead")
        if backends.keeps_nccl(module, call):
            return self.right(module, *place[:2], _STAYS, "stays")
        draft = Draft(module).replace(call, f"torch.distributed.is_backend_available({DEFAULT})")
        advice = "becomes torch.distributed.is_backend_available of the device's default backend"
        return self.changed(*place, advice, draft)

    def _compared(self, module: Module, node: ast.expr, test: ast.Compare) -> Finding:
        others = [each for each in (test.left, *test.comparators) if each is not node]
        return self._end(module, node, test, others)

    def _listed(self, module: Module, node: ast.expr, holder: ast.expr) -> Iterator[Finding]:
        test = module.parents[holder]
        if isinstance(test, ast.Compare):
            yield self._end(
                module, node, test, [each for each in (test.left, *test.comparators) if each is not holder]
            )
        elif not isinstance(test, ast.Subscript):  # Literal["nccl", "gloo"]
            yield self._end(module, node, None, [])

    def _end(
        self, module: Module, node: ast.expr, test: ast.Compare | None, others: list[ast.expr]
    ) -> Finding:
        """Return the finding of a name that is compared with others."""
        known = backends.verdict(module, node)
        said = "is compared with a backend" if test is not None else "is one of several names"
        if test is not None and backends.keeps_nccl(module, test):
            return self.right(module, node, '"nccl"', _STAYS, "stays")
        if others and all(backends.is_current(module, each) for each in others):
            evidence = f"compared with {module.code(others[0])}"
        elif known is not None and known.certain and known.use is Use.BACKEND:
            evidence = known.why
        elif known is not None and known.certain and known.use is Use.WORD:
            return self.right(module, node, '"nccl"', "is not used as a backend", "stays")
        else:
            said = "may be compared with a backend" if test is not None else "may be one of several backends"
            return self.unclear(module, node, '"nccl"', said, _CHECK)
        return self.changed(node, '"nccl"', said, BECOMES, Draft(module).replace(node, DEFAULT), evidence)


_SHOWN = "torch.distributed.get_default_backend_for_device(DEVICE)"
