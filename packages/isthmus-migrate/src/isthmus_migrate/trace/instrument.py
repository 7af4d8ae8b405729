"""Pass over the tree of a user's module: expressions that may involve a device call functions of calls.py.

Each operand is evaluated once, in the original order and in its own frame; comparisons and calls themselves stay
Python's.
"""

import ast
import hashlib
import sys
from pathlib import Path
from typing import Any

from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.cuda_names import NAMES
from isthmus_migrate.trace.places import BACKEND, DEVICE, DEVICE_TYPE, REGISTRY, TENSOR_TYPE, Place, Side
from isthmus_migrate.trace.positions import Located, Source
from isthmus_migrate.trace.text import DEVICE_TEXT

_FSTRINGS_HAVE_POSITIONS = sys.version_info >= (3, 12)
_METHODS = {"cuda", "to", "type", "get_backend"}
_FUNCTIONS = frozenset(name.split(".")[2] for name in NAMES if name.startswith("torch.cuda.")) - {
    "device",
    "Stream",
    "Event",
}
_SEARCHES = {"startswith", "endswith"}
# Functions whose use of text is recorded: those that write it, and those that look a name up.
_USERS = set(
    "print open write debug info warning error methodcaller attrgetter import_module __import__".split()
)
_BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}
# Attributes of devices, tensors and meshes, and the role of what is read.
_READ = {"type": DEVICE_TYPE, "device_type": DEVICE_TYPE, "is_cuda": ""}
_RESULTS = {"type": TENSOR_TYPE, "get_backend": BACKEND}  # methods without arguments
# Decorators that compile a function from its bytecode, which must stay as it is.
_COMPILERS = {"jit", "njit", "vectorize", "guvectorize"}


def instrument(tree: ast.Module, source: bytes | str, path: str) -> ast.Module:
    """Instrument a module; one without a file, such as the text of ``-c``, is returned as it is."""
    if not Path(path).is_file():
        return tree
    path = str(Path(path).resolve())
    data = source.encode() if isinstance(source, str) else source
    REGISTRY.digests[path] = hashlib.sha256(data).hexdigest()
    instrumented: ast.Module = _Instrumenter(path, Source(data)).visit(tree)
    return instrumented


