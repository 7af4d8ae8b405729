"""Isthmus: the land bridge between PyTorch and an accelerator.

``import torch`` calls :mod:`isthmus.autoload` (isthmus_common.autoload, by an entry point); after that ``torch.chip``
is there, as a device or as a stub that says why it is none.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # typing takes as long to import as the rest, in every Python where the wheel is installed
)
if TYPE_CHECKING:
    from isthmus.autoload import Status

__all__ = ["__version__", "include_path", "status"]


def __getattr__(name: str) -> object:
    """Return the version, read when it is asked for: metadata takes as long to import as the rest."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isthmus_common import __version__

    return __version__


def include_path() -> str:
    """Folder of the C headers for makers of chips: driver.h, operators.h, isthmus_ops.h."""
    from pathlib import Path

    return str(Path(__file__).resolve().parent / "include")


def status() -> Status:
    """Whether and why the chip is registered in this process, which driver, and where one was looked for."""
    from isthmus import autoload

    return autoload.status()


def load_ipython_extension(shell: object) -> None:
    """``%load_ext isthmus``: run the cells of a notebook as ``isthmus run`` runs a script."""
    from isthmus_common import tools

    tools.find("notebook", "isthmus").load()


def unload_ipython_extension(shell: object) -> None:
    """``%unload_ext isthmus``."""
    from isthmus_common import tools

    tools.find("notebook", "isthmus").unload()
