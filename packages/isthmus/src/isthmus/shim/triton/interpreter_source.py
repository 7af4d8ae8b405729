"""The source of a kernel's function, rewritten for Triton's interpreter."""

import ast
from collections.abc import Callable
from typing import Any

from triton.runtime.interpreter import ASTTransformer, InterpretedFunction

from isthmus_common.patches import Scope


def install(scope: Scope) -> None:
    """Rewrite loops too; Triton's own rewriting is of assignments."""
    scope.replace(
        "triton.runtime.interpreter.FunctionRewriter.ast_transformer",
        lambda _: _Transformer(),
        "leaves the variable of a loop a Python number, without the methods of a tensor",
    )


class _Transformer(ASTTransformer):  # type: ignore[misc]
    """Makes a tensor of the variable of ``for i in range(...)``, as Triton's compiler does."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        function = node.iter.func if isinstance(node.iter, ast.Call) else None
        name = getattr(function, "id", getattr(function, "attr", ""))
        if name == "range" and isinstance(node.target, ast.Name):
            value = ast.Name(node.target.id, ast.Load())
            node.body.insert(0, self.visit(ast.Assign([ast.Name(node.target.id, ast.Store())], value)))
            ast.copy_location(node.body[0], node)
        return node


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, rewritten for the interpreter."""
    found = InterpretedFunction.rewritten_fn.get(function)
    return found or InterpretedFunction(function).rewrite()
