"""The store of a job on one node: it answers as PyTorch's does, and admits only processes of its user."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore

from isthmus.rendezvous.store_server import HOST, StoreServer, owner
from tests.helpers.other_user import as_nobody, in_child, needs_root

SHORT = timedelta(milliseconds=100)


@pytest.fixture
def server() -> Iterator[StoreServer]:
    made = StoreServer()
    yield made
    made.close()


def client(port: int, timeout: timedelta = timedelta(seconds=20)) -> TCPStore:
    return TCPStore(HOST, port, is_master=False, wait_for_workers=False, timeout=timeout)


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def later(*calls: Callable[[], Any]) -> None:
    def run() -> None:
        time.sleep(0.1)
        for call in calls:
            call()

    threading.Thread(target=run).start()


def answers(port: int) -> list[str]:
    """Answers of a store to each request of a client, including requests that wait or time out."""
    store, other, hasty = client(port), client(port), client(port, SHORT)
    big = "x" * (3 << 20)
    calls: list[Callable[[], Any]] = [
        lambda: (store.set("a", "1"), store.get("a")),
        lambda: (store.set("", ""), store.get("")),
        lambda: (store.set("big", big), store.get("big") == big.encode()),
        lambda: [store.add("n", number) for number in (1, -5, 1 << 40)],
        lambda: store.get("n"),
        lambda: hasty.get("absent"),
        lambda: hasty.wait(["a", "absent"], SHORT),
        lambda: (hasty.wait(["a", "n"], SHORT), hasty.get("a")),
        lambda: store.compare_set("a", "1", "2"),
        lambda: store.compare_set("a", "1", "3"),
        lambda: store.compare_set("b", "1", "3"),
        lambda: store.compare_set("c", "", "3"),
        lambda: store.check(["a", "n"]),
        lambda: store.check(["a", "absent"]),
        lambda: store.check([]),
        lambda: (store.append("a", "x"), store.append("new", "y"), store.multi_get(["a", "new"])),
        lambda: (store.multi_set(["u", "v"], ["1", "2"]), store.multi_get(["v", "u"])),
        lambda: [store.delete_key(key) for key in ("u", "u")],
        lambda: (store.num_keys(), sorted(store.list_keys())),
        lambda: hasty.queue_pop("q"),
        lambda: hasty.queue_pop("q", block=False),
        lambda: [store.queue_push("q", value) for value in ("1", "2", "3")],
        lambda: (store.queue_len("q"), store.check(["q"]), store.num_keys()),
        lambda: [store.queue_pop("q"), store.queue_pop("q", block=False), store.queue_len("q")],
        lambda: (later(lambda: other.set("l", "1"), lambda: other.add("m", 1)), store.wait(["l", "m"])),
        lambda: (later(lambda: other.queue_push("p", "1")), store.queue_pop("p"))[1],
        lambda: store.barrier("alone", 1),
        lambda: hasty.barrier("two", 2),
        lambda: (later(lambda: other.barrier("both", 2)), store.barrier("both", 2))[1],
        lambda: (store.num_keys(), sorted(store.list_keys())),
        lambda: (hasty.clone().set("d", "1"), store.get("d")),
    ]
    return [outcome(call) for call in calls]


def test_it_answers_as_the_store_of_pytorch(server: StoreServer) -> None:
    real = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    expected = in_child(answers, real.port)
    assert len(expected) == 31 and in_child(answers, server.port) == expected


def test_many_clients_at_the_same_time(server: StoreServer) -> None:
    """Each adds to one counter and waits for the keys of all; one of them is killed while it waits."""

    def work(port: int) -> list[int]:
        stores = [client(port) for _ in range(24)]
        sums: list[int] = []

        def rank(number: int) -> None:
            stores[number].set(f"k{number}", "")
            stores[number].wait([f"k{each}" for each in range(len(stores))])
            sums.append(sum(stores[number].add("sum", 1) > 0 for _ in range(50)))

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [*sums, stores[0].add("sum", 0)]

    assert in_child(work, server.port) == [*[50] * 24, 24 * 50]
    assert in_child(lambda port: outcome(lambda: client(port, SHORT).get("never")), server.port).startswith(
        "Dist"
    )
    assert in_child(lambda port: client(port).add("sum", 0), server.port) == 24 * 50


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\0", b"\0\xce\xf7\x85<\xff", b"\0"])
def test_other_protocols_are_no_clients(server: StoreServer, sent: bytes) -> None:
    with socket.create_connection((HOST, server.port)) as stranger:
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert in_child(lambda port: client(port).add("n", 1), server.port) == 1


def test_a_port_in_use_and_one_that_is_free_again() -> None:
    first = StoreServer()
    with pytest.raises(OSError, match="in use"):
        StoreServer(first.port)
    in_child(lambda port: client(port).set("a", "1"), first.port)
    first.close()
    again = StoreServer(first.port)
    assert in_child(lambda port: client(port).num_keys(), again.port) == 0
    again.close()


def test_close_does_not_wait_for_a_forked_process() -> None:
    """And the port is free again."""
    server = StoreServer()
    connected = socket.create_connection((HOST, server.port))
    connected.sendall(b"\0\xce\xf7\x85<\x0d1234")
    assert connected.recv(4) == b"1234"
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        closing = threading.Thread(target=server.close, daemon=True)
        closing.start()
        closing.join(4)
        assert not closing.is_alive()
        connected.settimeout(4)
        assert connected.recv(1) == b""
        StoreServer(server.port).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_without_the_owners_of_connections_it_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.rendezvous.store_server.owner", lambda *_: None)
    with pytest.raises(OSError, match="mount /proc in this container"):
        StoreServer()


# ---- another user


def attack(port: int) -> str:
    """Join the store, read it and overwrite all that is there."""
    store = client(port, timedelta(seconds=1))
    keys = store.list_keys()
    for key in keys:
        store.set(key, "wrecked")
    return f"joined; {keys}"


def read_raw(port: int) -> bool:
    """Whether the store answers a ping of its protocol on a bare connection, IPv4 or mapped into IPv6."""
    for family, host in ((socket.AF_INET, HOST), (socket.AF_INET6, f"::ffff:{HOST}")):
        with socket.socket(family) as bare:
            bare.settimeout(20)
            try:
                bare.connect((host, port))
                bare.sendall(b"\0\xce\xf7\x85<\x0d1234")
                if bare.recv(4):
                    return True
            except ConnectionError:
                continue
    return False


@needs_root
def test_another_user_cannot_join(server: StoreServer) -> None:
    in_child(lambda port: client(port).set("secret", "1"), server.port)
    assert "DistNetworkError" in as_nobody(attack, server.port) and not as_nobody(read_raw, server.port)
    assert in_child(read_raw, server.port), "that of this user is answered"
    assert in_child(lambda port: client(port).get("secret").decode(), server.port) == "1"


@needs_root
def test_the_owner_of_a_connection() -> None:
    def connect(port: int) -> int:
        with socket.create_connection((HOST, port)) as connection:
            connection.recv(1)
            return int(connection.getsockname()[1])

    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        found = []

        def accept() -> None:
            connection, (_, peer) = listener.accept()
            with connection:
                found.append(owner(HOST, peer, port))

        for run, user in ((in_child, 0), (as_nobody, 65534)):
            thread = threading.Thread(target=accept)
            thread.start()
            peer = run(connect, port)
            thread.join()
            assert found.pop() == user
            assert owner(HOST, peer, port) is None, "closed"
