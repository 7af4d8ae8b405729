"""``python -m isthmus.cluster.isolate.agent``: runs the tests of the nodes of one host.

Requests and replies are lines of JSON on stdin and stdout. The agent imports PyTorch once and forks a process for
each node of a test, which takes a hundredth of the time of a fresh interpreter. It kills a process whose time is
over, and all of them when stdin ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from isthmus._support.parent import end_with_parent
from isthmus.cluster import burn

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_STEPS_OF_A_WAIT = 3  # exchanges that a partner may be late in a sweep
_MOST_BAD_LINKS = 3  # after which a node leaves a sweep


def main() -> None:
    """Serve requests until the end of stdin."""
    events = selectors.DefaultSelector()
    events.register(sys.stdin.fileno(), selectors.EVENT_READ)
    children: dict[
        int, tuple[int, dict[str, Any], float]
    ] = {}  # by the read end of its pipe: pid, request, deadline
    replies: dict[int, bytes] = {}
    rest = b""
    _say({"ready": os.getpid()})
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
    _say({"test": request["test"], "node": request["node"], "error": why})


def _say(message: dict[str, Any]) -> None:
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


class Part:
    """One node's part of a test."""

    def __init__(self, request: dict[str, Any], writer: int) -> None:
        self.request = request
        self.writer = writer
        self.rank: int = request["rank"]
        self.size: int = request["size"]
        self.fault: dict[str, Any] = request["fault"]
        self.bad_cards = 0
        if request["interface"]:
            os.environ["GLOO_SOCKET_IFNAME"] = request["interface"]
        torch.set_num_threads(1)

    def run(self) -> dict[str, Any]:
        """Return seconds of work, the cards with wrong results as a mask, and bad links."""
        if self.fault.get("kind") == "stop":
            if self.rank == 0 and self.size > 1:
                self._store()
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.request["kind"] == "sweep":
            return self._sweep(self._store())
        if self.size == 1:
            begin = time.monotonic()
            digests = self._burn()
            return self._result(begin, digests)
        store = self._store()
        with self._joined(store, self.rank, self.size, self.request["timeout"]):
            begin = time.monotonic()
            digests = self._burn()
            self._collectives(digests)
            return self._result(begin, digests)

    def _result(self, begin: float, digests: list[int]) -> dict[str, Any]:
        seconds = time.monotonic() - begin
        error = f"cards {_cards(self.bad_cards)}: a repeated matmul differs" if self.bad_cards else ""
        return {"seconds": seconds, "cards": self.bad_cards, "digests": digests, "error": error}

    def _store(self) -> Store:
        """Return the store of the test; rank 0 serves it and tells the coordinator its port."""
        wait = timedelta(seconds=self.request["timeout"])
        if self.rank:
            return TCPStore(self.request["master"], self.request["port"], is_master=False, timeout=wait)
        store = TCPStore(self.request["master"], 0, is_master=True, timeout=wait, wait_for_workers=False)
        message = {"test": self.request["test"], "node": self.request["node"], "port": store.port}
        os.write(self.writer, json.dumps(message).encode() + b"\n")
        return store

    @contextlib.contextmanager
    def _joined(self, store: Store, rank: int, size: int, seconds: float) -> Iterator[None]:
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
        """Multiply matrices on each card, twice; return digests of the products. Equal work gives equal bits."""
        digests = []
        for card in range(self.request["cards"]):
            matrix = burn.operand(self.request["matrix"], self._device(card))
            products = []
            for repeat in range(2):
                product = (matrix @ matrix).cpu()
                if repeat and self.fault.get("kind") == "corrupt" and self.fault.get("card", 0) == card:
                    product.view(torch.int32)[0, 0] ^= 1 << 12
                products.append(burn.digest(product))
            if products[0] != products[1]:
                self.bad_cards |= 1 << card
            digests.append(products[0])
        if self.fault.get("kind") == "sleep":
            time.sleep(self.fault["seconds"])
        return digests

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

    def _sweep(self, store: Store) -> dict[str, Any]:
        """Exchange data with each other node in turn, as in the circle method; return the time of each link.

        Each pair has its own process group, so that a link that times out does not break others.
        """
        links: list[list[Any]] = []
        step = self.request["step_timeout"]
        wait = timedelta(seconds=_STEPS_OF_A_WAIT * step)
        for number, partner in enumerate(_partners(self.rank, self.size)):
            low, high = min(self.rank, partner), max(self.rank, partner)
            inside = PrefixStore(f"{low}-{high}", store)
            begin = 0.0
            try:
                inside.set(f"ready{self.rank}", "")
                inside.wait([f"ready{partner}"], wait)
                with self._joined(inside, int(self.rank > partner), 2, step):
                    begin = time.monotonic()
                    dist.all_reduce(torch.ones(self.request["length"]))
                links.append([number, partner, time.monotonic() - begin])
            except Exception:
                links.append([number, partner, -1.0])
                if sum(link[2] < 0 for link in links) >= _MOST_BAD_LINKS:
                    break
        store.set(f"done{self.rank}", "")
        if self.rank == 0:  # it serves the store
            with contextlib.suppress(Exception):
                store.wait([f"done{rank}" for rank in range(self.size)], wait)
        return {"seconds": 0.0, "cards": 0, "links": links, "error": ""}


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


def _cards(mask: int) -> str:
    return ", ".join(str(card) for card in range(mask.bit_length()) if mask >> card & 1)


if __name__ == "__main__":
    main()
