"""Functions and classes of a project that use what only CUDA has."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from isthmus.migrate.flow.facts import Facts
from isthmus.migrate.flow.symbols import Symbols


def users(found: Iterable[Facts], symbols: Symbols, wanted: Callable[[str], bool]) -> frozenset[str]:
    """Return the dotted names of functions that use a name that is wanted, or one another.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
        wanted: whether a dotted name is; of CUDA's runtime, for example.
    """
    using: dict[str, set[str]] = defaultdict(set)
    queue: list[str] = []
    for facts in found:
        for function, names in facts.references.items():
            if not function:
                continue
            for name in names:
                using[symbols.resolve(name)].add(function)
            if any(map(wanted, names)):
                queue.append(function)
    reached = set(queue)
    while queue:
        name = queue.pop()
        owner, _, last = name.rpartition(".")
        both = [name, owner, f"{owner}.apply"] if last in ("__init__", "forward", "__call__") else [name]
        for user in (user for each in both for user in using.get(each, ())):
            if user not in reached:
                reached.add(user)
                queue.append(user)
    owners = {name.rpartition(".")[0] for name in reached if name.endswith((".forward", ".__init__"))}
    return frozenset(reached | {each for owner in owners for each in (owner, f"{owner}.apply")})
