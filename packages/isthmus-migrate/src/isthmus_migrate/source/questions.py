"""Questions that a place of a module asks of CUDA."""

import ast

from isthmus_migrate.source import cuda_names
from isthmus_migrate.source.findings import Severity
from isthmus_migrate.source.module import Module


def is_question(module: Module, node: ast.AST) -> bool:
    """Whether an expression, or what it is an element of, is what only CUDA answers: its compute capability."""
    while isinstance(node, ast.Subscript | ast.Call):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    if not isinstance(node, ast.Attribute | ast.Name):
        return False
    if (
        isinstance(node, ast.Attribute)
        and node.attr in cuda_names.CAPABILITY
        and isinstance(node.value, ast.Call)
    ):
        return module.names.qualified(node.value.func) == "torch.cuda.get_device_properties"
    known = cuda_names.look_up(module.names.qualified(node) or "")
    return known is not None and known.guard is cuda_names.Guard.CUDA


def is_portable(module: Module, node: ast.AST) -> bool:
    """Whether a node is of CUDA, and has a form for any accelerator."""
    if isinstance(node, ast.Constant):
        return names_type(node, "cuda")
    if not isinstance(node, ast.Attribute | ast.Name):
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("cuda", "is_cuda", "to"):
        return module.names.qualified(node) != "torch.cuda"
    above = module.parents[node]
    if is_question(module, module.parents[above]):  # torch.cuda.get_device_properties().major
        return False
    known = cuda_names.look_up(module.names.qualified(node) or "")
    return (
        known is not None and known.guard is not cuda_names.Guard.CUDA and known.severity is not Severity.NONE
    )


def names_type(node: ast.expr, text: str) -> bool:
    """Whether a node is a device type, or a device of this type."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.partition(":")[0] == text
    )
