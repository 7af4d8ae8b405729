"""The functions and classes of a project, by dotted name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from isthmus_migrate.flow.facts import Facts, Signature
from isthmus_migrate.source.modules import Modules

_HOPS = 8  # limit of re-exports followed


class Symbols:
    """Definitions of a project, across its modules.

    Args:
        found: facts of its modules.
    """

    def __init__(self, found: Iterable[Facts]) -> None:
        self._functions: dict[str, Signature] = {}
        self._classes: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._imports: dict[str, dict[str, str]] = {}
        self._methods: dict[str, list[str]] = defaultdict(list)
        self._resolved: dict[str, str] = {}
        for facts in found:
            self._functions |= facts.functions
            self._classes |= {name: (each.bases, each.fields) for name, each in facts.classes.items()}
            self._imports[facts.module] = facts.imports
        for name in self._functions:
            owner, _, last = name.rpartition(".")
            if owner in self._classes:
                self._methods[last].append(name)
        self._modules = Modules(self._imports)

    def slot(self, slot: str) -> str:
        """Return a slot under the name of its definition: ``config.DEVICE`` for ``from .config import DEVICE``."""
        if ":" in slot or slot.startswith(("?", "super ")):
            return slot
        bare = slot.rstrip("@()")
        return self.resolve(bare) + slot[len(bare) :]

    def resolve(self, name: str) -> str:
        """Return the dotted name of a definition, following re-exports; the name itself outside the project."""
        if name not in self._resolved:
            self._resolved[name] = self._resolve(name)
        return self._resolved[name]

    def _resolve(self, name: str) -> str:
        for _ in range(_HOPS):
            module, rest = self._split_module(name)
            if not rest or module is None:
                return name
            imported = self._imports[module].get(rest[0], "")
            own = ".".join([module, *rest]) if module else ".".join(rest)
            if (
                imported in {"", f"{module}.{rest[0]}", rest[0]}
                or own in self._functions
                or own in self._classes
            ):
                return own
            name = ".".join([imported, *rest[1:]])
        return name

    def _split_module(self, name: str) -> tuple[str | None, list[str]]:
        """Split a dotted name into the project's module and the rest."""
        module, rest = self._modules.split(name)
        is_alone = "" in self._imports and len(self._imports) == 1
        return ("" if module is None and is_alone else module), rest

    def member(self, name: str) -> str:
        """Return the member of a module of the project that a dotted name begins with; "" outside the project."""
        module, rest = self._split_module(name)
        return f"{module}.{rest[0]}" if module and rest else ""

    def is_module(self, name: str) -> bool:
        """Whether a dotted name is a module of the project, or a member of one."""
        return self._split_module(name)[0] is not None

    def is_function(self, name: str) -> bool:
        """Whether a name is of a function of the project."""
        return name in self._functions

    def is_class(self, name: str) -> bool:
        """Whether a name is a class of the project."""
        return self.resolve(name) in self._classes

    def fields(self, owner: str) -> tuple[str, ...]:
        """Return the fields of a dataclass, those of its bases first."""
        found: list[str] = []
        for each in reversed(self.lineage(owner)):
            found += [name for name in self._classes[each][1] if name not in found]
        return tuple(found)

    def signature(self, function: str) -> Signature:
        """Return the parameters of a function of the project."""
        return self._functions[function]

    def callee(self, name: str) -> str:
        """Return the function that a call of a name runs, ``__init__`` for a class; "" outside the project."""
        resolved = self.resolve(name)
        if resolved in self._functions:
            return resolved
        if resolved in self._classes:
            return self.method(resolved, "__init__")
        owner, _, last = resolved.rpartition(".")
        return self.method(owner, last) if owner in self._classes else ""

    def method(self, owner: str, name: str, above: bool = False) -> str:
        """Return a class's or inherited method; "" if no class of the project has it.

        Args:
            owner: dotted name of the class.
            name: of the method.
            above: whether to look in its bases only.
        """
        lineage = self.lineage(self.resolve(owner))
        found = (f"{each}.{name}" for each in lineage[1 if above else 0 :])
        return next((each for each in found if each in self._functions), "")

    def methods(self, name: str) -> list[str]:
        """Return the methods of this name of all classes."""
        return self._methods.get(name, [])

    def lineage(self, owner: str) -> list[str]:
        """Return a class and its bases in the project, nearest first."""
        lineage = [owner]
        for each in lineage:
            bases = map(self.resolve, self._classes[each][0] if each in self._classes else ())
            lineage += [base for base in bases if base in self._classes and base not in lineage]
        return lineage

    def foreign_bases(self, owner: str) -> list[str]:
        """Return the bases outside the project of a class."""
        lineage = [each for each in self.lineage(self.resolve(owner)) if each in self._classes]
        bases = (self.resolve(base) for each in lineage for base in self._classes[each][0])
        return [base for base in bases if base not in self._classes]
