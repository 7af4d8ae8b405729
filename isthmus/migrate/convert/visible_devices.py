"""Settings of ``CUDA_VISIBLE_DEVICES`` after the DEVICE constant has queried the devices."""

import ast
from collections.abc import Iterator

from isthmus.migrate.source.findings import Finding, Severity

VARIABLE = "CUDA_VISIBLE_DEVICES"
_MESSAGE = "is set after modules that define their device have asked which there are, and then has no effect"
_ADVICE = (
    f"set {VARIABLE} in the environment of the command, or at the top of the script that is started, "
    "before it imports modules of the project"
)
_ASKS = "accelerator.current_accelerator(check_available=True)"
_SETTERS = {"setdefault", "update", "putenv"}


def too_late(code: str, path: str) -> Iterator[Finding]:
    """Settings that run after the constant is defined, in this module or in one that it imports.

    Args:
        code: after the conversion, without a pinned device; nothing is found in what does not parse.
        path: for the findings.
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
    """Where the module asks which devices there are, after every line if it does not."""
    asks = (
        each.lineno for each in module.body if isinstance(each, ast.Assign) and _ASKS in ast.unparse(each)
    )
    return next(asks, float("inf"))


def _holds(function: ast.FunctionDef | ast.AsyncFunctionDef, node: ast.expr) -> bool:
    return function.lineno <= node.lineno <= (function.end_lineno or 0)


def settings(code: str) -> Iterator[ast.expr]:
    """``os.environ["CUDA_VISIBLE_DEVICES"]`` that is assigned, and calls that set it; none if it does not parse."""
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
    """``os.environ``, or ``environ`` that is imported from it."""
    return ast.unparse(node) in {"os.environ", "environ"}


def _is_variable(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == VARIABLE


def _names_variable(node: ast.AST) -> bool:
    """Whether an argument names it: itself, by keyword, or as a key of a dictionary."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    keyword = isinstance(node, ast.keyword) and node.arg == VARIABLE
    return keyword or any(_is_variable(each) for each in (node, *keys) if each is not None)
