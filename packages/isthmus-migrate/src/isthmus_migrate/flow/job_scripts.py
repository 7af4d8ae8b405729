"""Functions of a project that a script which submits jobs runs, on a machine that may have no accelerator."""

from collections.abc import Iterable

from isthmus_migrate.flow.facts import Facts
from isthmus_migrate.flow.symbols import Symbols

_SUBMITS = frozenset({"submitit", "ray", "dask_jobqueue", "parsl", "modal"})


def find_submitted_names(found: Iterable[Facts], symbols: Symbols) -> frozenset[str]:
    """Return the dotted names of what modules use that use a package for jobs on other machines.

    Args:
        found: facts of the project's modules.
        symbols: its definitions.
    """
    names = (set(facts.imports.values()).union(*facts.references.values()) for facts in found)
    scripts = (each for each in names if not _SUBMITS.isdisjoint(name.partition(".")[0] for name in each))
    return frozenset(symbols.resolve(name) for each in scripts for name in each)
