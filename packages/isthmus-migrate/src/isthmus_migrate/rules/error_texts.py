"""Rule IM132: tests for CUDA's out-of-memory error by its text."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.draft import NOT, Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_ASK = frozenset("startswith find index count search match".split())  # methods, and functions of re
_MESSAGE = "CUDA out of memory"
_CLASS = "torch.OutOfMemoryError"


class ErrorTexts(Rule):
    """Tests for the out-of-memory error by its text."""

    code = "IM132"
    name = "error-texts"
    summary = "a test for CUDA's out-of-memory message becomes a test for PyTorch's exception"
    before = 'if "CUDA out of memory" in str(error):'
    after = "if isinstance(error, torch.OutOfMemoryError):"
    words = ("out of memory",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find ``"CUDA out of memory" in str(error)`` and the like."""
        for constant in module.of(ast.Constant):
            if "out of memory" in text(constant) and _is_asked(module, constant):
                yield self._judge(module, constant)

    def _judge(self, module: Module, node: ast.Constant) -> Finding:
        subject = f'"{text(node)}"'
        if not text(node).lower().startswith("cuda"):
            advice = "stays: messages of other accelerators contain it too"
            return self.already_portable(module, node, subject, "is part of an out-of-memory message", advice)
        said = "is CUDA's out-of-memory message; other accelerators have other messages"
        test = module.parents[node]
        error = _caught_error(module, test) if isinstance(test, ast.Compare) and test.left is node else ""
        if not error or not text(node).startswith(_MESSAGE) or not isinstance(test, ast.Compare):
            advice = f"catch {_CLASS} (`isthmus run` raises CUDA's message)"
            return self.undecided(module, node, subject, said, advice)
        if any(text(node) in each for each in module.around.project.raised):
            said, advice = (
                "is the message of an error that the project raises itself",
                f"raise {_CLASS} there",
            )
            return self.undecided(module, node, subject, said, f"{advice}, and test for that here")
        template = f"isinstance({error}, {_CLASS})"
        if isinstance(test.ops[0], ast.NotIn):
            draft = Draft(module).replace(test, f"not {template}", NOT)
        else:
            draft = Draft(module).replace(test, template)
        evidence = f"`{error}` is what an `except` around it caught"
        return self.automatic_change(test, subject, said, f"becomes a test for {_CLASS}", draft, evidence)


def _caught_error(module: Module, test: ast.Compare) -> str:
    """Return the exception whose text ``... in str(error)`` searches, if a handler around it binds it; else ""."""
    call = test.comparators[0]
    if (
        len(test.ops) != 1
        or not isinstance(test.ops[0], ast.In | ast.NotIn)
        or not isinstance(call, ast.Call)
    ):
        return ""
    is_text = isinstance(call.func, ast.Name) and call.func.id in ("str", "repr") and len(call.args) == 1
    name = call.args[0].id if is_text and isinstance(call.args[0], ast.Name) else ""
    handlers = (each for each in module.enclosing(test) if isinstance(each, ast.ExceptHandler))
    return name if any(each.name == name for each in handlers) else ""


def _is_asked(module: Module, node: ast.expr) -> bool:
    """Whether a string, or the collection that contains it, is searched for in a text."""
    holder: ast.AST = module.parents[node]
    while isinstance(holder, ast.List | ast.Tuple | ast.Set):
        holder = module.parents[holder]
    if isinstance(holder, ast.Call):
        return isinstance(holder.func, ast.Attribute) and holder.func.attr in _ASK
    return isinstance(holder, ast.Compare | ast.comprehension | ast.For | ast.Assign)
