"""Apply patches one by one; report those that do not match the installed version of a library."""

from collections.abc import Callable, Mapping
from typing import Any

from isthmus_common import patches

FEATURE = "ops"


class Attempt:
    """A :class:`isthmus_common.patches.Scope` that continues after a patch fails.

    Attributes:
        scope: the applied patches.
        left: reasons why targets were not patched, by target.
    """

    def __init__(self) -> None:
        self.scope = patches.Scope(FEATURE)
        self.left: dict[str, str] = {}

    def replace(
        self, target: str, make: Callable[[Any], Any], reason: str, expects: tuple[str, ...] = ()
    ) -> None:
        """Replace an attribute of a module or a class by ``make(original)``.

        Args:
            target: dotted name.
            make: builds the replacement from the original.
            reason: one line.
            expects: leading parameter names of the original.
        """
        if self._free(target):
            try:
                self.scope.replace(target, make, reason, expects)
            except (patches.PatchError, ModuleNotFoundError) as error:
                self.left[target] = str(error)

    def register(
        self,
        registry: Mapping[str, Any],
        write: Callable[[str, Any], None],
        key: str,
        make: Callable[[Any], Any],
        target: str,
        reason: str,
        expects: tuple[str, ...] = (),
    ) -> None:
        """Replace an entry of a library's registry by ``make(original)``.

        Args:
            registry: mapping with the entry.
            write: the library's function that stores a value under a key.
            key: key of the entry.
            make: builds the replacement from the original.
            target: dotted name of the registry.
            reason: one line.
            expects: leading parameter names of the original.
        """
        name = f"{target}[{key!r}]"
        if not self._free(name):
            return
        original = registry.get(key)
        try:
            patches.check_signature(name, original, expects)
        except patches.PatchError as error:
            self.left[name] = str(error)
            return
        write(key, make(original))
        self.scope.record(name, reason, lambda: write(key, original))

    def _free(self, target: str) -> bool:
        taken = any(each.target == target for each in patches.active(FEATURE))
        if taken:
            self.left[target] = "already replaced"
        return not taken
