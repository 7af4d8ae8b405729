"""Gather the facts of a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from isthmus_migrate.flow import sinks
from isthmus_migrate.flow.builtin_effects import KNOWN, KNOWN_METHODS
from isthmus_migrate.flow.expressions import OTHERS, Expressions, key_of
from isthmus_migrate.flow.facts import ANY, COMPARED, KEYS, Class, Facts, Signature
from isthmus_migrate.flow.message_texts import raised_texts, tested_texts
from isthmus_migrate.flow.pytests import pass_values
from isthmus_migrate.flow.references import refer
from isthmus_migrate.source import visible_devices
from isthmus_migrate.source.calls import keyword, last_name
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS, Function
from isthmus_migrate.source.verdicts import place_of

_PROPERTIES = frozenset({"property", "cached_property"})
_ELEMENTS = 8  # elements of a collection that a membership test is followed to


def gather(module: Module) -> Facts:
    """Return the facts of a module."""
    return _Gatherer(module).facts


class _Gatherer(Expressions):
    """Walks the statements of a module once."""

    known = KNOWN
    known_methods = KNOWN_METHODS

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._gather()

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
        refer(self)
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
        functions: list[Function] = [*module.of(ast.FunctionDef), *module.of(ast.AsyncFunctionDef)]
        read = {self.slot(each) for each in module.of(ast.Name) if isinstance(each.ctx, ast.Load)}
        for function in functions:
            self._function(function)
            self._record_ignored(function, read)
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
        facts.uses_torch = any(map(sinks.is_torch, (*self._imported_modules(), *named)))
        texts = (each.value for each in self.module.of(ast.Constant))
        facts.others = {each for each in texts if isinstance(each, str) and each in OTHERS}
        facts.tested = tested_texts(self.module)
        facts.raised = raised_texts(self.module)
        facts.has_local_rank = self.module.mentions("LOCAL_RANK")
        facts.is_mocking = self.module.mentions("mock", "monkeypatch")
        facts.mocks_choice = facts.is_mocking and self.module.mentions("cuda.is_available")
        facts.imports = {
            name: meaning for name, meaning in self.names.top.bound.items() if isinstance(meaning, str)
        }
        if self.module.mentions(visible_devices.VARIABLE):
            facts.before_choice = visible_devices.loaded_before(self.module.tree, self.module.name)

    def _imported_modules(self) -> Iterator[str]:
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

    def _function(self, function: Function) -> None:
        name = self.names.defined(function)
        given = function.args
        owner = self.module.parents[function]
        decorators = {last_name(each) for each in function.decorator_list}
        positional = [each.arg for each in (*given.posonlyargs, *given.args)]
        self.facts.functions[name] = Signature(
            tuple(positional),
            frozenset([*positional, *(each.arg for each in given.kwonlyargs)]),
            given.kwarg.arg if given.kwarg else "",
            given.vararg.arg if given.vararg else "",
            isinstance(owner, ast.ClassDef) and "staticmethod" not in decorators,
        )
        if not decorators.isdisjoint(_PROPERTIES):
            self.flow(f"{name}()", name)
        self._defaults(given)
        for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            self._annotated(f"{name}.{each.arg}", each.annotation)
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call):
                self._option(name, decorator)
        pass_values(self, function)

    def _record_ignored(self, function: Function, read: Set[str]) -> None:
        """Record the required parameters that a function ignores; without a body, it is there to be overridden."""
        if all(isinstance(each, ast.Pass | ast.Raise) or _is_constant(each) for each in function.body):
            return
        given = function.args
        positional = [*given.posonlyargs, *given.args]
        required = positional[: len(positional) - len(given.defaults)]
        required += [
            each for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if not default
        ]
        self.facts.unread.update({self.names.parameter(each) for each in required} - read)

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
        default = keyword(decorator, "default")
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
        function = self.module.nearest(node, *FUNCTIONS)
        return f"{self.names.defined(function)}()" if function is not None else ""

    def _compare(self, node: ast.Compare) -> None:
        """Record what is compared: its operands meet in the slot of the comparison."""
        slot = self.anonymous(node) + COMPARED
        for operator, operand in zip([ast.Eq(), *node.ops], [node.left, *node.comparators], strict=True):
            own = self.slot(operand)
            self.facts.values[place_of(operand)] = own
            self.flow(own, slot)
            if isinstance(operator, ast.In | ast.NotIn) and own:
                for index in range(_ELEMENTS):  # elements of a list; in a dictionary, its keys are looked up
                    self.flow(self.load(own, str(index), operand), slot)
                self.store(self.slot(node.left), own, KEYS)


def _is_constant(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or ``...``."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
