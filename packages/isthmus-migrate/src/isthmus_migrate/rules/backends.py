"""Names of collective backends in a source, and what shows that a string is one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import TERNARY, Draft
from isthmus_migrate.source import versions, words
from isthmus_migrate.source.assignments import assigned_values
from isthmus_migrate.source.conditions import AVAILABLE, conditions, implies_cuda
from isthmus_migrate.source.cuda_branches import decision, guarded_nodes
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import Use, Verdict, place_of

DEFAULT = "torch.distributed.get_default_backend_for_device({device})"
BECOMES = "becomes torch.distributed.get_default_backend_for_device(DEVICE)"
ASKED = frozenset(
    {"torch.distributed.is_nccl_available", "torch.distributed.distributed_c10d.is_nccl_available"}
)
_PAIRS = re.compile(r"(\w+:\w+)(,\w+:\w+)+")
# Positions of the parameter `backend` of torch.distributed's functions.
_POSITIONS = {
    "init_process_group": 0,
    "is_backend_available": 0,
    "Backend": 0,
    "new_group": 2,
    "new_subgroups_by_enumeration": 2,
    "new_subgroups": 3,
}
_CURRENT = frozenset({"torch.distributed.get_backend", "torch.distributed.distributed_c10d.get_backend"})
_MESSAGES = re.compile(r"\bNCCL(_|\b)")
_SAID = re.compile(r"\bnccl\b", re.IGNORECASE)
_NAMES = re.compile(r"^nccl[A-Z]\w*$|ProcessGroupNCCL|NCCL_")

_NCCL_OR_GLOO = "{q}nccl{q} if torch.cuda.is_available() else {q}gloo{q}"


def with_default(module: Module, node: ast.expr) -> tuple[Draft, str]:
    """Return the edits that make a backend that of the device in use, and what it becomes in words."""
    draft = Draft(module)
    if not module.around.target and versions.find_missing(DEFAULT, module.around.torch):
        return draft.replace(node, _NCCL_OR_GLOO, TERNARY), 'becomes "nccl" or "gloo"'
    return draft.replace(node, DEFAULT), BECOMES


def is_nccl(module: Module, node: ast.AST) -> bool:
    """Whether a node is the string ``"nccl"``, or ``torch.distributed.Backend.NCCL``."""
    return text(node) == "nccl" or is_member(module, node)


def is_member(module: Module, node: ast.AST) -> bool:
    """Whether a node is ``torch.distributed.Backend.NCCL``."""
    named = isinstance(node, ast.Attribute) and node.attr == "NCCL"
    return named and (module.names.qualified(node) or "").endswith("distributed.Backend.NCCL")


def pairs(node: ast.AST) -> list[str]:
    """Return ``["cuda:nccl", "cpu:gloo"]`` for a string with both; empty for any other node."""
    found = text(node).split(",") if _PAIRS.fullmatch(text(node)) else []
    return found if "cuda:nccl" in found else []


def is_choice(module: Module, node: ast.IfExp) -> bool:
    """Whether a node is ``"nccl" if torch.cuda.is_available() else "gloo"``, or the same negated."""
    test, first, second = node.test, node.body, node.orelse
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, first, second = test.operand, second, first
    asks = isinstance(test, ast.Call) and module.names.qualified(test.func) in AVAILABLE
    return asks and is_nccl(module, first) and text(second) == "gloo"


def verdict(module: Module, node: ast.expr) -> Verdict | None:
    """Return what the source shows a node to be used as: by the call that takes it, else by the data flow."""
    if found := _backend_taker(module, node):
        return Verdict(Use.BACKEND, True, f"passed to {found}")
    if is_member(module, node):
        return Verdict(Use.BACKEND, True, "is a member of torch.distributed.Backend")
    known = module.around.flow.strings.get(place_of(node))
    if known is not None and known.use is Use.WORD and "backend" in (name := holder(module, node)).lower():
        return Verdict(Use.UNKNOWN, False, f"given to `{name}`, whose use is not shown")
    return known


def holder(module: Module, node: ast.expr) -> str:
    """Return the name under which a string is kept: of a variable, parameter, key or option; "" for none."""
    parent = module.parents[node]
    if isinstance(parent, ast.Dict) and node in parent.values:
        return text(parent.keys[parent.values.index(node)])
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        return ast.unparse(parent.targets[0] if isinstance(parent, ast.Assign) else parent.target)
    if isinstance(parent, ast.arguments):
        named = [*reversed([*parent.posonlyargs, *parent.args]), *parent.kwonlyargs]
        values = [*reversed(parent.defaults), *parent.kw_defaults]
        skipped = len(parent.posonlyargs) + len(parent.args) - len(parent.defaults)
        del named[len(parent.defaults) : len(parent.defaults) + skipped]
        return named[values.index(node)].arg
    if isinstance(parent, ast.keyword) and parent.arg != "default":
        return parent.arg or ""
    call = module.parents[parent] if isinstance(parent, ast.keyword) else None
    return text(call.args[0]) if isinstance(call, ast.Call) and call.args else ""


def _backend_taker(module: Module, node: ast.expr) -> str:
    """Return the function of torch.distributed that takes a node, or a choice of it, as its backend; "" for none."""
    inner: ast.AST = node
    for outer in module.enclosing(node):
        if isinstance(outer, ast.Call):
            name = module.names.qualified(outer.func) or ""
            return name if _is_backend(name, outer, inner) else ""
        chooses = isinstance(outer, ast.BoolOp) or (isinstance(outer, ast.IfExp) and inner is not outer.test)
        if not (chooses or isinstance(outer, ast.keyword)):
            return ""
        inner = outer
    return ""


def _is_backend(name: str, call: ast.Call, argument: ast.AST) -> bool:
    if not name.startswith("torch.distributed."):
        return False
    if isinstance(argument, ast.keyword):
        return argument.arg == "backend"
    position = _POSITIONS.get(name.rpartition(".")[2], -1)
    return 0 <= position < len(call.args) and call.args[position] is argument


def has_options(module: Module, node: ast.AST) -> bool:
    """Whether the call that takes a backend also takes ``pg_options``, in a module that makes those of NCCL."""
    call = module.nearest(node, ast.Call, ast.stmt)
    given = call.keywords if isinstance(call, ast.Call) and module.mentions("ProcessGroupNCCL") else []
    return any(each.arg == "pg_options" and getattr(each.value, "value", "") is not None for each in given)


def is_current(module: Module, node: ast.expr) -> bool:
    """Whether a node is a process group's backend: a call of get_backend, or shown to be one by the data flow."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "lower":
        node = node.func.value
    if isinstance(node, ast.Call) and module.names.qualified(node.func) in _CURRENT:
        return True
    known = module.around.flow.values.get(place_of(node))
    if known is not None and known.use is Use.BACKEND and known.certain:
        return True
    values = assigned_values(module, node) if isinstance(node, ast.Name) else []
    return bool(values) and all(isinstance(each, ast.Call) and is_current(module, each) for each in values)


