"""A server for ``torch.distributed.TCPStore`` on loopback that admits only processes of this user.

PyTorch's own server listens on all addresses and admits everyone. This one speaks the same protocol (PyTorch 2.13,
``TCPStoreBackend.hpp``), so unmodified clients connect to it. Before it reads from a connection, it looks up in the
kernel's tables which user owns the other end. It runs on a thread of the process that starts the ranks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from enum import IntEnum
from pathlib import Path

HOST = "127.0.0.1"

_MAGIC = struct.pack("=I", 0x3C85F7CE)  # begins each connection
_COUNT = struct.Struct("=Q")
_INTEGER = struct.Struct("=q")
_READY, _NOT_READY = b"\0", b"\1"
_DONE, _CANCELED = b"\0", b"\1"  # answers of a wait
_ESTABLISHED = "01"  # include/net/tcp_states.h
_CHUNK = 1 << 16
_PATIENCE = 5  # seconds
_ATTEMPTS = 5  # the kernel's table may skip a row while others change

Parser = Generator[int, bytes, None]  # yields a number of bytes, and receives them


class Query(IntEnum):
    """Requests of a client."""

    VALIDATE = 0
    SET = 1
    COMPARE_SET = 2
    GET = 3
    ADD = 4
    CHECK = 5
    WAIT = 6
    GETNUMKEYS = 7
    DELETE_KEY = 8
    APPEND = 9
    MULTI_GET = 10
    MULTI_SET = 11
    CANCEL_WAIT = 12
    PING = 13
    QUEUE_PUSH = 14
    QUEUE_POP = 15
    QUEUE_LEN = 16
    LIST_KEYS = 17
    BARRIER = 18


class StoreServer:
    """A store with no keys, served until :meth:`close`.

    Attributes:
        port: where it listens, on 127.0.0.1.
    """

    def __init__(self, port: int = 0) -> None:
        """Start to serve.

        Args:
            port: 0 for a free one.

        Raises:
            OSError: the port is in use, or the kernel does not tell to whom a connection belongs.
        """
        self._listener = socket.create_server((HOST, port), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        try:
            self._check_owners()
        except BaseException:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self._values: dict[bytes, bytes] = {}
        self._queues: defaultdict[bytes, deque[bytes]] = defaultdict(deque)
        self._waits: defaultdict[bytes, list[_Client]] = defaultdict(list)  # keyed by key
        self._clients: set[_Client] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._end = os.pipe()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="isthmus-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections and the thread."""
        os.write(self._end, b"\0")  # closing it alone wakes nobody while a forked process has it open
        os.close(self._end)
        self._thread.join(_PATIENCE)

    def _check_owners(self) -> None:
        """Check on a connection of this process that the kernel tells to whom a connection belongs."""
        with socket.create_connection((HOST, self.port)) as probe:
            place = probe.getsockname()
            found = None
            while found != place:  # another process may have been faster; it may try again
                accepted, found = self._listener.accept()
                with accepted:
                    user = owner(HOST, found[1], self.port)
        if user != os.geteuid():
            raise OSError(
                "cannot keep other users out of the store of the ranks: /proc/net/tcp does not show the owner of a "
                "connection; mount /proc in this container"
            )

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd == self._wake:
                    self._close_all()
                    return
                elif key.data in self._clients:  # else it has been closed since
                    self._serve(key.data, events)

    def _close_all(self) -> None:
        self._selector.close()
        for each in (self._listener, *(client.socket for client in self._clients)):
            with contextlib.suppress(OSError):  # the peer has closed it
                each.shutdown(socket.SHUT_RDWR)  # also while a forked process has it open
            each.close()
        os.close(self._wake)

    def _accept(self) -> None:
        try:
            accepted, (_, port) = self._listener.accept()
        except OSError:  # it has gone
            return
        if owner(HOST, port, self.port) != os.geteuid():
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(accepted, self._selector)
        client.parser = self._parse(client)
        client.wanted = next(client.parser)
        self._clients.add(client)
        self._selector.register(accepted, selectors.EVENT_READ, client)

    def _serve(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                client.flush()
            if events & selectors.EVENT_READ:
                client.read()
        except (OSError, ValueError, LookupError, EOFError):  # closed, or not a client of a store
            self._forget(client)
            self._clients.remove(client)
            self._selector.unregister(client.socket)
            client.socket.close()

    # ---- requests

    def _parse(self, client: _Client) -> Parser:
        """Carry out the requests of a client; raises ValueError if it is not a client of a store."""
        if (yield 1)[0] != Query.VALIDATE or (yield 4) != _MAGIC:
            raise ValueError("not a client of a store")
        while True:
            yield from _REQUESTS[Query((yield 1)[0])](self, client)

    def _on_ping(self, client: _Client) -> Parser:
        client.send((yield 4))

    def _on_set(self, _: _Client) -> Parser:
        key = yield from _bytes()
        self._set(key, (yield from _bytes()))

    def _on_multi_set(self, client: _Client) -> Parser:
        for _ in range((yield from _count())):
            yield from self._on_set(client)

    def _on_append(self, _: _Client) -> Parser:
        key = yield from _bytes()
        self._set(key, self._values.get(key, b"") + (yield from _bytes()))

    def _on_compare_set(self, client: _Client) -> Parser:
        key, expected = (yield from _bytes()), (yield from _bytes())
        client.send(_pack(self._compare_set(key, expected, (yield from _bytes()))))

    def _on_add(self, client: _Client) -> Parser:
        key = yield from _bytes()
        client.send(_INTEGER.pack(self._add(key, *_INTEGER.unpack((yield 8)))))

    def _on_get(self, client: _Client) -> Parser:
        client.send(_pack(self._values.get((yield from _bytes()), b"")))

    def _on_multi_get(self, client: _Client) -> Parser:
        client.send(b"".join(_pack(self._values.get(key, b"")) for key in (yield from _read_many())))

    def _on_check(self, client: _Client) -> Parser:
        client.send(_NOT_READY if self._missing_keys((yield from _read_many())) else _READY)

    def _on_wait(self, client: _Client) -> Parser:
        self._wait(client, self._missing_keys((yield from _read_many())))

    def _on_cancel_wait(self, client: _Client) -> Parser:
        self._forget(client)
        client.send(_CANCELED)
        yield from ()

    def _on_barrier(self, client: _Client) -> Parser:
        key = yield from _bytes()
        self._arrive(client, key, *_INTEGER.unpack((yield 8)))

    def _on_getnumkeys(self, client: _Client) -> Parser:
        client.send(_INTEGER.pack(len(self._values)))
        yield from ()

    def _on_list_keys(self, client: _Client) -> Parser:
        client.send(_COUNT.pack(len(self._values)) + b"".join(map(_pack, self._values)))
        yield from ()

    def _on_delete_key(self, client: _Client) -> Parser:
        client.send(_INTEGER.pack(self._values.pop((yield from _bytes()), None) is not None))

    def _on_queue_push(self, _: _Client) -> Parser:
        key = yield from _bytes()
        self._queues[key].append((yield from _bytes()))
        self._notify(key, 1)

    def _on_queue_pop(self, client: _Client) -> Parser:
        queue = self._queues[(yield from _bytes())]
        client.send(_INTEGER.pack(len(queue)) + (_pack(queue.popleft()) if queue else b""))

    def _on_queue_len(self, client: _Client) -> Parser:
        client.send(_INTEGER.pack(len(self._queues[(yield from _bytes())])))

    # ---- keys, and clients that wait for them

    def _set(self, key: bytes, value: bytes) -> None:
        self._values[key] = value
        self._notify(key)

    def _compare_set(self, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """Return the value afterwards; the expected one if the key is absent, as PyTorch's server does."""
        found = self._values.get(key)
        if found == expected or (found is None and not expected):
            self._set(key, desired)
            return desired
        return expected if found is None else found

    def _add(self, key: bytes, number: int) -> int:
        total = int(self._values.get(key, b"0")) + number
        self._set(key, b"%d" % total)
        return total

    def _missing_keys(self, keys: Iterable[bytes]) -> set[bytes]:
        return {key for key in keys if key not in self._values and not self._queues.get(key)}

    def _wait(self, client: _Client, missing: set[bytes]) -> None:
        client.missing = missing
        for key in missing:
            self._waits[key].append(client)
        if not missing:
            client.send(_DONE)

    def _notify(self, key: bytes, most: int = 0) -> None:
        """Tell clients that wait for a key, all of them or at most a number."""
        waiting = self._waits.pop(key, [])
        told = 0
        for place, client in enumerate(waiting):
            if most and told == most:
                self._waits[key] = waiting[place:]
                return
            client.missing.discard(key)
            if not client.missing:
                client.send(_DONE)
                told += 1

    def _arrive(self, client: _Client, key: bytes, size: int) -> None:
        """Count a client of a barrier; tell all that wait there when it is complete."""
        total = int(self._values.get(key, b"0")) + 1
        self._values[key] = b"%d" % total
        inside = key + b"\0barrier"  # clients wait for it, but the store does not list it
        client.missing = {inside}
        self._waits[inside].append(client)
        if total >= size:
            self._notify(inside)

    def _forget(self, client: _Client) -> None:
        for key in client.missing:
            if client in self._waits[key]:
                self._waits[key].remove(client)
            if not self._waits[key]:
                del self._waits[key]
        client.missing = set()


class _Client:
    """One connection.

    Attributes:
        parser: carries out its requests.
        wanted: bytes that the parser waits for.
        missing: keys that it waits for.
    """

    parser: Parser
    wanted: int

    def __init__(self, accepted: socket.socket, selector: selectors.BaseSelector) -> None:
        self.socket = accepted
        self.missing: set[bytes] = set()
        self._selector = selector
        self._received, self._pending = bytearray(), bytearray()
        self._is_late = False  # a reply waits until the connection takes it

    def read(self) -> None:
        """Read available bytes and carry out complete requests.

        Raises:
            EOFError: the client has closed the connection.
            ValueError: the peer is not a client of a store.
        """
        data = self.socket.recv(_CHUNK)
        if not data:
            raise EOFError
        self._received += data
        while len(self._received) >= self.wanted:
            taken = bytes(self._received[: self.wanted])
            del self._received[: self.wanted]
            self.wanted = self.parser.send(taken)

    def send(self, data: bytes) -> None:
        """Send data as far as the connection takes it, and the rest later."""
        self._pending += data
        with contextlib.suppress(OSError):  # the next read reports it
            self.flush()

    def flush(self) -> None:
        """Send data that is left."""
        with contextlib.suppress(BlockingIOError):
            while self._pending:
                del self._pending[: self.socket.send(self._pending)]
        if self._is_late != bool(self._pending):
            self._is_late = not self._is_late
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._is_late else 0)
            self._selector.modify(self.socket, events, self)


_REQUESTS: dict[Query, Callable[[StoreServer, _Client], Parser]] = {
    query: getattr(StoreServer, f"_on_{query.name.lower()}") for query in Query if query is not Query.VALIDATE
}


def _count() -> Generator[int, bytes, int]:
    number: int = _COUNT.unpack((yield 8))[0]
    return number


def _bytes() -> Generator[int, bytes, bytes]:
    """Read a key or a value."""
    return (yield (yield from _count()))


def _read_many() -> Generator[int, bytes, list[bytes]]:
    """Read several keys."""
    keys = []
    for _ in range((yield from _count())):
        keys.append((yield from _bytes()))
    return keys


def _pack(value: bytes) -> bytes:
    return _COUNT.pack(len(value)) + value


def owner(host: str, port: int, to_port: int) -> int | None:
    """Return the user that owns one end of a connection within this machine; None if it is not established.

    Args:
        host: IPv4 address of both ends.
        port: of that end.
        to_port: of the other end.
    """
    address = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}"
    mapped = f"{0:016X}{struct.unpack('=I', bytes([0, 0, 255, 255]))[0]:08X}{address}"
    for _ in range(_ATTEMPTS):
        for path, text in (("/proc/net/tcp", address), ("/proc/net/tcp6", mapped)):
            wanted = [f"{text}:{port:04X}", f"{text}:{to_port:04X}", _ESTABLISHED]
            with contextlib.suppress(OSError):
                for line in Path(path).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[1:4] == wanted:
                        return int(fields[7])
    return None
