"""Keep other users out of the rendezvous of a job, in every process of ``isthmus run``.

A job on one node needs no rendezvous, and the store of its ranks admits only processes of this user
(:mod:`isthmus.rendezvous.one_node`). Between nodes the state of the rendezvous is JSON; torchrun's pickle would
execute the code of anyone who reaches the port. A store at a loopback address listens on that address only.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import json
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import Any

from isthmus.rendezvous import restarts
from isthmus_common.after_import import when_imported
from isthmus_common.patches import Scope

_REGISTRY = "torch.distributed.elastic.rendezvous.registry"
_DYNAMIC = restarts.MODULES["dynamic"]
_STORES = "torch._C._distributed_c10d"

_LOOPBACK = "lo"
# Variables that name the network interface to gloo, TensorPipe (torch.distributed.rpc), NCCL and HCCL.
_INTERFACES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")

_scope = Scope("distributed")


def install() -> None:
    """Patch PyTorch's stores, and torchrun's rendezvous when it is imported. Imports torch."""
    if _scope.patches:
        return
    restarts.install()
    _scope.replace(
        f"{_STORES}.TCPStore.__init__",
        _with_own_address,
        "a store at a loopback address listens on all addresses",
    )
    when_imported(_DYNAMIC, _patch_state)
    when_imported(_REGISTRY, _patch_registry)


def uninstall() -> None:
    """Undo the patches."""
    _scope.undo()


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address or ``localhost``.

    Other names are not resolved: a machine may resolve its own name to a loopback address, and other machines to
    another one.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _patch_state() -> None:
    _scope.replace(f"{_DYNAMIC}.pickle", lambda _: StateFormat, "it unpickles what any host has written")


def _patch_registry() -> None:
    _scope.replace(
        f"{_REGISTRY}.get_rendezvous_handler",
        _with_one_node,
        "on one node it opens a store that admits everyone",
        expects=("params",),
    )


def _with_one_node(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def get_rendezvous_handler(params: Any) -> Any:
        from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

        from isthmus.rendezvous.one_node import OneNode

        if params.backend not in ("c10d", "static"):
            return original(params)
        host, port = parse_rendezvous_endpoint(params.endpoint, default_port=0)
        if params.max_nodes == 1:
            _use_loopback()
            return OneNode(params.backend, params.run_id, port if params.backend == "static" else 0)
        if is_loopback(host):  # all nodes are on this machine
            _use_loopback()
            params.local_addr = params.local_addr or host
        return original(params)

    return get_rendezvous_handler


def _use_loopback() -> None:
    """Let the ranks' libraries open their sockets on the loopback interface, unless the environment names another."""
    if _LOOPBACK in (name for _, name in socket.if_nameindex()):
        for variable in _INTERFACES:
            os.environ.setdefault(variable, _LOOPBACK)


def _with_own_address(original: Callable[..., None]) -> Callable[..., None]:
    """Let a server at a loopback address listen on that address only."""

    @functools.wraps(original)
    def __init__(
        self: Any,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        has_socket = len(args) > 3 or kwargs.get("master_listen_fd") is not None
        if is_master and not has_socket and is_loopback(host_name):
            try:
                kwargs["master_listen_fd"], port = _listen(host_name, port)
            except OSError as error:
                # PyTorch reports it, unless the port is that of a store of this process, which it shares.
                if error.errno != errno.EADDRINUSE:
                    raise
        original(self, host_name, port, world_size, is_master, *args, **kwargs)

    return __init__


def _listen(host: str, port: int) -> tuple[int, int]:
    """Listen on a loopback address; return the descriptor of the socket, which the store closes, and its port."""
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN)
    port = listener.getsockname()[1]
    return listener.detach(), port


class StateFormat:
    """JSON of a rendezvous' state, in place of the module pickle in torchrun's rendezvous."""

    PickleError = ValueError

    @staticmethod
    def dumps(state: Any) -> bytes:
        """Return the state as JSON."""
        written = {
            "round": state.round,
            "complete": state.complete,
            "deadline": state.deadline and state.deadline.isoformat(),
            "closed": state.closed,
            "participants": [[*_words(node), rank] for node, rank in state.participants.items()],
            "wait_list": [_words(node) for node in state.wait_list],
            "redundancy_list": [_words(node) for node in state.redundancy_list],
            "last_heartbeats": [
                [*_words(node), time.isoformat()] for node, time in state.last_heartbeats.items()
            ],
        }
        return json.dumps(written).encode()

    @staticmethod
    def loads(data: bytes) -> Any:
        """Return the state.

        Raises:
            ValueError: it is not one.
        """
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _NodeDesc, _RendezvousState

        def node(words: list[Any]) -> _NodeDesc:
            address, process, number = words
            return _NodeDesc(str(address), int(process), int(number))

        state = _RendezvousState()
        try:
            read = json.loads(data)
            state.round = int(read["round"])
            state.complete = bool(read["complete"])
            state.deadline = datetime.fromisoformat(read["deadline"]) if read["deadline"] else None
            state.closed = bool(read["closed"])
            state.participants = {node(words): int(rank) for *words, rank in read["participants"]}
            state.wait_list = set(map(node, read["wait_list"]))
            state.redundancy_list = set(map(node, read["redundancy_list"]))
            state.last_heartbeats = {
                node(words): datetime.fromisoformat(time) for *words, time in read["last_heartbeats"]
            }
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise ValueError(f"not a rendezvous' state in JSON: {error}") from error
        return state


def _words(node: Any) -> list[Any]:
    return [node.addr, node.pid, node.local_id]
