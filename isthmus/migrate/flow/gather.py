"""Gather the facts of a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from isthmus.migrate.flow import sinks
from isthmus.migrate.flow.expressions import OTHERS, Expressions, key_of
from isthmus.migrate.flow.facts import ANY, COMPARED, KEYS, Class, Facts, Signature
from isthmus.migrate.flow.optional import is_optional
from isthmus.migrate.flow.pytests import pass_values
from isthmus.migrate.flow.sheltered import is_sheltered
from isthmus.migrate.flow.steered import steers
from isthmus.migrate.flow.tested import raised, tested
from isthmus.migrate.source import visible_devices
from isthmus.migrate.source.blocks import runs_with
from isthmus.migrate.source.calls import argument, keyword, last_name
from isthmus.migrate.source.cuda_names import HANDLES
from isthmus.migrate.source.cuda_only import CUDA_SOURCE, asks_cuda, is_of_kernels
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.names import FUNCTIONS, Function
from isthmus.migrate.source.strings import text
from isthmus.migrate.source.verdicts import Steers, place_of

_PROPERTIES = frozenset({"property", "cached_property"})
_ELEMENTS = 8  # elements of a collection that a membership test is followed to


def gather(module: Module) -> Facts:
    """Return the facts of a module."""
    return _Gatherer(module).facts


class _Gatherer(Expressions):
    """Walks the statements of a module once."""

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
        self._refer()
        self._build()
        self._run()
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
            self._ignored(function, read)
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
        facts.others = {each for each in texts if isinstance(each, str) and each in OTHERS}
        facts.tested = tested(self.module)
        facts.raised = raised(self.module)
        facts.is_mocking = self.module.mentions("mock", "monkeypatch")
        facts.imports = {
            name: meaning for name, meaning in self.names.top.bound.items() if isinstance(meaning, str)
        }
        if self.module.mentions(visible_devices.VARIABLE):
            facts.before_choice = visible_devices.loaded_before(self.module.tree, self.module.name)

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

    def _ignored(self, function: Function, read: Set[str]) -> None:
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
        for above in self.module.enclosing(node):
            if isinstance(above, FUNCTIONS):
                return f"{self.names.defined(above)}()"
        return ""

    def _compare(self, node: ast.Compare) -> None:
        """Record what is compared: its operands meet in the slot of the comparison."""
        slot = self.anonymous(node) + COMPARED
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
            is_handle = isinstance(node, ast.Attribute) and node.attr in HANDLES
            name = CUDA_SOURCE if is_handle else self.names.qualified(node)
            if name:
                self._reference(node, name)
                if name.startswith("torch.cuda."):
                    uses = self.facts.steers.setdefault(self._around(node), {})
                    end = steers(self.module, node, name)
                    uses[name] = end if uses.get(name, end) is end else Steers.BOTH
            elif getattr(node, "id", "") == "__name__" and isinstance(self.module.parents[node], ast.Compare):
                self.facts.is_script = True
        for constant in self.module.of(ast.Constant):
            said = text(constant)
            if said.endswith((".cu", ".cuh")) or said.startswith(("aten::cudnn_", "nvidia-smi")):
                self._reference(constant, CUDA_SOURCE)
        for given in self.module.of(ast.keyword):
            if given.arg in ("extra_cuda_cflags", "cuda_sources"):
                self._reference(given, CUDA_SOURCE)

    def _build(self) -> None:
        """Record the extensions that ``CUDAExtension("package.name", ...)`` builds."""
        for call in self.module.of(ast.Call):
            if self.names.qualified(call.func) == "torch.utils.cpp_extension.CUDAExtension":
                name = text(argument(call, ("name",), "name"))
                self.facts.built |= {name} if name else set()

    def _run(self) -> None:
        """Record what each function calls in any case."""
        functions = self.module.of(ast.FunctionDef)
        decorators = {
            each for function in functions for part in function.decorator_list for each in ast.walk(part)
        }
        for call in (each for each in self.module.of(ast.Call) if each not in decorators):
            function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
            owner = self._class_of_self(function.value) if isinstance(function, ast.Attribute) else ""
            name = f"{owner}.{function.attr}" if owner else self.names.qualified(function)  # type: ignore[attr-defined]
            block = runs_with(self.module, call)
            around = self._around(call) if block else ""
            if (
                name
                and not is_of_kernels(name)
                and (not block or (block[0] in functions and self.names.defined(block[0]) == around))
            ):
                self.facts.runs.setdefault(around, set()).add(name)
        for kernel in functions:
            given = (each.func if isinstance(each, ast.Call) else each for each in kernel.decorator_list)
            names = {self.names.qualified(each) or "" for each in given}
            self.facts.runs.setdefault(self.names.defined(kernel), set()).update(names)

    def _reference(self, node: ast.AST, name: str) -> None:
        around = self._around(node)
        names = self.facts.references.setdefault(around, set())
        sheltered = self.facts.sheltered.setdefault(around, set())
        if (name in sheltered or name not in names) and self._is_sheltered(node, name):
            sheltered.add(name)
        else:
            sheltered.discard(name)
        names.add(name)
        if around and not asks_cuda(name) and not is_optional(self.module, node):
            self.facts.required.setdefault(around, set()).add(name)

    def _is_sheltered(self, node: ast.AST, name: str) -> bool:
        is_own = not sinks.is_torch(name) and self.module.mentions("is_available", "cuda", "gpu")
        return is_own and is_sheltered(self.module, node)

    def _around(self, node: ast.AST) -> str:
        """Return the outermost function around a node, or method of a top-level class; "" for none."""
        found = ""
        for above in self.module.enclosing(node):
            if isinstance(above, FUNCTIONS):
                found = self.names.defined(above)
        return found


def _is_constant(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or ``...``."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
