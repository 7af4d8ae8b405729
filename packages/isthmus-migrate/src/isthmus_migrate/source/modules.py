"""The modules of a project, found in dotted names."""

from collections import defaultdict
from collections.abc import Iterable


class Modules:
    """Modules by dotted name and by every unique suffix of it, for packages in folders like ``src``.

    Args:
        names: dotted names of the modules.
    """

    def __init__(self, names: Iterable[str]) -> None:
        known = set(names)
        ends: dict[str, set[str]] = defaultdict(set)
        for name in known:
            parts = name.split(".")
            for start in range(len(parts)):
                ends[".".join(parts[start:])].add(name)
        self._modules = {
            end: end if end in known else min(found)
            for end, found in ends.items()
            if end in known or len(found) == 1
        }

    def split(self, name: str) -> tuple[str | None, list[str]]:
        """Split a dotted name into the project's module, or None, and the rest."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            module = self._modules.get(".".join(parts[:count]))
            if module is not None:
                return module, parts[count:]
        return None, parts
