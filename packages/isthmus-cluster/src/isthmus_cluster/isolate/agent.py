"""``python -m isthmus_cluster.isolate.agent``: runs the tests of the nodes of one host.

Requests and replies are lines of JSON on stdin and stdout. The agent imports PyTorch once and forks a process for
each node of a test, which takes a hundredth of the time of a fresh interpreter, and that one for each of its cards.
It kills a process whose time is over, and all of them when stdin ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from isthmus_cluster import burn
from isthmus_common.parent import end_with_parent

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_STEPS_OF_A_WAIT = 3  # exchanges that a partner may be late in a sweep
_MOST_BAD_LINKS = 3  # after which a node leaves a sweep
# Share of a test's time, so that a card that hangs is named before the collectives time out.
_SHARE_OF_A_BURN = 0.8
_SLOW_CARD = 2.0  # times the work of a test without the card's delay: less does not explain a slow test
_SIOCGIFADDR = 0x8915  # linux/sockios.h


def main() -> None:
    """Serve requests until the end of stdin."""
    events = selectors.DefaultSelector()
    events.register(sys.stdin.fileno(), selectors.EVENT_READ)
    children: dict[
        int, tuple[int, dict[str, Any], float]
    ] = {}  # pid, request and deadline by the read end of its pipe
    replies: dict[int, bytes] = {}
    rest = b""
    _send({"ready": os.getpid()})
    while True:
        for key, _ in events.select(0.1 if children else None):
            if key.fd == sys.stdin.fileno():
                data = os.read(key.fd, 1 << 16)
                if not data:
                    for pid, *_ in children.values():
                        os.kill(pid, signal.SIGKILL)
                    os._exit(0)  # without the finalisation of PyTorch
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _accept(json.loads(line), events, children)
            elif data := os.read(key.fd, 1 << 16):
                whole, newline, replies[key.fd] = (replies.get(key.fd, b"") + data).rpartition(b"\n")
                sys.stdout.buffer.write(whole + newline)
                sys.stdout.flush()
            else:
                replies.pop(key.fd, None)
                _end(key.fd, events, children, "the process ended without a result")
        for fd in [fd for fd, child in children.items() if time.monotonic() > child[2]]:
            os.kill(children[fd][0], signal.SIGKILL)
            _end(fd, events, children, "timed out")


def _accept(request: dict[str, Any], events: selectors.BaseSelector, children: dict[int, Any]) -> None:
    if request.get("kill"):
        for child in children.values():
            if child[1]["test"] == request["kill"]:
                os.kill(child[0], signal.SIGKILL)
        return
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        _child(request, writer)
    os.close(writer)
    children[reader] = (pid, request, time.monotonic() + request["limit"])
    events.register(reader, selectors.EVENT_READ)


def _end(fd: int, events: selectors.BaseSelector, children: dict[int, Any], why: str) -> None:
    """Reap a process; the coordinator ignores this reply if the process has sent its own."""
    pid, request, _ = children.pop(fd)
    events.unregister(fd)
    os.close(fd)
    os.waitpid(pid, 0)
    _send({"test": request["test"], "node": request["node"], "error": why})


def _send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _child(request: dict[str, Any], writer: int) -> None:
    """Run one node's part of a test, write the reply, and exit."""
    end_with_parent(signal.SIGKILL)
    reply: dict[str, Any] = {"test": request["test"], "node": request["node"]}
    try:
        with open(os.devnull, "w") as null:  # noqa: PTH123 - output of libraries must not reach the replies
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        if request["namespace"]:
            _enter(request["namespace"])
        os.environ.update(request["environment"])
        reply |= Part(request, writer).run()
    except Exception as error:
        reply["error"] = traceback.format_exception_only(error)[-1].strip()
    with contextlib.suppress(OSError):
        os.write(writer, json.dumps(reply).encode() + b"\n")
    os._exit(0)


def _enter(namespace: str) -> None:
    """Enter a network namespace of `ip netns`."""
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    os.close(fd)


