"""Move imports from ``torch.cuda.amp`` to the same names in ``torch.amp``."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.amp_uses import is_movable
from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class AmpImports(Rule):
    """Imports from ``torch.amp``."""

    code = "IM131"
    name = "amp-imports"
    summary = "imports mixed precision from torch.amp"
    before = "from torch.cuda.amp import autocast, GradScaler"
    after = "from torch.amp import autocast, GradScaler"
    words = ("amp",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the imports whose names and uses are all in ``torch.amp``."""
        imports: list[ast.Import | ast.ImportFrom] = [*module.of(ast.Import), *module.of(ast.ImportFrom)]
        yield from (self._move_import(module, node) for node in imports if is_movable(module, node))

    def _move_import(self, module: Module, node: ast.Import | ast.ImportFrom) -> Finding:
        if isinstance(node, ast.Import):
            old, new = node.names[0].name, "torch.amp"
        else:
            old = node.module or ""
            new = "torch" if old == "torch.cuda" else "torch.amp"
        start = module.text.index(old, module.start(node))
        draft = Draft(module).swap(node, start, start + len(old), "{new}", new=new)
        return self.automatic_change(node, old, "is imported", f"becomes {new}", draft)
