"""Gather the facts of a module."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from isthmus.migrate.flow import sinks
from isthmus.migrate.flow.facts import ANY, KEYS, TEXT, TORCH, WORD, Call, Class, Facts, Signature
from isthmus.migrate.flow.known import KNOWN, KNOWN_METHODS
from isthmus.migrate.source.cuda_names import CUDA_SOURCE
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.verdicts import place_of

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OTHERS = frozenset("hpu maia meta mlu mps mtia musa npu xla xpu".split())
# Strings beside which "cuda" may still be a device or a backend.
_NEUTRAL = _OTHERS | {"", "auto", "cpu", "gloo", "gpu", "hip", "mpi", "none", "ucc"}
_LOADERS = frozenset({"torch.load", "torch.hub.load", "torch.utils.data.DataLoader"})  # return anything
_ELEMENTS = 8  # elements of a collection that a membership test is followed to
_DEVICE = re.compile(r"(\w+_)?(device|dev)", re.IGNORECASE)  # what has a type that is compared with "cuda"
_NAMES = re.compile(r"cuda(:(\d+)?|:%[dis]|:\{\w*(:d)?\})?|nccl|(\w+:\w+,)*cuda:nccl(,\w+:\w+)*")


def gather(module: Module) -> Facts:
    """Return the facts of a module."""
    return _Gatherer(module).facts


class _Gatherer:
    """Walks a module once; an expression's slot is made when it is first asked for."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.names = module.names
        self.facts = Facts(module.name, module.source.name)
        self._slots: dict[ast.AST, str] = {}
        self._of: dict[type[ast.AST], Callable[..., str]] = {
            ast.Constant: self._constant,
            ast.JoinedStr: self._joined,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.IfExp: lambda node: self._any(node, node.body, node.orelse),
            ast.BoolOp: lambda node: self._any(node, *node.values),
            ast.BinOp: self._operation,
            ast.Dict: self._dict,
            ast.List: self._elements,
            ast.Tuple: self._elements,
            ast.Set: self._elements,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.NamedExpr: self._named,
            ast.Starred: lambda node: self.slot(node.value),
            ast.Await: lambda node: self.slot(node.value),
        }
        self._gather()

    # ---- expressions ----------------------------------------------------------------------------------------
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

    def _any(self, node: ast.AST, *parts: ast.expr) -> str:
        slot = self.anonymous(node)
        for part in parts:
            self.flow(self.slot(part), slot)
        return slot

    def _constant(self, node: ast.Constant) -> str:
        if not isinstance(node.value, str) or node.value in _NEUTRAL:
            return ""
        if not _NAMES.fullmatch(node.value):
            return WORD
        slot = self.anonymous(node)
        self.facts.strings[place_of(node)] = slot
        return slot

    def _joined(self, node: ast.JoinedStr) -> str:
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
            if isinstance(node.op, ast.BitOr | ast.Add):  # of dictionaries and lists
                self.flow(self.slot(node.right), slot)
        return slot

    def _name(self, node: ast.Name) -> str:
        return self.names.slot(node)

    def _attribute(self, node: ast.Attribute) -> str:
        name = self.names.qualified(node)
        if name and not name.startswith("torch."):
            return name
        owner = self._class_of_self(node.value)
        if owner:
            return f"{owner}.{node.attr}"
        receiver = self.slot(node.value)
        if node.attr == "type":
            if _DEVICE.fullmatch(name_of(node.value)):
                self.facts.sources.add(receiver)
            return receiver
        receiver = receiver or "?"
        self.facts.attributes.add((receiver, node.attr))
        slot = f"{receiver}.{node.attr}"
        if node.attr == "device":
            self.facts.sources.add(slot)
        return slot

    def _class_of_self(self, node: ast.expr) -> str:
        """Return the class whose method's first parameter a name is."""
        if not isinstance(node, ast.Name):
            return ""
        for function in self.module.enclosing(node):
            if isinstance(function, _Function):
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

    def _named(self, node: ast.NamedExpr) -> str:
        self.flow(self.slot(node.value), self.slot(node.target))
        return self.slot(node.target)

    def _call(self, node: ast.Call) -> str:
        result = self.anonymous(node)
        name = self.names.qualified(node.func) or ""
        if isinstance(node.func, ast.Name) and not name:
            name = node.func.id
        if name in KNOWN:
            return KNOWN[name](self, node, result)
        if isinstance(node.func, ast.Attribute) and not name:
            return self._method(node, node.func, result)
        if name == "torch.device":
            self.facts.sources.add(result)
        elif name.startswith("torch.") and name not in _LOADERS:
            self.flow(TORCH, result)
        arguments = tuple(self.arguments(node))
        receiver = "" if name else self.slot(node.func)
        self.facts.calls.append(Call(name or "__call__", receiver, arguments, result, self.place(node)))
        return result

    def _method(self, node: ast.Call, method: ast.Attribute, result: str) -> str:
        owner = method.value
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
            around = next((e for e in self.module.enclosing(node) if isinstance(e, ast.ClassDef)), None)
            receiver = f"super {self.names.defined(around)}" if around else ""
        else:
            name = self._class_of_self(owner)
            receiver = f"{name}@" if name else self.slot(owner)
        if isinstance(owner, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.JoinedStr):
            self.facts.values[place_of(owner)] = receiver
        if method.attr in KNOWN_METHODS:
            made = KNOWN_METHODS[method.attr](self, node, receiver, result)
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

    # ---- statements -----------------------------------------------------------------------------------------
    def _gather(self) -> None:
        for chained in (
            ast.Subscript,
            ast.Call,
            ast.BinOp,
        ):  # inner ones first: a long chain does not recurse
            for node in reversed(self.module.of(chained)):
                self.slot(node)
        self._bindings()
        self._definitions()
        for compared in self.module.of(ast.Compare):
            self._compare(compared)
        for matched in self.module.of(ast.Match):
            self.facts.values[place_of(matched.subject)] = self.slot(matched.subject)
        for kind in (ast.Dict, ast.NamedExpr, ast.Constant, ast.JoinedStr):
            for node in self.module.of(kind):
                self.slot(node)
        self._refer()
        self._describe()

    def _bindings(self) -> None:
        module = self.module
        for assign in module.of(ast.Assign):
            for target in assign.targets:
                self._assign(target, assign.value)
        for annotated in module.of(ast.AnnAssign):
            if annotated.value is not None:
                self._assign(annotated.target, annotated.value)
            self._annotated(self.slot(annotated.target), annotated.annotation)
        for augmented in module.of(ast.AugAssign):
            self.flow(self.slot(augmented.value), self.slot(augmented.target))
        loops: list[ast.For | ast.AsyncFor | ast.comprehension] = [
            *module.of(ast.For), *module.of(ast.AsyncFor), *module.of(ast.comprehension)
        ]  # fmt: skip
        for loop in loops:
            self._unpack(loop.target, self.load(self.slot(loop.iter), ANY, loop.target))
        for item in module.of(ast.withitem):
            if item.optional_vars is not None:
                self.flow(self.slot(item.context_expr), self.slot(item.optional_vars))

    def _definitions(self) -> None:
        module = self.module
        functions: list[_Function] = [*module.of(ast.FunctionDef), *module.of(ast.AsyncFunctionDef)]
        for function in functions:
            self._function(function)
        for lambda_ in module.of(ast.Lambda):
            self._defaults(lambda_.args)
        for owner in module.of(ast.ClassDef):
            self._class(owner)
        for returned in module.of(ast.Return):
            self.flow(self.slot(returned.value), self._result(returned))

    def _describe(self) -> None:
        """Record what the module imports and which other accelerators it names."""
        facts = self.facts
        named = (name for names in facts.references.values() for name in names)
        facts.uses_torch = any(map(sinks.is_torch, (*self._imported(), *named)))
        texts = (each.value for each in self.module.of(ast.Constant))
        facts.others = {each for each in texts if isinstance(each, str) and each in _OTHERS}
        facts.imports = {
            name: meaning for name, meaning in self.names.top.bound.items() if isinstance(meaning, str)
        }

    def _imported(self) -> Iterator[str]:
        for plain in self.module.of(ast.Import):
            yield from (alias.name for alias in plain.names)
        for origin in self.module.of(ast.ImportFrom):
            if not origin.level:
                yield origin.module or ""

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for part, each in zip(target.elts, value.elts, strict=True):
                    self._assign(part, each)
            else:
                self._unpack(target, self.slot(value))
        elif isinstance(target, ast.Subscript):
            base = self.slot(target.value)
            self.store(self.slot(value), base, key_of(target.slice))
            self.store(self.slot(target.slice), base, KEYS)
        elif isinstance(target, ast.Name | ast.Attribute):
            self.flow(self.slot(value), self.slot(target))

    def _unpack(self, target: ast.expr, source: str) -> None:
        """Assign a value, or its elements, to a target."""
        if isinstance(target, ast.Tuple | ast.List):
            for index, each in enumerate(target.elts):
                self._unpack(each, self.load(source, str(index), each))
        elif source:
            self.flow(source, self.slot(target))

    def _function(self, function: _Function) -> None:
        name = self.names.defined(function)
        given = function.args
        owner = self.module.parents[function]
        is_static = any(getattr(each, "id", "") == "staticmethod" for each in function.decorator_list)
        positional = [each.arg for each in (*given.posonlyargs, *given.args)]
        self.facts.functions[name] = Signature(
            tuple(positional),
            frozenset([*positional, *(each.arg for each in given.kwonlyargs)]),
            given.kwarg.arg if given.kwarg else "",
            given.vararg.arg if given.vararg else "",
            isinstance(owner, ast.ClassDef) and not is_static,
        )
        self._defaults(given)
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            self._annotated(f"{name}.{each.arg}", each.annotation)
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call):
                self._option(name, decorator)

    def _defaults(self, given: ast.arguments) -> None:
        positional = [*given.posonlyargs, *given.args]
        pairs = [*zip(positional[::-1], given.defaults[::-1], strict=False)]
        pairs += [pair for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True) if pair[1]]  # type: ignore[misc]
        for parameter, default in pairs:
            self.flow(self.slot(default), self.names.parameter(parameter))

    def _annotated(self, slot: str, annotation: ast.expr | None) -> None:
        """Record the class of an annotated variable or parameter."""
        name = self.names.qualified(annotation) if isinstance(annotation, ast.Name | ast.Attribute) else None
        if name == "torch.device":
            self.facts.sources.add(slot)
        elif name and slot:
            self.flow(f"{name}@", slot)

    def _option(self, function: str, decorator: ast.Call) -> None:
        """``@click.option("--device", default="cuda")`` gives the parameter its default."""
        if getattr(decorator.func, "attr", "") not in ("option", "argument"):
            return
        names = [each.value for each in decorator.args if isinstance(each, ast.Constant)]
        default = next((each.value for each in decorator.keywords if each.arg == "default"), None)
        for name in names:
            if isinstance(name, str):
                self.flow(self.slot(default), f"{function}.{name.lstrip('-').replace('-', '_')}")

    def _class(self, owner: ast.ClassDef) -> None:
        name = self.names.defined(owner)
        bases = tuple(filter(None, map(self.names.qualified, owner.bases)))
        annotated = (each for each in owner.body if isinstance(each, ast.AnnAssign))
        fields = tuple(each.target.id for each in annotated if isinstance(each.target, ast.Name))
        if any(base.rpartition(".")[2].endswith("Enum") for base in bases):
            for each in owner.body:
                for target in each.targets if isinstance(each, ast.Assign) else ():
                    self.flow(self.slot(target), f"{name}.value")
                    self.flow(self.slot(target), f"{name}@")
        self.facts.classes[name] = Class(bases, fields)

    def _result(self, node: ast.AST) -> str:
        """Return the slot of the result of the function around a node."""
        for above in self.module.enclosing(node):
            if isinstance(above, _Function):
                return f"{self.names.defined(above)}()"
        return ""

    def _compare(self, node: ast.Compare) -> None:
        """Record what is compared: its operands meet in the slot of the comparison."""
        slot = self.anonymous(node)
        for operator, operand in zip([ast.Eq(), *node.ops], [node.left, *node.comparators], strict=True):
            own = self.slot(operand)
            self.facts.values[place_of(operand)] = own
            self.flow(own, slot)
            if isinstance(operator, ast.In | ast.NotIn) and own:
                for index in range(_ELEMENTS):  # of a list; in a dictionary, its keys are looked up
                    self.flow(self.load(own, str(index), operand), slot)
                self.store(self.slot(node.left), own, KEYS)

    def _refer(self) -> None:
        """Record the dotted names that each function uses."""
        nodes: list[ast.Attribute | ast.Name] = [*self.module.of(ast.Attribute), *self.module.of(ast.Name)]
        for node in nodes:
            if isinstance(self.module.parents[node], ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            name = self.names.qualified(node)
            if name:
                self._reference(node, name)
        for constant in self.module.of(ast.Constant):
            if isinstance(constant.value, str) and constant.value.endswith((".cu", ".cuh")):
                self._reference(constant, CUDA_SOURCE)
        for keyword in self.module.of(ast.keyword):
            if keyword.arg in ("extra_cuda_cflags", "cuda_sources"):
                self._reference(keyword, CUDA_SOURCE)

    def _reference(self, node: ast.AST, name: str) -> None:
        self.facts.references.setdefault(self._around(node), set()).add(name)

    def _around(self, node: ast.AST) -> str:
        """Return the outermost function around a node, or method of a top-level class; "" for none."""
        found = ""
        for above in self.module.enclosing(node):
            if isinstance(above, _Function):
                found = self.names.defined(above)
        return found


def name_of(node: ast.expr) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def key_of(node: ast.expr) -> str:
    """Return the field of a key or index."""
    return str(node.value) if isinstance(node, ast.Constant) else ANY
