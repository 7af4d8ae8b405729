"""Classify strings and choices between strings as a device, a backend, or text."""

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.source import words
from isthmus.migrate.source.module import Module

AVAILABLE = frozenset(
    {"torch.cuda.is_available", "torch.accelerator.is_available", "torch.distributed.is_nccl_available"}
)
NUMBERED = re.compile(r"cuda:\d+")
_PERCENT = re.compile(r"cuda:%[dis]")
_BRACES = re.compile(r"cuda:\{0?(:d)?\}")
_DEVICE = re.compile(r"(\.type|\b\w*dev(ice)?(_?(type|name|str|string))?\W*)$", re.IGNORECASE)
_CONSTANTS = ("DEVICE", "ACCELERATOR")  # prefixes of the device's names in converted source


def text(node: ast.AST | None) -> str:
    """Return the text of a string; "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def formats(node: ast.AST) -> bool:
    """Whether a node appends a number to ``"cuda:"``: an f-string, ``+``, ``%`` or ``format``."""
    if isinstance(node, ast.JoinedStr):
        return len(node.values) == 2 and text(node.values[0]) == "cuda:"
    if isinstance(node, ast.BinOp):
        left = text(node.left)
        adds = isinstance(node.op, ast.Add) and left == "cuda:"
        return adds or (isinstance(node.op, ast.Mod) and _PERCENT.fullmatch(left) is not None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        takes_one = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred) and not node.keywords
        return takes_one and _BRACES.fullmatch(text(node.func.value)) is not None
    return False


def is_own_type(node: ast.expr) -> bool:
    """Whether an expression is ``DEVICE.type`` as written by convert."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "type"
        and isinstance(node.value, ast.Name)
        and node.value.id.isupper()
    )


def is_on_cuda_only(module: Module, node: ast.AST) -> bool:
    """Whether a node is under a test of convert's constant that restricts it to CUDA.

    A test of any other device is converted to a test for an accelerator.
    """
    inner = node
    for outer in module.enclosing(node):
        if isinstance(outer, ast.If) and inner in outer.body and _says_cuda(outer.test):
            return True
        if isinstance(outer, ast.IfExp) and inner is outer.body and _says_cuda(outer.test):
            return True
        inner = outer
    return False


def _says_cuda(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and any(_says_cuda(each) for each in test.values)
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Attribute)
        and test.left.attr == "type"
        and isinstance(test.left.value, ast.Name)
        and test.left.value.id.startswith(_CONSTANTS)
        and isinstance(test.ops[0], ast.Eq)
        and text(test.comparators[0]) == "cuda"
    )


def is_device(module: Module, node: ast.expr) -> bool:
    """Whether an expression's name suggests a device or the name of one."""
    return _DEVICE.search(ast.get_source_segment(module.text, node) or "") is not None


def is_docstring(module: Module, node: ast.expr) -> bool:
    """Whether a string is a statement of its own."""
    return isinstance(module.parents[node], ast.Expr)


def is_word(module: Module, node: ast.expr) -> bool:
    """Whether a string is text, a key or a docstring."""
    parent = module.parents[node]
    if _is_identifier(module, node):
        return True
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    if isinstance(parent, ast.keyword):
        return parent.arg in words.KEYWORDS
    if isinstance(parent, ast.Call):
        return parent.func is not node and _takes_words(module, parent.func)
    if isinstance(parent, ast.Tuple) and isinstance(module.parents[parent], ast.Subscript):
        return True  # Literal["cpu", "cuda"]
    return isinstance(parent, (ast.Expr, ast.Subscript, ast.MatchValue, ast.JoinedStr, ast.ClassDef))


def _is_identifier(module: Module, node: ast.expr) -> bool:
    """Whether a string is a Python identifier, or is next to DEVICE.type."""
    holder: ast.AST = module.parents[node]
    while isinstance(holder, (ast.List, ast.Tuple, ast.Set)):
        if any(isinstance(each, ast.Attribute) and each.attr == "type" for each in holder.elts):
            return True
        holder = module.parents[holder]
    if isinstance(holder, ast.Call):
        return module.names.qualified(holder.func) == "collections.namedtuple"
    if not isinstance(holder, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return False
    targets = holder.targets if isinstance(holder, ast.Assign) else [holder.target]
    return any(isinstance(each, ast.Name) and each.id in words.IDENTIFIERS for each in targets)


def is_enum_value(module: Module, node: ast.expr) -> bool:
    """Whether a string is a value of an Enum, which other values are compared with."""
    holder = module.parents[node]
    if not isinstance(holder, (ast.Assign, ast.AnnAssign)):
        return False
    owner = module.parents[holder]
    return isinstance(owner, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in owner.bases)


def _takes_words(module: Module, function: ast.expr) -> bool:
    if (module.names.qualified(function) or "").startswith("torch.library."):
        return True
    if isinstance(function, ast.Attribute):
        return function.attr in words.METHODS
    return isinstance(function, ast.Name) and function.id in words.FUNCTIONS


def choices(module: Module) -> Iterator[tuple[ast.expr, ast.IfExp, str]]:
    """Yield choices that are converted as a whole: the node, its ``if``, and ``"device"`` or ``"backend"``."""
    for node in module.of(ast.IfExp):
        if not (isinstance(node.test, ast.Call) and module.names.qualified(node.test.func) in AVAILABLE):
            continue
        if text(node.body) == "nccl" and text(node.orelse) == "gloo":
            yield node, node, "backend"
        elif module.names.qualified(node.test.func) == "torch.cuda.is_available":
            yield from ((whole, node, "device") for whole in _device_choice(module, node))


def _device_choice(module: Module, node: ast.IfExp) -> Iterator[ast.expr]:
    call, strings = module.parents[node], (text(node.body), text(node.orelse))
    if isinstance(call, ast.Call) and makes_device(module, call):
        if strings == ("cuda", "cpu"):
            yield call
        return
    devices = makes_device(module, node.body, "cuda") and makes_device(module, node.orelse, "cpu")
    if devices or strings == ("cuda", "cpu"):
        yield node


def makes_device(module: Module, node: ast.expr, *types: str) -> bool:
    """Whether a node is torch.device of one argument, which is one of these strings."""
    return (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and not node.keywords
        and module.names.qualified(node.func) == "torch.device"
        and (not types or text(node.args[0]) in types)
    )


def claimed(module: Module) -> set[ast.AST]:
    """Return the nodes within choices that are converted as a whole; they have no findings of their own."""
    return {
        inner
        for whole, choice, _ in choices(module)
        for part in (whole, choice.test, choice.body, choice.orelse)
        for inner in ast.walk(part)
    }
