"""Functions that packages offer to those below them, by entry points of the group ``isthmus.tools``."""

from importlib.metadata import entry_points
from typing import Any

GROUP = "isthmus.tools"


class Missing(RuntimeError):
    """The package that has a function is not installed."""


def find(name: str, package: str) -> Any:
    """Return the function of this name.

    Args:
        name: of the entry point.
        package: the distribution that has it.

    Raises:
        Missing: it is not installed; one line with the command that installs it.
    """
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    raise Missing(f"{name} needs {package}: pip install {package}")