def _set_local_rank(card: int) -> None:
    """Set LOCAL_RANK, also where other processes see it: in the memory that the kernel shows as /proc/PID/environ."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    place = getenv(b"LOCAL_RANK")
    if place:  # the agent was started with it, see run.py
        ctypes.memmove(
            place, str(card).encode().ljust(len(ctypes.string_at(place)), b"\0"), len(ctypes.string_at(place))
        )
    os.environ["LOCAL_RANK"] = str(card)


def _interface(address: str) -> str:
    """Return the network interface with an address; "" if none has it."""
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        wanted = socket.inet_aton(socket.gethostbyname(address))
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has no IPv4 address
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("16s24x", name.encode()))
                if found[20:24] == wanted:
                    return name
    return ""


class Part:
    """One node's part of a test."""

    def __init__(self, request: dict[str, Any], writer: int) -> None:
        self.request = request
        self.writer = writer
        self.rank: int = request["rank"]
        self.size: int = request["size"]
        self.fault: dict[str, Any] = request["fault"]
        self.bad_cards = 0  # mask
        self.card_seconds: dict[int, float] = {}
        self.why = ""
        if interface := request["interface"] or _interface(request["address"]):
            os.environ["GLOO_SOCKET_IFNAME"] = interface
        torch.set_num_threads(1)

    def run(self) -> dict[str, Any]:
        """Return seconds of work, the cards with wrong results as a mask, and bad links."""
        if self.fault.get("kind") == "stop":
            if self.rank == 0 and self.size > 1:
                self._store()
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.request["kind"] == "sweep":
            return self._sweep()
        if self.size == 1:
            begin = time.monotonic()
            digests = self._burn()
            return self._result(begin, digests)
        store = self._store()
        with self._join_group(store, self.rank, self.size, self.request["timeout"]):
            begin = time.monotonic()
            digests = self._burn()
            if not self.bad_cards:
                self._collectives(digests)
            return self._result(begin, digests)

    def _result(self, begin: float, digests: list[int]) -> dict[str, Any]:
        seconds = time.monotonic() - begin
        cards = self.bad_cards or _slow_cards(self.card_seconds, seconds)
        return {"seconds": seconds, "cards": cards, "digests": digests, "error": self._card_error()}

    def _card_error(self) -> str:
        return f"cards {_cards(self.bad_cards)}: {self.why}" if self.bad_cards else ""

    def _store(self) -> Store:
        """Return the store of the test; rank 0 serves it and tells the coordinator its port."""
        sweep = self.request["kind"] == "sweep"
        seconds = _STEPS_OF_A_WAIT * self.request["step_timeout"] if sweep else self.request["timeout"]
        wait = timedelta(seconds=seconds)
        if self.rank:
            return TCPStore(self.request["master"], self.request["port"], is_master=False, timeout=wait)
        store = TCPStore(self.request["master"], 0, is_master=True, timeout=wait, wait_for_workers=False)
        message = {"test": self.request["test"], "node": self.request["node"], "port": store.port}
        os.write(self.writer, json.dumps(message).encode() + b"\n")
        return store

    @contextlib.contextmanager
    def _join_group(self, store: Store, rank: int, size: int, seconds: float) -> Iterator[None]:
        wait = timedelta(seconds=seconds)
        dist.init_process_group(
            self.request["backend"], store=store, rank=rank, world_size=size, timeout=wait
        )
        try:
            yield
        finally:
            dist.destroy_process_group()

    def _device(self, card: int) -> torch.device:
        kind = self.request["device"]
        return torch.device(kind) if kind == "cpu" else torch.device(kind, card)

    def _burn(self) -> list[int]:
        """Multiply matrices on all cards, each in a process with its LOCAL_RANK; return digests of the products."""
        results: dict[int, dict[str, Any]] = {}
        readers = {}
        for card in range(self.request["cards"]):
            reader, writer = os.pipe()
            pid = os.fork()
            if not pid:
                self._burn_card(card, writer)
            os.close(writer)
            readers[reader] = card, pid
        until = time.monotonic() + _SHARE_OF_A_BURN * self.request["timeout"]
        while readers:
            ready, _, _ = select.select(list(readers), [], [], max(0.0, until - time.monotonic()))
            for reader in ready or list(readers):
                card, pid = readers.pop(reader)
                results[card] = json.loads((os.read(reader, 1 << 12) if ready else b"") or b"{}")
                os.close(reader)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self._judge_cards(results)
        if self.fault.get("kind") == "sleep":
            time.sleep(self.fault["seconds"])
        return [results[card].get("digest", 0) for card in sorted(results)]

    def _judge_cards(self, results: dict[int, dict[str, Any]]) -> None:
        self.card_seconds = {card: each["seconds"] for card, each in results.items() if each}
        for card, each in results.items():
            if not each.get("same"):
                self.bad_cards |= 1 << card
                self.why = each.get("error", "a repeated matmul differs") if each else "no result in time"

    def _burn_card(self, card: int, writer: int) -> None:
        """Multiply a matrix by itself twice, and exit. Equal work gives equal bits."""
        end_with_parent(signal.SIGKILL)
        _set_local_rank(card)
        begin = time.monotonic()
        reply: dict[str, Any] = {}
        try:
            device = self._device(card)
            matrix = burn.operand(self.request["matrix"], device)
            digests = []
            for repeat in range(2):
                product = (matrix @ matrix).cpu()
                if repeat and self.fault.get("kind") == "corrupt" and self.fault.get("card", 0) == card:
                    product.view(torch.int32)[0, 0] ^= 1 << 12
                digests.append(burn.digest(product))
            reply = {"digest": digests[0], "same": digests[0] == digests[1]}
        except Exception as error:
            reply = {"same": False, "error": traceback.format_exception_only(error)[-1].strip()[:1000]}
        reply["seconds"] = time.monotonic() - begin
        os.write(writer, json.dumps(reply).encode())
        os._exit(0)

    def _collectives(self, digests: list[int]) -> None:
        """Run all-reduce, all-gather and all-to-all, check their results, and compare the digests of all nodes.

        Raises:
            ValueError: a result is wrong, or nodes differ.
        """
        device = self._device(0) if self.request["backend"] != "gloo" else torch.device("cpu")
        length = self.request["length"]
        burn.all_reduce(length, device)
        mine = torch.tensor(digests, device=device)
        gathered = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(gathered, mine)
        sent = torch.arange(self.size, device=device).repeat_interleave(length) + self.rank * self.size
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        expected = torch.arange(self.size, device=device).repeat_interleave(length) * self.size + self.rank
        if not torch.equal(received, expected):
            raise ValueError("wrong result of all_to_all")
        if any(not torch.equal(each, gathered[0]) for each in gathered):
            raise ValueError("matmul results differ between nodes")

    def _sweep(self) -> dict[str, Any]:
        """Exchange data with each other node in turn, as in the circle method; return the time of each link.

        Each pair has its own process group, so that a link that times out does not break others. Partners that do not
        come are left out by all: their links to the store tell why.
        """
        links: list[list[Any]] = []
        reply = {"seconds": 0.0, "cards": 0, "links": links, "error": ""}
        try:
            store = self._store()
        except Exception:  # rank 0, which serves it, cannot be reached
            links.append([0, 0, -1.0])
            return reply
        step = self.request["step_timeout"]
        wait = timedelta(seconds=_STEPS_OF_A_WAIT * step)
        here = [f"here{rank}" for rank in range(self.size)]
        store.set(here[self.rank], "")
        with contextlib.suppress(Exception):
            store.wait(here, wait)
        present = [store.check([each]) for each in here]
        for number, partner in enumerate(_partners(self.rank, self.size)):
            if not present[partner]:
                continue
            low, high = min(self.rank, partner), max(self.rank, partner)
            inside = PrefixStore(f"{low}-{high}", store)
            try:
                inside.set(f"ready{self.rank}", "")
                inside.wait([f"ready{partner}"], wait)
            except Exception:
                with contextlib.suppress(Exception):  # a partner that comes now must not meet an empty place
                    inside.delete_key(f"ready{self.rank}")
                continue
            try:
                with self._join_group(inside, int(self.rank > partner), 2, step):
                    begin = time.monotonic()
                    dist.all_reduce(torch.ones(self.request["length"]))
                links.append([number, partner, time.monotonic() - begin])
            except Exception:
                links.append([number, partner, -1.0])
                if sum(link[2] < 0 for link in links) >= _MOST_BAD_LINKS:
                    break
        with contextlib.suppress(Exception):
            store.set(f"done{self.rank}", "")
            if self.rank == 0:  # it serves the store
                store.wait([f"done{rank}" for rank in range(self.size) if present[rank]], wait)
        return reply


def _partners(rank: int, size: int) -> list[int]:
    """Return the partners of a rank, one for each step of the circle method; a step without one is left out."""
    even = size + size % 2
    found = []
    for step in range(even - 1):
        if rank == even - 1:
            partner = step
        elif rank == step:
            partner = even - 1
        else:
            partner = (2 * step - rank) % (even - 1)
        if partner < size:
            found.append(partner)
    return found


def _slow_cards(seconds: dict[int, float], work: float) -> int:
    """Return, as a mask, the cards that were later than the fastest one by so much that the test was slow.

    Args:
        seconds: of the burn of each card.
        work: seconds of the node's part of the test.
    """
    fastest = min(seconds.values(), default=0.0)
    slow = [card for card, each in seconds.items() if work > _SLOW_CARD * (work - (each - fastest))]
    return sum(1 << card for card in slow)


def _cards(mask: int) -> str:
    return ", ".join(str(card) for card in range(mask.bit_length()) if mask >> card & 1)


if __name__ == "__main__":
    main()
