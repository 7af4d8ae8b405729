"""The rendezvous of ``isthmus run``: none on one node, JSON between nodes, stores that listen on loopback only."""

from __future__ import annotations

import base64
import json
import os
import pickle
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore, TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousStateError, registry
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

from isthmus import rendezvous
from isthmus.rendezvous import StateFormat, restarts
from isthmus.rendezvous.one_node import OneNode
from tests.helpers.free_port import free_port
from tests.helpers.other_user import listening_addresses


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in rendezvous._INTERFACES:
        monkeypatch.setenv(variable, "")  # so that changes are undone
        monkeypatch.delenv(variable)
    rendezvous.install()
    yield
    rendezvous.uninstall()
    restarts.uninstall()


def ports(port: int) -> set[str]:
    """The addresses at which this process listens on a port."""
    return {address for address, each in listening_addresses(os.getpid()) if each == port}


# ---- stores


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("localhost", "0100007F"),
        ("127.0.0.1", "0100007F"),
        ("127.1.2.3", "0302017F"),
        ("::1", "0" * 24 + "01000000"),
    ],
)
@pytest.mark.parametrize("libuv", [True, False])
@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_store_at_a_loopback_address_listens_there_only(
    host: str, address: str, libuv: bool, is_fixed: bool
) -> None:
    port = free_port() if is_fixed else 0
    store = TCPStore(host, port, is_master=True, wait_for_workers=False, use_libuv=libuv)
    assert ports(store.port) == {address} and (store.port == port or not is_fixed)
    client = TCPStore(host, store.port, is_master=False)
    client.set("a", "1")
    assert store.get("a") == b"1"


def test_positional_arguments_and_a_shared_server() -> None:
    first = TCPStore("localhost", 0, 1, True, timedelta(seconds=9), False, True)
    again = TCPStore("localhost", first.port, 1, True, timedelta(seconds=9), False, True)
    assert ports(first.port) == {"0100007F"} and first.timeout == timedelta(seconds=9)
    again.set("a", "1")
    assert first.get("a") == b"1"
    with pytest.raises(RuntimeError, match="EADDRINUSE"):
        TCPStore("localhost", first.port, is_master=True, wait_for_workers=False)


def test_a_store_at_another_address_is_unchanged() -> None:
    store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)
    assert ports(store.port) == {"0" * 32}


# ---- the state


def made(seed: int) -> Any:
    pick = random.Random(seed)

    def node() -> Any:
        return dynamic._NodeDesc(
            pick.choice(["a", "node-1.x", "::1", "\u00fc'\""]), pick.randrange(1 << 22), pick.randrange(9)
        )

    def moment() -> datetime:
        return datetime.fromtimestamp(pick.randrange(1 << 31) + pick.random(), UTC)

    state = dynamic._RendezvousState()
    state.round, state.complete, state.closed = pick.randrange(9), pick.random() < 0.5, pick.random() < 0.5
    state.deadline = moment() if pick.random() < 0.5 else None
    state.participants = {node(): rank for rank in range(pick.randrange(4))}
    state.wait_list, state.redundancy_list = ({node() for _ in range(pick.randrange(4))} for _ in range(2))
    state.last_heartbeats = {node(): moment() for _ in range(pick.randrange(4))}
    return state


def test_a_state_is_the_same_after_json() -> None:
    for seed in range(200):
        state = made(seed)
        data = StateFormat.dumps(state)
        assert vars(StateFormat.loads(data)) == vars(state)
        json.loads(data)


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


