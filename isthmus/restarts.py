"""Workers that torchrun starts again meet at a new store, on whatever accelerator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from isthmus.after_import import when_imported
from isthmus.patches import Scope

MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"

_scope = Scope("distributed")


def install() -> None:
    """Patch torchrun's rendezvous, as soon as it is imported: in the process that starts the workers."""
    if not _scope.patches:
        when_imported(MODULE, _patch)


def uninstall() -> None:
    """Give torchrun its own back."""
    _scope.undo()


def _patch() -> None:
    _scope.replace(
        f"{MODULE}.DynamicRendezvousHandler.next_rendezvous",
        _with_new_store,
        "it keeps the store of the first attempt, where restarted workers find the addresses of dead ones",
        expects=("self",),
    )


def _with_new_store(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def next_rendezvous(self: Any) -> Any:
        self._shared_tcp_store_server = self._bootstrap_store_info = None
        return original(self)

    return next_rendezvous
