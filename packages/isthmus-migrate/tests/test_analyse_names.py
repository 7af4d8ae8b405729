"""isthmus_migrate.source.names: dotted names from imports, aliases and scopes."""

import ast
import textwrap

import pytest

from isthmus_migrate.source.names import Names, index


def resolved(source: str, module: str = "package.part.module", is_package: bool = False) -> list[str | None]:
    """Names of the arguments of every call of ``_``, in the order of the source."""
    found = index(ast.parse(textwrap.dedent(source)), module, is_package)
    calls = [node for node in found.nodes[ast.Call] if isinstance(node, ast.Call)]
    asked = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "_"]
    return [found.names.qualified(argument) for call in asked for argument in call.args]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch\n_(torch.cuda.synchronize)", "torch.cuda.synchronize"),
        ("import torch.cuda\n_(torch.nn.Linear)", "torch.nn.Linear"),
        ("import torch.cuda as c\n_(c.stream)", "torch.cuda.stream"),
        ("from torch import cuda\n_(cuda.stream)", "torch.cuda.stream"),
        ("from torch.cuda.amp import autocast as a\n_(a)", "torch.cuda.amp.autocast"),
        ("import torch\ncuda = torch.cuda\n_(cuda.Event)", "torch.cuda.Event"),
        ("import torch\na = b = torch.cuda\n_(b.Event)", "torch.cuda.Event"),
        ("a = b\nb = a\n_(a.c)", None),
        ("x = f()\n_(x.y)", None),
        ("_(print)", None),
        ("_(f().x)", None),
        ("from . import a\n_(a.b)", "package.part.a.b"),
        ("from .. import a\n_(a)", "package.a"),
        ("from ..other import a as b\n_(b)", "package.other.a"),
        ("from ..... import a\n_(a)", "a"),
        ("def f(): pass\n_(f)", "package.part.module.f"),
        ("class C:\n def f(self): _(C.g)", "package.part.module.C.g"),
        ("try:\n import apex\nexcept ImportError:\n apex = None\n_(apex.amp)", "apex.amp"),
        ("import torch\ndef f(torch): _(torch.x)", None),
        ("import torch\ndef f():\n for torch in []: _(torch.x)", None),
        ("import torch\nclass C:\n torch = 3\n def f(self): _(torch.x)", "torch.x"),
        ("def f():\n import torch\n def g(): _(torch.x)", "torch.x"),
        ("def f():\n import numpy\n_(numpy.x)", None),
        ("from common import *\n_(torch.x)", "torch.x"),
        ("import torch\ng = lambda torch: _(torch.x)", None),
        ("import torch\n@_(torch.x)\ndef f(): pass", "torch.x"),
    ],
)
def test_qualified(source: str, name: str | None):
    assert resolved(source) == [name]


def test_a_package_is_its_own_parent():
    assert resolved("from . import a\n_(a)", "package.part", is_package=True) == ["package.part.a"]


def test_scope_of_a_definition():
    found = index(ast.parse("class C:\n def f(self): x"), "m")
    (name,) = [node for node in found.nodes[ast.Name] if isinstance(node, ast.Name)]
    assert found.names.scope(name) == "m.C.f"
    assert found.names.scope(found.nodes[ast.FunctionDef][0]) == "m.C"


def test_nodes_are_in_source_order_with_their_parents():
    tree = ast.parse("a(b)\nif c:\n  d(e)\n")
    found = index(tree)
    names = [node for node in found.nodes[ast.Name] if isinstance(node, ast.Name)]
    assert [node.id for node in names] == ["a", "b", "c", "d", "e"]
    assert all(child in ast.iter_child_nodes(parent) for child, parent in found.parents.items())
    assert isinstance(found.names, Names)