SOUND = json.loads(StateFormat.dumps(made(3)))


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"\x80garbage",
            b"null",
            b"[]",
            b"{}",
            b"[" * 100_000,
            b'"round"',
            b'{"round": 1e999}',
            b"\xff",
        ),
        *(
            json.dumps({**SOUND, name: value}).encode()
            for name, value in (
                ("round", None),
                ("deadline", "tomorrow"),
                ("deadline", 5),
                ("participants", [["a", 1]]),
                ("participants", 7),
                ("wait_list", [["a", "b", "c"]]),
                ("last_heartbeats", [["a", 1, 2, "x"]]),
            )
        ),
    ],
)
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a rendezvous' state in JSON"):
        StateFormat.loads(data)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("operation", ["is_closed", "num_nodes_waiting", "next_rendezvous"])
def test_a_pickle_in_the_store_is_not_executed(tmp_path: Path, operation: str, protocol: int) -> None:
    store = HashStore()
    backend = C10dRendezvousBackend(store, "job")
    handler = dynamic.DynamicRendezvousHandler.from_backend("job", store, backend, 1, 2)
    attack = pickle.dumps(Attack(tmp_path / "owned"), protocol)
    store.set("torch.rendezvous.job", base64.b64encode(attack).decode())
    with pytest.raises(RendezvousStateError, match="state is corrupt"):
        getattr(handler, operation)()
    assert not (tmp_path / "owned").exists()


def test_two_nodes_meet_by_json() -> None:
    store = HashStore()
    handlers = [
        dynamic.DynamicRendezvousHandler.from_backend(
            "job", store, C10dRendezvousBackend(store, "job"), 1, 2, local_addr="127.0.0.1"
        )
        for _ in range(2)
    ]
    for handler in handlers:
        handler._settings.timeout._last_call = timedelta(0)
    first = handlers[0].next_rendezvous()
    assert (first.rank, first.world_size) == (0, 1)
    state = json.loads(base64.b64decode(store.get("torch.rendezvous.job")))
    assert [words[0] for words in state["participants"]] == ["127.0.0.1"]
    assert [handler.num_nodes_waiting() for handler in handlers] == [0, 0]
    assert (
        handlers[0].shutdown() and json.loads(base64.b64decode(store.get("torch.rendezvous.job")))["closed"]
    )


# ---- one node


def parameters(backend: str, endpoint: str, most: int = 1, **more: Any) -> RendezvousParameters:
    return RendezvousParameters(backend, endpoint, "job", 1, most, rank=0, **more)


@pytest.mark.parametrize(
    ("backend", "endpoint"),
    [
        ("c10d", "localhost:0"),
        ("c10d", "node7.example:29400"),
        ("c10d", "[fd00::7]:29400"),
        ("static", "127.0.0.1:{port}"),
        ("static", "node7.example:{port}"),
    ],
)
def test_one_node_has_a_private_store_and_no_rendezvous(backend: str, endpoint: str) -> None:
    port = free_port()
    handler = registry.get_rendezvous_handler(parameters(backend, endpoint.format(port=port)))
    assert isinstance(handler, OneNode) and handler.use_agent_store and handler.get_backend() == backend
    assert (handler.is_closed(), handler.num_nodes_waiting(), handler.get_run_id()) == (False, 0, "job")
    for _ in range(2):  # the second is a restart
        found = handler.next_rendezvous()
        place = found.bootstrap_store_info
        assert (found.rank, found.world_size, place.master_addr) == (0, 1, "127.0.0.1")
        assert ports(place.master_port) == {"0100007F"}
        assert place.master_port == port or backend == "c10d"
    assert handler.shutdown() and not ports(place.master_port)
    assert {os.environ[variable] for variable in rendezvous._INTERFACES} == {"lo"}


def test_an_interface_that_is_named_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    registry.get_rendezvous_handler(parameters("c10d", "localhost:0"))
    assert [os.environ[name] for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")] == ["eth7", "lo"]


def test_several_nodes_on_this_machine_use_loopback() -> None:
    wanted = parameters("c10d", f"localhost:{free_port()}", 2)
    handler = registry.get_rendezvous_handler(wanted)
    assert not isinstance(handler, OneNode) and wanted.local_addr == "localhost"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert ports(handler._store.port) == {"0100007F"}
