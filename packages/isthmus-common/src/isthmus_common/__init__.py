"""The base of the packages of Isthmus: the command, files, exits, child processes, tables, pages, progress, patches.

It imports neither PyTorch nor NumPy.
"""

from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    """Return the version, of which all packages have the same; read from the metadata when it is asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("isthmus-common")
