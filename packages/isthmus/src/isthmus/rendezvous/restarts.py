"""Restarted workers of torchrun rendezvous at a new store, on any accelerator."""

import functools
from collections.abc import Callable
from typing import Any

from isthmus_common.patches import Scope

_ELASTIC = "torch.distributed.elastic"
MODULES = {
    "dynamic": f"{_ELASTIC}.rendezvous.dynamic_rendezvous",
    "static": f"{_ELASTIC}.rendezvous.static_tcp_rendezvous",
    "agent": f"{_ELASTIC}.agent.server.api",
}

_REASON = "restarted workers meet at a new store"

_scope = Scope("distributed")


def install() -> None:
    """Patch torchrun's rendezvous when it is imported, in the process that starts the workers."""
    if not _scope.patches:
        _scope.when_imported(MODULES["dynamic"], _patch_dynamic, _REASON)
        _scope.when_imported(MODULES["static"], _patch_static, _REASON)
        _scope.when_imported(MODULES["agent"], _patch_agent, _REASON)


def uninstall() -> None:
    """Undo the patches."""
    _scope.undo()


def _patch_dynamic() -> None:
    _scope.replace(
        f"{MODULES['dynamic']}.DynamicRendezvousHandler.next_rendezvous",
        _with_new_store,
        "it keeps the store of the first attempt, in which restarted workers find addresses of dead ones",
        expects=("self",),
    )


def _patch_static() -> None:
    _scope.replace(
        f"{MODULES['static']}.StaticTCPRendezvous.next_rendezvous",
        _with_store_of_attempt,
        "with static ranks it keeps the store and the roles of the first attempt",
        expects=("self",),
    )


def _patch_agent() -> None:
    _scope.replace(
        f"{MODULES['agent']}.SimpleElasticAgent._rendezvous",
        _with_address_of_attempt,
        "with static ranks it passes the port of the first attempt to workers",
        expects=("self", "worker_group"),
    )


def _with_new_store(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def next_rendezvous(self: Any) -> Any:
        self._shared_tcp_store_server = self._bootstrap_store_info = None
        return original(self)

    return next_rendezvous


def _with_store_of_attempt(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Leave the first attempt to torchrun; for later ones node 0 opens a store at a free port and publishes it."""

    @functools.wraps(original)
    def next_rendezvous(self: Any) -> Any:
        from torch._C._distributed_c10d import PrefixStore, TCPStore
        from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo

        found = original(self)
        attempt = self._isthmus_attempt = getattr(self, "_isthmus_attempt", -1) + 1
        if attempt == 0:
            return found
        store = PrefixStore(f"isthmus/attempt-{attempt}", found.store)
        port = 0
        if found.rank == 0:
            self._isthmus_server = TCPStore(
                self.master_addr, 0, is_master=True, wait_for_workers=False, multi_tenant=True
            )
            port = self._isthmus_server.port
        where = RendezvousStoreInfo.build(found.rank, store, self.master_addr, port)
        return RendezvousInfo(store, found.rank, found.world_size, where)

    return next_rendezvous


def _with_address_of_attempt(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(original)
    def _rendezvous(self: Any, worker_group: Any) -> None:
        from isthmus.rendezvous.one_node import OneNode

        spec = worker_group.spec
        # These would override the result of next_rendezvous.
        if isinstance(spec.rdzv_handler, OneNode) or hasattr(spec.rdzv_handler, "_isthmus_attempt"):
            spec.master_addr = spec.master_port = None
        original(self, worker_group)

    return _rendezvous
