"""Contributions of a module's expressions to the data flow."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from isthmus_migrate.flow.facts import ANY, KEYS, TEXT, TORCH, WORD, Call, Facts
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.verdicts import place_of

OTHERS = frozenset("hpu maia meta mlu mps mtia musa npu xla xpu".split())
# Strings beside which "cuda" may still be a device or a backend.
_NEUTRAL = OTHERS | {"", "auto", "cpu", "gloo", "gpu", "hip", "mpi", "none", "ucc"}
_LOADERS = frozenset({"torch.load", "torch.hub.load", "torch.utils.data.DataLoader"})  # return anything
_WRAPPERS = frozenset(  # return a module that runs those it is given
    [
        "torch.compile",
        *map("torch.nn.{}".format, ("DataParallel", "ModuleList", "Sequential")),
        "torch.nn.parallel.DistributedDataParallel",
    ]
)
_DEVICE = re.compile(r"(\w+_)?(device|dev)", re.IGNORECASE)  # names whose type is compared with "cuda"
_NAMES = re.compile(r"cuda(:(\d+)?|:%[dis]|:\{\w*(:d)?\})?|nccl|(\w+:\w+,)*cuda:nccl(,\w+:\w+)*")


class Expressions:
    """The slots of the expressions of a module, each made when it is first asked for.

    Attributes:
        module: the module.
        names: resolver of its names.
        facts: what is found.
        known: what functions do with their arguments, by name; empty here.
        known_methods: the same of methods.
    """

    known: Mapping[str, Callable[[Any, ast.Call, str], str]] = {}
    known_methods: Mapping[str, Callable[[Any, ast.Call, str, str], str]] = {}

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = module.names
        self.facts = Facts(module.name, module.source.name)
        self._slots: dict[ast.AST, str] = {}
        self._of: dict[type[ast.AST], Callable[..., str]] = {
            ast.Constant: self._constant,
            ast.JoinedStr: self._visit_fstring,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.IfExp: self._choice,
            ast.BoolOp: lambda node: self._join_parts(node, *node.values),
            ast.BinOp: self._operation,
            ast.Dict: self._dict,
            ast.List: self._elements,
            ast.Tuple: self._elements,
            ast.Set: self._elements,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._dict_comprehension,
            ast.NamedExpr: self._visit_walrus,
            ast.Starred: lambda node: self.slot(node.value),
            ast.Await: lambda node: self.slot(node.value),
        }

    def slot(self, node: ast.AST | None) -> str:
        """Return the slot of an expression; "" if it holds nothing of interest."""
        if node is None:
            return ""
        if node not in self._slots:
            self._slots[node] = ""  # while it is made
            make = self._of.get(type(node))
            self._slots[node] = make(node) if make else ""
        return self._slots[node]

    def anonymous(self, node: ast.AST) -> str:
        """Return the slot of an expression without a name."""
        return ":".join(map(str, (self.facts.path, *place_of(node))))

    def flow(self, source: str, destination: str) -> None:
        """Record that the values of a slot get into another."""
        if source and destination and source != destination:
            self.facts.flows.append((source, destination))

    def store(self, source: str, destination: str, key: str) -> None:
        """Record an assignment to an element."""
        if source and destination:
            self.facts.stores.append((source, destination, key))

    def load(self, source: str, key: str, node: ast.AST) -> str:
        """Record the reading of an element; return the slot of the element."""
        if not source:
            return ""
        slot = self.anonymous(node) + f"[{key}]"
        self.facts.loads.append((source, key, slot))
        return slot

    def _join_parts(self, node: ast.AST, *parts: ast.expr) -> str:
        slot = self.anonymous(node)
        for part in parts:
            self.flow(self.slot(part), slot)
        return slot

    def _choice(self, node: ast.IfExp) -> str:
        """The name of a device, replaced by its type where there is no accelerator, is not a device."""
        test = node.test.func if isinstance(node.test, ast.Call) else node.test
        is_name = (
            self.names.qualified(test) == "torch.accelerator.is_available"
            and last_name(node.orelse) == "type"
        )
        return self._join_parts(node, node.body, *([] if is_name else [node.orelse]))

    def _constant(self, node: ast.Constant) -> str:
        if not isinstance(node.value, str) or node.value in _NEUTRAL:
            return ""
        if not _NAMES.fullmatch(node.value):
            return WORD
        slot = self.anonymous(node)
        self.facts.strings[place_of(node)] = slot
        return slot

    def _visit_fstring(self, node: ast.JoinedStr) -> str:
        """An f-string has what its first part has; the others are text."""
        slot = self.anonymous(node)
        for each in node.values[1:]:
            if isinstance(each, ast.FormattedValue):
                self.flow(self.slot(each.value), TEXT)
        first = node.values[0] if node.values else None
        if isinstance(first, ast.FormattedValue):
            self.flow(self.slot(first.value), slot)
        elif isinstance(first, ast.Constant) and str(first.value).startswith("cuda:"):
            self.facts.strings[place_of(node)] = slot
        return slot

    def _operation(self, node: ast.BinOp) -> str:
        slot = self.anonymous(node)
        left = node.left
        if isinstance(left, ast.Constant) and left.value in ("cuda:", "cuda:%d", "cuda:%s", "cuda:%i"):
            self.facts.strings[place_of(node)] = slot
            self._slots[left] = slot
        else:
            self.flow(self.slot(left), slot)
            if isinstance(node.op, ast.BitOr | ast.Add):  # a union of dictionaries or lists
                self.flow(self.slot(node.right), slot)
        return slot

    def _name(self, node: ast.Name) -> str:
        return self.names.slot(node)

    def _attribute(self, node: ast.Attribute) -> str:
        name = self.names.qualified(node)
        if name and not name.startswith("torch."):
            return name
        owner = self.class_of_self(node.value)
        if owner:
            return f"{owner}.{node.attr}"
        receiver = self.slot(node.value)
        if node.attr == "type":
            if _DEVICE.fullmatch(last_name(node.value)):
                self.facts.sources.add(receiver)
            return receiver
        receiver = receiver or "?"
        self.facts.attributes[(receiver, node.attr)] = None
        slot = f"{receiver}.{node.attr}"
        if node.attr == "device":
            self.facts.sources.add(slot)
        return slot

    def class_of_self(self, node: ast.expr) -> str:
        """Return the class whose method's first parameter a name is."""
        if not isinstance(node, ast.Name):
            return ""
        for function in self.module.enclosing(node):
            if isinstance(function, FUNCTIONS):
                owner = self.module.parents[function]
                first = [*function.args.posonlyargs, *function.args.args][:1]
                if isinstance(owner, ast.ClassDef) and first and first[0].arg == node.id:
                    return self.names.defined(owner)
        return ""

    def _subscript(self, node: ast.Subscript) -> str:
        base = self.slot(node.value)
        if isinstance(node.slice, ast.Slice):
            return base
        self.store(self.slot(node.slice), base, KEYS)
        if not isinstance(node.ctx, ast.Load):
            return ""
        return self.load(base, key_of(node.slice), node)

    def _dict(self, node: ast.Dict) -> str:
        slot = self.anonymous(node)
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self.flow(self.slot(value), slot)
                continue
            self.store(self.slot(value), slot, key_of(key))
            self.store(self.slot(key), slot, KEYS)
        return slot

    def _elements(self, node: ast.List | ast.Tuple | ast.Set) -> str:
        parent = self.module.parents[node]
        if isinstance(parent, ast.Subscript) and node is parent.slice:  # Literal["cpu", "cuda"]
            return ""
        slot = self.anonymous(node)
        for index, each in enumerate(node.elts):
            if isinstance(each, ast.Starred):
                self.flow(self.slot(each), slot)
            else:
                self.store(self.slot(each), slot, ANY if isinstance(node, ast.Set) else str(index))
        return slot

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> str:
        slot = self.anonymous(node)
        self.store(self.slot(node.elt), slot, ANY)
        return slot

    def _dict_comprehension(self, node: ast.DictComp) -> str:
        slot = self.anonymous(node)
        self.store(self.slot(node.value), slot, ANY)
        self.store(self.slot(node.key), slot, KEYS)
        return slot

    def _visit_walrus(self, node: ast.NamedExpr) -> str:
        self.flow(self.slot(node.value), self.slot(node.target))
        return self.slot(node.target)

    def _call(self, node: ast.Call) -> str:
        result = self.anonymous(node)
        name = self.names.qualified(node.func) or ""
        variable = ""
        if isinstance(node.func, ast.Name) and not name:
            name = node.func.id
            variable = self.slot(node.func)
        if name in self.known:
            return self.known[name](self, node, result)
        if isinstance(node.func, ast.Attribute) and not name:
            return self._method(node, node.func, result)
        if name == "torch.device":
            self.facts.sources.add(result)
        elif name.startswith("torch.") and name not in _LOADERS:
            self.flow(TORCH, result)
            for each in node.args if name in _WRAPPERS else ():
                self.flow(self.slot(each), result)
        arguments = tuple(self.arguments(node))
        receiver = "" if name else self.slot(node.func)
        called = Call(name or "__call__", receiver, arguments, result, self.place(node), variable or receiver)
        self.facts.calls.append(called)
        return result

    def _method(self, node: ast.Call, method: ast.Attribute, result: str) -> str:
        owner = method.value
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
            around = self.module.nearest(node, ast.ClassDef)
            receiver = f"super {self.names.defined(around)}" if around else ""
        else:
            name = self.class_of_self(owner)
            receiver = f"{name}@" if name else self.slot(owner)
        if isinstance(owner, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.JoinedStr):
            self.facts.values[place_of(owner)] = receiver
        if method.attr in self.known_methods:
            made = self.known_methods[method.attr](self, node, receiver, result)
            if made:
                return made
        arguments = tuple(self.arguments(node))
        self.facts.calls.append(Call(method.attr, receiver or "?", arguments, result, self.place(node)))
        return result

    def arguments(self, node: ast.Call, skip: int = 0) -> Iterator[tuple[str | int, str]]:
        """Yield the arguments of a call with their slots."""
        for position, each in enumerate(node.args[skip:]):
            if isinstance(each, ast.Starred):
                break
            if slot := self.slot(each):
                yield position, slot
        for keyword in node.keywords:
            if slot := self.slot(keyword.value):
                yield keyword.arg or "**", slot

    def place(self, node: ast.AST) -> str:
        """Return a place for messages."""
        path, line = self.module.place(node.lineno)  # type: ignore[attr-defined]
        return f"{path}:{line}"


def key_of(node: ast.expr) -> str:
    """Return the field of a key or index."""
    return str(node.value) if isinstance(node, ast.Constant) else ANY
