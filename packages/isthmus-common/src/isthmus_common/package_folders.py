"""Folders of the code of Isthmus, to tell it from the user's."""

import os
from functools import cache
from importlib.util import find_spec

PACKAGES = (
    "isthmus",
    "isthmus_common",
    "isthmus_ascend",
    "isthmus_cluster",
    "isthmus_diagnostics",
    "isthmus_formats",
    "isthmus_migrate",
)


@cache
def folders() -> tuple[str, ...]:
    """Return the folders of the installed packages of Isthmus, each with a separator at its end."""
    specs = map(find_spec, PACKAGES)
    return tuple(os.path.dirname(spec.origin) + os.sep for spec in specs if spec and spec.origin)  # noqa: PTH120
