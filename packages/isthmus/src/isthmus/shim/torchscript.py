"""TorchScript: translate CUDA in the compiled source, because its interpreter bypasses Python proxies."""

import ast
import functools
from collections.abc import Callable
from typing import Any

from isthmus.shim.accelerator import Accelerator
from isthmus_common.patches import Scope


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Let ``torch.jit.script`` compile ``"cuda"`` as the name of the accelerator."""
    scope.replace(
        "torch.jit.frontend.parse_def",
        functools.partial(_parse_def, accelerator),
        "compiles 'cuda', x.cuda() and x.is_cuda for the accelerator",
        expects=("fn",),
    )


def _parse_def(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def parse_def(fn: Any) -> Any:
        parsed = original(fn)
        tree = ast.fix_missing_locations(_Translate(accelerator).visit(parsed.ast))
        return parsed._replace(ast=tree)

    return parse_def


class _Translate(ast.NodeTransformer):
    """Translates names of CUDA; comparisons such as ``x.device.type == "cuda"`` keep their result."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str):
            node.value = self._accelerator.name(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "cuda" and not node.args:
            function.attr = "to"
            node.args = [self._device(node)]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr != "is_cuda":
            return node
        device = ast.Attribute(node.value, "device", ast.Load())
        kind = ast.Attribute(device, "type", ast.Load())
        test = ast.Compare(kind, [ast.Eq()], [self._device(node)])
        for part in (device, kind, test):
            ast.copy_location(part, node)
        return test

    def _device(self, place: ast.expr) -> ast.Constant:
        return ast.copy_location(ast.Constant(self._accelerator.type), place)
