"""Functions and classes of a project that use what only CUDA has."""

from collections import defaultdict
from collections.abc import Iterable

from isthmus.migrate.flow.facts import Facts
from isthmus.migrate.flow.symbols import Symbols
from isthmus.migrate.source.cuda_names import is_for_cuda_only


def cuda_only(found: Iterable[Facts], symbols: Symbols) -> frozenset[str]:
    """Return the dotted names of functions that require a name of CUDA's runtime or a package for it, or one another.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
    """
    users: dict[str, set[str]] = defaultdict(set)
    queue: list[str] = []
    for facts in found:
        for function, names in facts.required.items():
            for name in names:
                users[symbols.resolve(name)].add(function)
            if any(map(is_for_cuda_only, names)):
                queue.append(function)
    reached = set(queue)
    while queue:
        name = queue.pop()
        owner, _, last = name.rpartition(".")
        both = [name, owner, f"{owner}.apply"] if last in ("__init__", "forward", "__call__") else [name]
        for user in (user for each in both for user in users.get(each, ())):
            if user not in reached:
                reached.add(user)
                queue.append(user)
    owners = {name.rpartition(".")[0] for name in reached if name.endswith((".forward", ".__init__"))}
    return frozenset(reached | {each for owner in owners for each in (owner, f"{owner}.apply")})
