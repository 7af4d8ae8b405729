"""Settings of ``CUDA_VISIBLE_DEVICES`` after the DEVICE constant has queried the devices."""

import ast
from collections.abc import Iterator

from isthmus.migrate.source.findings import Finding, Severity

VARIABLE = "CUDA_VISIBLE_DEVICES"
_MESSAGE = "is set after a module's DEVICE has queried the devices, so it has no effect"
_ADVICE = (
    f"set {VARIABLE} in the environment of the command, or at the top of the script that is started, "
    "before it imports modules of the project"
)
_ASKS = "accelerator.current_accelerator(check_available=True)"
_SETTERS = {"setdefault", "update", "putenv"}


def too_late(code: str, path: str) -> Iterator[Finding]:
    """Find settings that run after the constant is defined, in this module or in one that it imports.

    Args:
        code: converted source without a fixed device; no findings if it does not parse.
        path: path for the findings.
    """
    found = list(settings(code))
    if not found:
        return
    module = ast.parse(code)
    functions = [
        each for each in ast.walk(module) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    defined = _line_of_constant(module)
    for node in found:
        if node.lineno > defined or any(_holds(function, node) for function in functions):
            place = (path, node.lineno, node.end_lineno or node.lineno)
            yield Finding("IM129", Severity.REVIEW, *place, VARIABLE, _MESSAGE, _ADVICE)


def _line_of_constant(module: ast.Module) -> float:
    """Return the line at which the module queries the devices; after the last line if it does not."""
    asks = (
        each.lineno for each in module.body if isinstance(each, ast.Assign) and _ASKS in ast.unparse(each)
    )
    return next(asks, float("inf"))


def _holds(function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr) -> bool:
    return function.lineno <= node.lineno <= (function.end_lineno or 0)


def settings(code: str) -> Iterator[ast.expr]:
    """Find assignments to ``os.environ["CUDA_VISIBLE_DEVICES"]`` and calls that set it; none if it does not parse."""
    if VARIABLE not in code:
        return
    try:
        module = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(module):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if _is_environment(node.value) and _is_variable(node.slice):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            sets = node.func.attr in _SETTERS and (_is_environment(owner) or node.func.attr == "putenv")
            if sets and any(map(_names_variable, (*node.args, *node.keywords))):
                yield node


def _is_environment(node: ast.expr) -> bool:
    """Whether a node is ``os.environ``, or ``environ`` imported from os."""
    return ast.unparse(node) in {"os.environ", "environ"}


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == VARIABLE


def _names_variable(node: ast.AST) -> bool:
    """Whether an argument names the variable: as a string, a keyword, or a dictionary key."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    keyword = isinstance(node, ast.keyword) and node.arg == VARIABLE
    return keyword or any(_is_variable(each) for each in (node, *keys) if each is not None)
