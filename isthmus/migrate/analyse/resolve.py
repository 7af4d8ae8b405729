"""Resolve names to functions of the project."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from isthmus.migrate.analyse.calls import Facts, Reference
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.modules import Modules

_HOPS = 8  # limit of re-exports followed
_DEEPEST = 40  # limit of variable assignments followed


class Symbols:
    """The functions, classes and variables of a project.

    Args:
        found: facts of its modules.

    Attributes:
        functions: dotted name -> a finding at its definition.
    """

    def __init__(self, found: list[Facts]) -> None:
        self.functions: dict[str, Finding] = {}
        self._classes: dict[str, list[str]] = {}
        self._imports: dict[str, dict[str, str]] = {}
        self._held: dict[tuple[str, str], set[Reference]] = defaultdict(set)
        self._types: dict[Reference, frozenset[str]] = {}
        for facts in found:
            self.functions |= facts.functions
            self._classes |= facts.classes
            self._imports[facts.module] = facts.imports
        self._lineages: dict[str, list[str]] = {}
        self._depth = 0
        self._modules = Modules(self._imports)
        for facts in found:
            for (scope, variable), values in facts.held.items():
                self._held[self._owner(scope, variable)] |= values

    def short(self, name: str, beside: str) -> str:
        """Return a function's name for messages, without its module if ``beside`` is in the same one."""
        module = self._module_of(name)
        said = name.removeprefix(f"{module}.")
        return said if module == self._module_of(beside) else f"{module.rpartition('.')[2]}.{said}"

    def callees(self, reference: Reference) -> Iterator[str]:
        """Yield the functions that a reference may call."""
        head, _, last = reference.name.rpartition(".")
        if not reference.absolute:
            if head:
                for owner in self._types_of(reference._replace(name=head)):
                    yield from self._method(owner, last)
            if reference.called:
                for owner in self._types_of(reference):
                    yield from self._instance_called(owner)
            return
        if "()" in reference.name:
            owners = self._types_of(reference._replace(name=head if "()" in head else reference.name))
            for owner in owners:
                yield from self._method(owner, last) if "()" in head else self._instance_called(owner)
            return
        yield from self._named(reference)

    def _named(self, reference: Reference) -> Iterator[str]:
        name = self._resolve(reference.name)
        if name in self.functions:
            yield name
        elif name in self._classes:
            if reference.called:
                yield from self._method(name, "__init__")
        elif (owner := name.rpartition(".")[0]) in self._classes:
            yield from self._method(owner, name.rpartition(".")[2])

    def _instance_called(self, owner: str) -> Iterator[str]:
        yield from list(self._method(owner, "__call__")) or self._method(owner, "forward")

    def _method(self, owner: str, name: str) -> Iterator[str]:
        """Yield a class's or inherited method; ``apply`` of an autograd function is both passes."""
        for each in self._lineage(owner):
            if f"{each}.{name}" in self.functions:
                yield f"{each}.{name}"
                return
        if name == "apply":
            yield from self._method(owner, "forward")
            yield from self._method(owner, "backward")

    def _lineage(self, owner: str) -> list[str]:
        """Return a class and its bases in the project, nearest first."""
        lineage = self._lineages.get(owner)
        if lineage is None:
            lineage = self._lineages[owner] = [owner]
            for each in lineage:
                bases = (self._resolve(base) for base in self._classes.get(each, ()))
                lineage += [base for base in bases if base in self._classes and base not in lineage]
        return lineage

    def _resolve(self, name: str) -> str:
        """Return the dotted name of the definition, following re-exports; "" outside the project."""
        for _ in range(_HOPS):
            module, rest = self._modules.split(name)
            if not rest or module is None:
                return ""
            imported = self._imports[module].get(rest[0], "")
            own = ".".join([module, *rest]) if module else ".".join(rest)
            if own in self.functions or own in self._classes or imported in {"", f"{module}.{rest[0]}"}:
                return own
            name = ".".join([imported, *rest[1:]])
        return ""

    def _module_of(self, name: str) -> str:
        while name and name not in self._imports:
            name = name.rpartition(".")[0]
        return name

    # ---- values of variables -------------------------------------------------------------------------------
    def _types_of(self, reference: Reference) -> frozenset[str]:
        """Return the project's classes whose instances a variable, attribute or call may be."""
        if reference not in self._types:
            self._types[reference] = frozenset()  # during lookup, for a = b; b = a
            if self._depth < _DEEPEST:
                self._depth += 1
                self._types[reference] = frozenset(self._look_up(reference))
                self._depth -= 1
        return self._types[reference]

    def _look_up(self, reference: Reference) -> Iterator[str]:
        scope, name = reference.scope, reference.name
        if reference.absolute:
            made, _, held = name.partition("()")
            owners = {self._resolve(made)} & self._classes.keys()
            yield from self._attributes(owners, [each for each in held.split(".") if each])
            return
        first, *attributes = name.split(".")
        owner = self._class_around(scope)
        if first in {"self", "cls"} and owner:
            yield from self._attributes({owner}, attributes)
        elif first == "super()" and owner:
            yield from self._attributes(set(self._lineage(owner)[1:2]), attributes)
        else:
            yield from self._attributes(self._variable(scope, first), attributes)

    def _attributes(self, owners: set[str], attributes: list[str]) -> set[str]:
        for attribute in attributes:
            keys = {(each, attribute) for owner in owners for each in self._lineage(owner)}
            owners = self._instances(value for key in keys for value in self._held.get(key, ()))
        return owners

    def _variable(self, scope: str, name: str) -> set[str]:
        """Return the classes of a variable in a scope or its parents."""
        while scope and (scope, name) not in self._held:
            scope = scope.rpartition(".")[0]
        return self._instances(self._held.get((scope, name), ()))

    def _instances(self, values: Iterable[Reference]) -> set[str]:
        return {owner for value in values for owner in self._types_of(value)}

    def _owner(self, scope: str, variable: str) -> tuple[str, str]:
        """Return the key of a variable; ``self`` attributes belong to their class."""
        first, _, attribute = variable.partition(".")
        owner = self._class_around(scope) if attribute and first == "self" else ""
        return (owner, attribute) if owner else (scope, variable)

    def _class_around(self, scope: str) -> str:
        while scope and scope not in self._classes:
            scope = scope.rpartition(".")[0]
        return scope
