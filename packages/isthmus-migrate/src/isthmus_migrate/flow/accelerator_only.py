"""Functions and classes of a project that are used only where there is an accelerator."""

from collections import defaultdict
from collections.abc import Iterable

from isthmus_migrate.flow.facts import Facts
from isthmus_migrate.flow.symbols import Symbols


def find_accelerator_only(found: Iterable[Facts], symbols: Symbols, is_open: bool = True) -> frozenset[str]:
    """Return the dotted names of functions and classes all of whose users have tested for an accelerator.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
        is_open: whether functions may have users outside the project: those without a leading underscore, in a module
            that is neither a script nor a test. They are not returned.
    """
    users: dict[str, set[str]] = defaultdict(set)
    closed: set[str] = set()
    for facts in found:
        for user, names in facts.references.items():
            owner = user.rpartition(".")[0]
            for name, each in names.items():
                own = set() if each.is_sheltered else {owner if owner in facts.classes else user}
                users[symbols.resolve(name)] |= own
        defined = (*facts.functions, *facts.classes)
        is_closed = not is_open or facts.is_script
        closed |= {name for name in defined if is_closed or name.rpartition(".")[2].startswith("_")}
    known = {name for name in closed if name in users}
    while lost := {name for name in known if users[name] - known}:
        known -= lost
    return frozenset(known)
