"""Tests that replace functions by mocks: equal names in one of them are changed together, or not at all."""

from __future__ import annotations

import ast
import re

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import names_cuda, text

_EXPECTS = re.compile(r"assert_(called|any_call|has_calls|awaited|any_await|has_awaits)\w*")
_REPLACES = frozenset(
    {"patch", "object", "setattr"}
)  # unittest.mock.patch, patch.object, monkeypatch.setattr


def equals(module: Module, node: ast.AST) -> list[ast.Constant]:
    """Return the strings that have to stay equal to those in a node, in the order of the text.

    They name a device or backend, in a test that expects one of them as an argument of a mock, or that replaces a
    function of ``torch.cuda``. There are none in other code.
    """
    if not isinstance(node, ast.expr) or not module.mentions("mock", "monkeypatch"):
        return []
    named = {text(each) for each in ast.walk(node) if names_cuda(each) or text(each) == "nccl"}
    test = module.nearest(node, ast.FunctionDef)
    if test is None or not any(_mocks(module, each, named) for each in _calls(module, test)):
        return []
    found = [each for each in ast.walk(test) if isinstance(each, ast.Constant) and text(each) in named]
    return sorted(found, key=module.start)


def mocked_name(module: Module, call: ast.AST) -> str:
    """Return the name of ``torch.cuda`` that a call replaces by a mock; "" for any other node."""
    if not isinstance(call, ast.Call) or last_name(call.func) not in _REPLACES or not call.args:
        return ""
    name = text(call.args[0])
    if not name and len(call.args) > 1:
        name = f"{module.names.qualified(call.args[0])}.{text(call.args[1])}"
    _, cuda, rest = f".{name}".rpartition(".torch.cuda.")  # "package.module.torch.cuda.is_available"
    return f"torch.cuda.{rest}" if cuda else ""


def draft_rename(module: Module, node: ast.expr) -> Draft:
    """Return the edit that names ``torch.accelerator`` for ``torch.cuda`` in an argument of such a call."""
    draft = Draft(module)
    if not text(node):
        return draft.replace(node, "torch.accelerator")
    start = module.text.index("torch.cuda.", module.start(node)) + len("torch.")
    return draft.swap(node, start, start + len("cuda"), "accelerator")


def _calls(module: Module, test: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls in a test, and in the decorators of its class."""
    above = (each for each in module.enclosing(test) if isinstance(each, ast.ClassDef))
    parts = [test, *(decorator for each in above for decorator in each.decorator_list)]
    return [each for part in parts for each in ast.walk(part) if isinstance(each, ast.Call)]


def _mocks(module: Module, call: ast.Call, named: set[str]) -> bool:
    if _EXPECTS.fullmatch(last_name(call.func)):
        return any(text(each) in named for each in ast.walk(call) if isinstance(each, ast.Constant))
    return bool(named and mocked_name(module, call))
