"""Probes for CUDA: calls that fail without it, in a ``try`` whose handler then chooses something else."""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.conditions import is_on_accelerator
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS

_CATCHES = frozenset({"Exception", "BaseException", "RuntimeError", "AssertionError"})
_RETRY = re.compile(r"out of memory|OutOfMemory|empty_cache|\boom\b|traceback", re.IGNORECASE)
_FUNCTIONS = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
_RAISES = frozenset(
    f"torch.cuda.{name}"
    for name in "Event Stream current_device current_stream default_stream get_device_capability get_device_name "
    "get_device_properties get_rng_state init mem_get_info set_device synchronize".split()
)


def enclosing_probe(module: Module, node: ast.AST, draft: Draft) -> ast.Try | None:
    """Return the ``try`` whose handler catches that a call fails without CUDA; None for all other code.

    Args:
        module: the module.
        node: what would be converted.
        draft: its edits; a call of ``torch.accelerator`` that fails without an accelerator too is no probe.
    """
    if module.around.target or not (found := _try(module, node)) or not _raises(module, node):
        return None
    return None if is_on_accelerator(module, node) or _still_raises(draft) else found


def _try(module: Module, node: ast.AST) -> ast.Try | None:
    """Return the innermost ``try`` around a node, in its function, that catches the failure and goes on."""
    below = node
    for above in module.enclosing(node):
        if isinstance(above, _FUNCTIONS):
            return None
        if isinstance(above, ast.Try) and below in above.body:
            handler = next((each for each in above.handlers if _catches(each)), None)
            if handler is not None:
                return None if _is_retry(module, handler) else above
        below = above
    return None


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return handler.type is None or any(last_name(each) in _CATCHES for each in kinds)


def _is_retry(module: Module, handler: ast.ExceptHandler) -> bool:
    """Whether a handler is for too little memory, reports the error, or raises one."""
    leaves = any(isinstance(each, ast.Raise) for each in ast.walk(handler))
    return leaves or _RETRY.search(module.code(handler)) is not None


def _raises(module: Module, node: ast.AST) -> bool:
    """Whether a node fails without CUDA: a move, a factory with a device, or a function of ``torch.cuda``."""
    if isinstance(node, ast.Call):
        name = module.names.qualified(node.func) or ""
        if name != "torch.device":
            return name in _RAISES or (not name.startswith("torch.") and last_name(node.func) == "cuda")
    holder = module.parents[node]
    if isinstance(holder, ast.keyword):
        return holder.arg == "device" and _is_factory(module, module.parents[holder])
    return isinstance(holder, ast.Call) and node in holder.args and last_name(holder.func) == "to"


def _is_factory(module: Module, call: ast.AST) -> bool:
    name = module.names.qualified(call.func) or "" if isinstance(call, ast.Call) else ""
    return name.startswith("torch.") and name.count(".") == 1


def _still_raises(draft: Draft) -> bool:
    """Whether the converted call fails where there is no accelerator."""
    written: Iterator[str] = (each.text for each in draft.edits)
    asks = not any("device" in each.needs or each.guard for each in draft.edits)
    return asks and all("torch.accelerator." in each and " if " not in each for each in written)