def is_word(module: Module, node: ast.expr) -> bool:
    """Whether a string is text for people, a key or a docstring."""
    parent = module.parents[node]
    if isinstance(parent, ast.Dict):
        return node in parent.keys
    if isinstance(parent, ast.keyword):
        return parent.arg in words.KEYWORDS
    if isinstance(parent, ast.Call) and parent.func is not node:
        called = parent.func
        if isinstance(called, ast.Attribute):
            return called.attr in words.METHODS
        return isinstance(called, ast.Name) and called.id in words.FUNCTIONS
    return isinstance(parent, (ast.Expr, ast.Subscript, ast.JoinedStr, ast.FormattedValue))


def keeps_nccl(module: Module, test: ast.expr) -> bool:
    """Whether a test for NCCL stands in front of code for NCCL only, so that it must stay a test for NCCL."""
    parts = list(guarded_nodes(module, test))
    statements = [each for each in parts if isinstance(each, ast.stmt)]
    if statements and all(_says_nccl(each) for each in statements):
        return True
    branch = decision(module, test).node  # if ...: barrier(device_ids=...), else: barrier()
    if (
        isinstance(branch, ast.If)
        and branch.orelse
        and all(_is_barrier(module, each) for each in (*branch.body, *branch.orelse))
    ):
        return True
    return any(_is_nccl_only(module, inner) for each in parts for inner in ast.walk(each))


def _is_barrier(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement is a barrier, of whose arguments ``device_ids`` concerns NCCL only."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and module.names.qualified(call.func) == "torch.distributed.barrier"


def _says_nccl(statement: ast.stmt) -> bool:
    """Whether a statement is a call whose first argument is a message about NCCL: ``warn("nccl needs two GPUs")``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    said = text(call.args[0]) if isinstance(call, ast.Call) and call.args else ""
    return " " in said and _SAID.search(said) is not None


def _is_nccl_only(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and _MESSAGES.search(node.value) is not None
    if isinstance(node, ast.Name | ast.Attribute):
        last = node.attr if isinstance(node, ast.Attribute) else node.id
        name = module.names.qualified(node) or ""
        return _NAMES.search(last) is not None or name.startswith("torch.cuda.nccl")
    return False


def is_for_nccl(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where the backend is NCCL, or the device CUDA."""
    return any(
        implies_cuda(module, each)
        or (each.holds and any(is_nccl(module, side) for side in _equals(each.test)))
        for each in conditions(module, node)
    )


def _equals(test: ast.expr) -> Iterator[ast.expr]:
    """Yield the sides of ``a == b``."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        yield from (test.left, test.comparators[0])
