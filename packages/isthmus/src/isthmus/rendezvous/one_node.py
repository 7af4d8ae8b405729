"""The rendezvous of a job on one node: none, and a store for its ranks that admits only processes of this user."""

from __future__ import annotations

from torch._C._distributed_c10d import HashStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from isthmus.rendezvous.store_server import HOST, StoreServer


class OneNode(RendezvousHandler):
    """Rendezvous of a single node. Each attempt has a new store.

    Args:
        backend: name of the rendezvous that it stands for.
        run_id: name of the job.
        port: of the ranks' store; 0 for a free one.
    """

    def __init__(self, backend: str, run_id: str, port: int) -> None:
        self._backend, self._run_id, self._port = backend, run_id, port
        self._server: StoreServer | None = None

    @property
    def use_agent_store(self) -> bool:
        """True: no rank opens a store at the address in its environment."""
        return True

    def get_backend(self) -> str:
        """Return the name of the rendezvous that it stands for."""
        return self._backend

    def get_run_id(self) -> str:
        """Return the name of the job."""
        return self._run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Open a store for the ranks of the next attempt.

        Raises:
            OSError: the port is in use, or the kernel does not tell to whom a connection belongs.
        """
        self.shutdown()
        self._server = StoreServer(self._port)
        return RendezvousInfo(HashStore(), 0, 1, RendezvousStoreInfo(HOST, self._server.port))

    def is_closed(self) -> bool:
        """False: nobody else could close it."""
        return False

    def set_closed(self) -> None:
        """Do nothing: no other node could join."""

    def num_nodes_waiting(self) -> int:
        """0: no other node can wait."""
        return 0

    def shutdown(self) -> bool:
        """Close the store."""
        if self._server:
            self._server.close()
            self._server = None
        return True
