"""Functions and classes of a project that use what only CUDA has."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from isthmus_migrate.flow.facts import Facts
from isthmus_migrate.flow.symbols import Symbols
from isthmus_migrate.source.cuda_only import is_below, runs_cuda

_MADE = ("__init__", "forward", "__call__")
_RUN = ("__init__", "forward", "__call__", "step")  # methods of a class that run if an object of it is made


def users(
    found: Sequence[Facts], symbols: Symbols, wanted: Callable[[str], bool], always: bool = True
) -> frozenset[str]:
    """Return the dotted names of functions that cannot do without a name that is wanted, or one another.

    A function that a module names in another way, by a re-export or a changed path, has that name too.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
        wanted: whether a dotted name is; of CUDA's runtime, for example.
        always: False for the functions, and classes with a method, that may use it on some condition too.
    """
    using: dict[str, set[str]] = defaultdict(set)
    queue: list[str] = []
    for facts in found:
        for function in (facts.references.keys() | facts.runs.keys()) - {""}:
            references = facts.references.get(function, {})
            names = {name for name, each in references.items() if each.is_required or not always}
            names |= facts.runs.get(function, set())
            for name in names:
                using[symbols.resolve(name)].add(function)
            if any(map(wanted, names)):
                queue.append(function)
    reached = set(queue)
    while queue:
        name = queue.pop()
        owner, _, last = name.rpartition(".")
        is_class = last in _MADE or not always
        both = [name, owner, f"{owner}.apply"] if is_class else [name]
        for user in (user for each in both for user in using.get(each, ())):
            if user not in reached:
                reached.add(user)
                queue.append(user)
    parts = (name.rpartition(".") for name in reached)
    owners = {
        owner for owner, _, last in parts if last in _MADE[:2] or (not always and symbols.is_class(owner))
    }
    reached |= {each for owner in owners for each in (owner, f"{owner}.apply")}
    named = {name for facts in found for names in facts.references.values() for name in names}
    return frozenset(reached | {name for name in named if symbols.resolve(name) in reached})


def unconditional_cuda_calls(
    found: Iterable[Facts], symbols: Symbols, built: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return for each module that runs code for CUDA only in any case the calls that lead to it, by dotted name.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
        built: names of its extensions that are built of CUDA sources.
    """
    runs: dict[str, set[str]] = defaultdict(set)
    modules = list(found)
    for facts in modules:
        for function, names in facts.runs.items():
            runs[function or f"{facts.module} "] |= {
                each for name in names for each in _called_functions(name, symbols)
            }
    callers: dict[str, set[str]] = defaultdict(set)
    for function, names in runs.items():
        for name in names:
            callers[name].add(function)
    to_port = (name for name in sorted(callers) if runs_cuda(name) or is_below(name, built))
    chains: dict[str, tuple[str, ...]] = {name: (name,) for name in to_port}
    queue = list(chains)
    for name in queue:
        for caller in sorted(callers.get(name, ())):
            if caller not in chains:
                chains[caller] = (caller, *chains[name])
                queue.append(caller)
    return {each.module: chains[start][1:] for each in modules if (start := f"{each.module} ") in chains}


def _called_functions(name: str, symbols: Symbols) -> Iterable[str]:
    """Return the functions that a call of a dotted name runs."""
    resolved = symbols.resolve(name)
    owner = resolved if symbols.is_class(resolved) else resolved.removesuffix(".apply")
    if symbols.is_class(owner):
        return filter(None, (symbols.method(owner, each) for each in _RUN))
    return [resolved]
