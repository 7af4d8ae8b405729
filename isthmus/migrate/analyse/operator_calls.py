"""The project's own operators and kernels, and their calls from Python."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.cpp import Arity
from isthmus.migrate.analyse.kernels import BUILDS, builds_cuda, kernels, keywords, todo
from isthmus.migrate.analyse.module import Module, Project, ProjectDetector
from isthmus.migrate.analyse.native import Operator, findings, operators_of, units_of
from isthmus.migrate.analyse.stand_ins import advice
from isthmus.migrate.source.findings import Finding, Severity

_OPS = "torch.ops."
_NEVER = sys.stdlib_module_names | {"torch", "numpy"}  # packages that bring no operators of the project
_TELLING = re.compile(r"(^|_)(C|ext|extension|cuda|kernels?|ops)(_|$)")  # what compiled modules are called
_IMPORTS = frozenset(("importlib.import_module", "__import__"))


class Call(NamedTuple):
    """A call.

    Attributes:
        name: dotted name of what is called.
        arguments: how many; None where some are starred.
        place: a finding there, without words.
    """

    name: str
    arguments: int | None
    place: Finding


class Facts(NamedTuple):
    """What one module calls and builds.

    Attributes:
        module: its dotted name.
        calls: that may be of an operator of the project's own.
        launches: ``kernel[grid](...)``.
        kernels: last two parts of a kernel's dotted name -> code.
        built: dotted name of a variable that holds an extension -> whether that has CUDA sources.
        extensions: names of extensions that are built.
    """

    module: str
    calls: list[Call]
    launches: list[Call]
    kernels: dict[str, str]
    built: dict[str, bool]
    extensions: set[str]


def gather(module: Module) -> Facts:
    """What one module calls and builds."""
    facts = Facts(module.name, [], [], {}, {}, set())
    holders: dict[str, str] = {}  # variable that holds an extension -> dotted name
    for call in module.of(ast.Call):
        _note_build(module, call, facts, holders)
    for function, code in kernels(module):
        facts.kernels[_tail(f"{module.names.scope(function)}.{function.name}")] = code
    for call in module.of(ast.Call):
        if isinstance(call.func, ast.Subscript):
            _note(module, call, module.names.qualified(call.func.value), facts.launches)
        else:
            _note(module, call, _called(module, call.func, holders), facts.calls)
    return facts


def judge(project: Project) -> Iterator[Finding]:
    """The C++ and CUDA sources, calls of their operators (IM407) and launches of Python's kernels (IM408, IM409)."""
    found: list[Facts] = project.facts
    units = units_of(project.natives)
    operators = operators_of(units)
    yield from findings(units, operators)
    kernel = {name: code for facts in found for name, code in facts.kernels.items()}
    known = _Operators(operators, found)
    for facts in found:
        for call in facts.launches:
            if code := kernel.get(_tail(call.name)):
                yield _launch(call, code)
        for call in facts.calls:
            if operator := known.called(call):
                yield _call(call, operator)


class _Operators:
    """The operators of the project, by what Python calls them."""

    def __init__(self, bound: list[Operator], found: list[Facts]) -> None:
        self._library = {(each.module, each.name): each for each in bound if each.library}
        self._bound: dict[str, list[Operator]] = defaultdict(list)
        for each in bound:
            if not each.library:
                self._bound[each.name].append(each)
        self._built = {name: cuda for facts in found for name, cuda in facts.built.items()}
        self._extensions = {name for facts in found for name in facts.extensions}
        self._modules = {facts.module for facts in found}
        self._packages = {name.rpartition(".")[0] for name in self._modules}

    def called(self, call: Call) -> Operator | None:
        """The operator that a call is of."""
        if call.name.startswith(_OPS):
            namespace, name = (*call.name.removeprefix(_OPS).split("."), "")[:2]
            return self._library.get((namespace, name))
        holder, _, name = call.name.rpartition(".")
        fitting = [
            each
            for each in self._bound.get(name, [])
            if call.arguments is None or each.arity.takes(call.arguments)
        ]
        if holder in self._built:  # also an operator whose binding is made when it is built
            built = Operator("", name, False, self._built[holder], Arity(), call.place.path, call.place.line)
            return fitting[0] if fitting else built
        return next((each for each in fitting if self._holds(holder, each)), None)

    def _holds(self, holder: str, operator: Operator) -> bool:
        """Whether a module that Python names may be the extension that has an operator."""
        package, _, name = holder.rpartition(".")
        if operator.module:
            return name == operator.module
        if self._extensions or holder in self._modules:
            return name in self._extensions
        return package in self._packages - {""} or bool(
            _TELLING.search(name)
        )  # no build names it: as it looks


def _note_build(module: Module, call: ast.Call, facts: Facts, holders: dict[str, str]) -> None:
    """An extension that is built, or imported by its name, and the variable that holds it."""
    function = module.names.qualified(call.func) or (call.func.id if isinstance(call.func, ast.Name) else "")
    if function not in BUILDS and function not in _IMPORTS:
        return
    given = keywords(call).get("name", call.args[0] if call.args else None)
    name = given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""
    if function in BUILDS and name:
        facts.extensions.add(name.rpartition(".")[2])
    parent = module.parents[call]
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        variable = parent.targets[0].id
        holders[variable] = f"{module.name}.{variable}" if function in BUILDS else name
        if function in BUILDS:
            facts.built[holders[variable]] = builds_cuda(call, function)


def _called(module: Module, function: ast.expr, holders: dict[str, str]) -> str | None:
    """Dotted name of what is called, through a variable that holds an extension too."""
    name = module.names.qualified(function)
    if name is None and isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        holder = holders.get(function.value.id)
        return f"{holder}.{function.attr}" if holder else None
    return name


def _note(module: Module, call: ast.Call, name: str | None, calls: list[Call]) -> None:
    if not name or "." not in name or (name.partition(".")[0] in _NEVER and not name.startswith(_OPS)):
        return
    starred = any(isinstance(each, ast.Starred) for each in call.args) or any(
        not each.arg for each in call.keywords
    )
    place = module.finding("", Severity.REVIEW, call, name, "", "")
    calls.append(Call(name, None if starred else len(call.args) + len(call.keywords), place))


def _tail(name: str) -> str:
    """Module and name: what is left the same by the folder from which a package is imported."""
    return ".".join(name.split(".")[-2:])


def _launch(call: Call, code: str) -> Finding:
    name = call.name.rpartition(".")[2]
    severity, instead = todo(code, name)
    said = (
        "launches a Triton kernel of the project"
        if code == "IM408"
        else "launches a CUDA kernel of the project"
    )
    return call.place._replace(code=code, severity=severity, message=said, advice=instead)


def _call(call: Call, operator: Operator) -> Finding:
    if operator.cuda:
        said = f"calls an operator of the project that runs on CUDA only ({operator.path}:{operator.line})"
        return call.place._replace(
            code="IM407", severity=Severity.MANUAL, message=said, advice=advice(operator.name)
        )
    said = f"calls a C++ operator of the project ({operator.path}:{operator.line})"
    keep = "it works on the target once it is built for it, if it uses ATen's operators and no data pointers"
    return call.place._replace(code="IM407", severity=Severity.REVIEW, message=said, advice=keep)


DETECTOR = ProjectDetector(gather, judge)
