"""Functions and classes of a project that are used only where there is an accelerator."""

import ast
from collections import defaultdict
from collections.abc import Iterable

from isthmus.migrate.flow.facts import Facts
from isthmus.migrate.flow.symbols import Symbols
from isthmus.migrate.source.conditions import conditions, implies_accelerator
from isthmus.migrate.source.module import Module


def is_sheltered(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where there is an accelerator, as its module shows."""
    return any(implies_accelerator(module, each) for each in conditions(module, node))


def sheltered(found: Iterable[Facts], symbols: Symbols) -> frozenset[str]:
    """Return the dotted names of functions and classes all of whose users have tested for an accelerator.

    A function that may have users outside the project is not among them: in a module that is no script, every
    function without a leading underscore.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
    """
    users: dict[str, set[str]] = defaultdict(set)
    closed: set[str] = set()
    for facts in found:
        for user, names in facts.references.items():
            owner = user.rpartition(".")[0]
            for name in names:
                users[symbols.resolve(name)] |= (
                    {owner if owner in facts.classes else user}
                    if name not in facts.sheltered.get(user, ())
                    else set()
                )
        own = (*facts.functions, *facts.classes)
        closed |= {name for name in own if facts.is_script or name.rpartition(".")[2].startswith("_")}
    known = {name for name in closed if name in users}
    while lost := {name for name in known if users[name] - known}:
        known -= lost
    return frozenset(known)