class _Instrumenter(ast.NodeTransformer):
    def __init__(self, path: str, source: Source) -> None:
        self._path = path
        self._source = source
        self._fstrings: list[ast.JoinedStr] = []  # around the node
        self._traced = True  # False in a type: strings are counted and stay str

    # ---- what is not evaluated as an expression -------------------------------------------------------------
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)  # a docstring

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = self.visit(node.value) if node.value else None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if any(last_name(getattr(each, "func", each)) in _COMPILERS for each in node.decorator_list):
            return node
        annotation, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = annotation
        return node

    def visit_Match(self, node: ast.Match) -> ast.AST:
        patterns = [
            each for case in node.cases for each in ast.walk(case.pattern) if isinstance(each, ast.MatchValue)
        ]
        places = [self._add(each, "comparison", sides=2) for each in patterns if _is_device_text(each.value)]
        for case in node.cases:  # a pattern may contain constants, but not calls
            case.guard = self.visit(case.guard) if case.guard else None
            case.body = [self.visit(statement) for statement in case.body]
        node.subject = self.visit(node.subject)
        if places:
            indices = ast.Tuple([ast.Constant(each) for each in places], ast.Load())
            node.subject = _call("__isthmus_trace_match__", node.subject, indices, node.subject)
        return node

    # ---- strings --------------------------------------------------------------------------------------------
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._string(node) if _is_device_text(node) else node

    def _string(self, node: ast.Constant, strong: bool = True) -> ast.expr:
        place = self._add(node, "string", strong=strong, text=str(node.value))
        name = "__isthmus_trace_text__" if self._traced else "__isthmus_trace_type_text__"
        return _call(name, node, ast.Constant(place))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        node.value = self.visit(node.value)
        before, self._traced = self._traced, self._traced and last_name(node.value) != "Literal"
        node.slice = self.visit(node.slice)
        self._traced = before
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        pieces: list[ast.expr] = []
        self._fstrings.append(node)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                part.value = self.visit(part.value)
            pieces.append(
                ast.copy_location(ast.JoinedStr([part]), node)
                if isinstance(part, ast.FormattedValue)
                else part
            )
        self._fstrings.pop()
        texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
        place = self._add(node, "format", strong=bool(DEVICE_TEXT.search("".join(map(str, texts)))))
        return _call("__isthmus_trace_join__", node, ast.Constant(place), ast.Tuple(pieces, ast.Load()))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        values = (ast.Tuple, ast.Dict)  # that % puts into a template
        is_format = (isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))) or (
            isinstance(node.op, ast.Mod)
            and (
                _is_text(node.left) or isinstance(node.left, ast.JoinedStr) or isinstance(node.right, values)
            )
        )
        if not is_format:
            self.generic_visit(node)
            return node
        place = self._add(node, "format", strong=_is_device_text(node.left) or _is_device_text(node.right))
        node.left = self._template(node.left)
        node.right = self._template(node.right) if isinstance(node.op, ast.Add) else self.visit(node.right)
        return _call("__isthmus_trace_made__", node, ast.Constant(place), node)

    def _template(self, node: ast.expr) -> ast.expr:
        """Trace text that does not name a device by itself, but may be a part of such text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            return self._string(node, strong=_is_device_text(node))
        return _call("__isthmus_trace_template__", node, self.visit(node))

    # ---- comparisons ----------------------------------------------------------------------------------------
    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        if any(isinstance(each, (ast.Is, ast.IsNot)) for each in node.ops) and any(
            map(_is_constant, operands)
        ):
            node.left, *node.comparators = [
                each if _is_constant(each) else self.visit(each) for each in operands
            ]
            return node  # Python warns of `is` with a literal, and the literal is one object with its like
        of_interest = any(map(_mentions_device, operands)) or not any(
            isinstance(each, (ast.Constant, ast.BinOp, ast.UnaryOp)) for each in operands
        )
        place = self._add(node, "comparison", sides=len(operands)) if of_interest else -1
        operands = [self.visit(each) for each in operands]
        if of_interest:
            operands = [self._side(place, number, each) for number, each in enumerate(operands)]
        node.left, *node.comparators = operands
        return node

    def _side(self, place: int, number: int, operand: ast.expr) -> ast.expr:
        if isinstance(operand, ast.Starred):
            return operand
        return _call("__isthmus_trace_side__", operand, ast.Constant(place), ast.Constant(number), operand)

    # ---- calls and attributes -------------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name):
            return self._call_of_name(node, node.func.id)
        if not isinstance(node.func, ast.Attribute):
            self.generic_visit(node)
            return node
        method, receiver = node.func, node.func.value
        name = method.attr
        if name in ("format", "join"):
            place = self._add(node, "format", strong=_is_device_text(receiver))
            method.value = self._template(receiver)
            self._arguments(node)
            return _call("__isthmus_trace_made__", node, ast.Constant(place), node)
        if name in _SEARCHES and node.args:
            place = self._add(node, "comparison", sides=2)
            method.value = self._side(place, 0, self.visit(receiver))
            self._arguments(node)
            node.args[0] = self._side(place, 1, node.args[0])
            return node
        if name in _METHODS or (name in _FUNCTIONS and not _is_text(receiver)) or _is_cuda(receiver):
            role = "" if node.args or node.keywords else _RESULTS.get(name, "")
            place = self._add(node, "call", name, role=role)
            method.value = self._receiver(place, self.visit(receiver))
            self._arguments(node)
            return self._result(place, node) if role else node
        method.value = self.visit(receiver)
        self._arguments(node, name)
        return node

    def _arguments(self, node: ast.Call, name: str = "") -> None:
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        if name in _USERS:
            node.args = [
                each
                if isinstance(each, ast.Starred)
                else _call("__isthmus_trace_use__", each, ast.Constant(name), each)
                for each in node.args
            ]

    def _call_of_name(self, node: ast.Call, name: str) -> ast.expr:
        plain_arguments = not node.keywords and not any(isinstance(each, ast.Starred) for each in node.args)
        if name in ("str", "repr") and len(node.args) == 1 and plain_arguments:
            return self._reader(node, "str", DEVICE)
        if name == "getattr" and len(node.args) in (2, 3) and plain_arguments and _reads_device(node.args[1]):
            node.args[1:] = [self.visit(each) for each in node.args[1:]]
            return self._reader(node, "getattr", DEVICE_TYPE)
        self._arguments(node, name)
        if name == "type" and len(node.args) == 1 and plain_arguments:
            node.args = [_call("__isthmus_trace_to_exact_str__", node, *node.args)]
        elif name in ("exec", "eval") and node.args and plain_arguments:
            node.args[0] = _call("__isthmus_trace_code__", node, node.func, node.args[0])
        elif name == "compile":
            node.args.insert(0, node.func)
            node.func = ast.copy_location(ast.Name("__isthmus_trace_compile__", ast.Load()), node)
        elif name in _BY_NAME and len(node.args) >= 2 and plain_arguments:
            place = self._add(node, "call", name)
            found = _call("__isthmus_trace_by_name__", node, ast.Constant(place), *node.args)
            node.args = [ast.copy_location(ast.Starred(found, ast.Load()), node)]
        elif name in _FUNCTIONS:
            place = self._add(node, "call", name)
            node.func = _call("__isthmus_trace_name__", node.func, ast.Constant(place), node.func)
        return node

    def _reader(self, node: ast.Call, what: str, role: str) -> ast.expr:
        """A call that reads a device, its first argument."""
        place = self._add(node, "call", what, role=role)
        node.args[0] = self._receiver(place, self.visit(node.args[0]))
        return self._result(place, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name, of_cuda = node.attr, _is_cuda(node.value)
        if isinstance(node.ctx, ast.Load) and name in _READ:
            place = self._add(node, "attribute", name, role=_READ[name])
            node.value = self._receiver(place, self.visit(node.value))
            return self._result(place, node)
        followed = isinstance(node.ctx, ast.Load) and (name == "cuda" or name in _FUNCTIONS or of_cuda)
        place = self._add(node, "attribute", name) if followed else -1
        node.value = self.visit(node.value)
        if followed:
            node.value = self._receiver(place, node.value)
        return node

    def _receiver(self, place: int, receiver: ast.expr) -> ast.expr:
        return _call("__isthmus_trace_receiver__", receiver, ast.Constant(place), receiver)

    def _result(self, place: int, node: ast.expr) -> ast.expr:
        return _call("__isthmus_trace_result__", node, ast.Constant(place), node)

    # ---- places ---------------------------------------------------------------------------------------------
    def _add(
        self,
        node: Located,
        kind: str,
        name: str = "",
        *,
        role: str = "",
        strong: bool = True,
        sides: int = 0,
        text: str = "",
    ) -> int:
        located: Located = node
        if self._fstrings and not _FSTRINGS_HAVE_POSITIONS and not self._source.holds(node):
            located = self._fstrings[0]
        span = self._source.span(located)
        place = Place(self._path, span, kind, self._source.text(span), name, role, strong, text)
        place.sides = [Side() for _ in range(sides)]
        return REGISTRY.add(place)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_device_text(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(DEVICE_TEXT.search(node.value))
    )


def _mentions_device(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(_mentions_device, node.elts))
    return _is_device_text(node)


def _reads_device(name: ast.expr) -> bool:
    """Whether an expression may be the name of an attribute of devices."""
    return not isinstance(name, ast.Constant) or name.value in ("is_cuda", "type")


def _is_cuda(node: ast.expr) -> bool:
    """Whether an expression is called cuda, such as ``torch.cuda``."""
    return last_name(node) == "cuda"


def _call(function: str, place: ast.expr, *arguments: Any) -> ast.Call:
    name = ast.copy_location(ast.Name(function, ast.Load()), place)
    return ast.copy_location(ast.Call(name, list(arguments), []), place)
