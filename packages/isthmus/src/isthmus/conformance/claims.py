"""``isthmus conform list``: the operators of the opset, and what a driver's libraries claim of each."""

from collections.abc import Iterator, Sequence

from isthmus import opset
from isthmus.conformance.libraries_target import LibrariesTarget
from isthmus.conformance.run import candidate
from isthmus.conformance.selection import matching
from isthmus.opset.library import HOST, IN_PLACE, MIXED, STRIDED
from isthmus.opset.tiers import tiers_of

_FLAGS = {STRIDED: "strided", IN_PLACE: "in_place", MIXED: "mixed", HOST: "host"}


def tiers() -> list[str]:
    """Return the tiers of the opset: core and the models."""
    return sorted({tier for name in opset.operators() for tier in tiers_of(name)})


def claims(driver: str, libraries: Sequence[str], tier: str, patterns: Sequence[str] = ()) -> Iterator[str]:
    """Yield lines of tab-separated columns: operator, family, tiers, library, dtypes, flags; "-" for none.

    Raises:
        UsageError: unknown driver or operator.
        LoaderError: the driver or a library cannot be loaded.
    """
    chosen = matching(patterns, opset.operators())
    described = LibrariesTarget(candidate(driver), libraries).describe()["libraries"]
    yield "\t".join(("operator", "family", "tiers", "library", "dtypes", "flags"))
    for name, operator in opset.operators().items():
        belongs = tiers_of(name)
        if name not in chosen or (tier and tier not in belongs):
            continue
        head = (name, operator.family, ",".join(belongs) or "-")
        found = [
            (library["name"], library["operators"][name])
            for library in described
            if name in library["operators"]
        ]
        for library_name, row in found:
            flags = ",".join(word for bit, word in _FLAGS.items() if row["flags"] & bit)
            yield "\t".join((*head, library_name, ",".join(row["dtypes"]), flags or "-"))
        if not found:
            yield "\t".join((*head, "-", "-", "-"))
