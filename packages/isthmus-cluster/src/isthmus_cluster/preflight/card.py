"""``python -m isthmus_cluster.preflight.card``: a card under load, in a process with its LOCAL_RANK."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import FileStore

from isthmus_cluster import burn
from isthmus_cluster.agents import serve

_BATCH_S = 0.02  # time of the products between two comparisons
_MIB = 1 << 20


def load(*, device: str, index: int, **_: object) -> dict[str, Any]:
    """Open the card; return its name and the type of its device, by default the accelerator's."""
    found = _device(device, index)
    if found.type == "cpu":
        return {"device": "cpu", "chip": platform.machine()}
    torch.accelerator.set_device_index(found)
    return {"device": found.type, "chip": str(torch.get_device_module(found).get_device_name(found))}


def work(
    *, device: str, index: int, seconds: float, rows: int, dtype: str, mib: int, **_: object
) -> dict[str, Any]:
    """Multiply matrices and copy memory.

    Returns:
        ``products`` and how many of them are ``wrong``; ``digest`` of the first; rates: ``matmul`` in TFLOP/s,
        ``memory``, ``to device`` and ``from device`` in GB/s; ``copies`` that changed bits.
    """
    where = _device(device, index)
    found = _products(where, seconds * 0.7, rows, getattr(torch, dtype))
    first = torch.empty(mib * _MIB, dtype=torch.uint8, device=where)
    second = torch.zeros_like(first)
    # A copy reads and writes each byte.
    found["memory"] = 2 * _rate(lambda: second.copy_(first), first.nbytes, seconds * 0.1, where)
    if where.type != "cpu":
        source = torch.randint(256, (mib * _MIB,), dtype=torch.uint8).pin_memory()
        target = torch.empty_like(source).pin_memory()
        found["to device"] = _rate(lambda: first.copy_(source, True), first.nbytes, seconds * 0.1, where)
        found["from device"] = _rate(lambda: target.copy_(first, True), first.nbytes, seconds * 0.1, where)
        found["copies"] = int(not torch.equal(source, target))
    return found


def _products(device: torch.device, seconds: float, rows: int, dtype: torch.dtype) -> dict[str, Any]:
    matrix = burn.operand(rows, device, dtype)
    expected = matrix @ matrix
    bits = expected.view(torch.uint8)
    digest = burn.digest(expected)
    begin = time.monotonic()
    matrix @ matrix
    _wait(device)
    batch = max(1, min(64, int(_BATCH_S / (time.monotonic() - begin))))
    wrong = count = 0
    busy = 0.0
    until = time.monotonic() + seconds
    while not count or time.monotonic() < until:
        begin = time.monotonic()
        products = [matrix @ matrix for _ in range(batch)]
        _wait(device)
        busy += time.monotonic() - begin
        wrong += sum(not torch.equal(product.view(torch.uint8), bits) for product in products)
        count += batch
    return {"digest": digest, "products": count, "wrong": wrong, "matmul": count * 2 * rows**3 / busy / 1e12}


def _rate(action: Callable[[], object], size: int, seconds: float, device: torch.device) -> float:
    """Return the rate of an action that moves some bytes, in GB/s."""
    action()
    _wait(device)
    count, begin = 0, time.monotonic()
    while not count or time.monotonic() < begin + seconds:
        action()
        _wait(device)
        count += 1
    return count * size / (time.monotonic() - begin) / 1e9


def collectives(
    *, device: str, index: int, rank: int, size: int, folder: str, seconds: float, mib: int, timeout: float
) -> dict[str, Any]:
    """Run all-reduces with the other cards of the host, over its loopback interface or its links between cards.

    Returns:
        ``all-reduce``: bus bandwidth in GB/s, 2 (size - 1) / size times the bytes over the time (nccl-tests);
        nothing from a card without others.
    """
    if size < 2:
        return {}
    where = _device(device, index)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = dist.get_default_backend_for_device(where)
    wait = timedelta(seconds=timeout)
    store = FileStore(f"{folder}/store", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
    try:
        burn.all_reduce(mib * _MIB // 4, where)
        values = torch.zeros(mib * _MIB // 4, device=where)
        count, begin = 0, time.monotonic()
        more = torch.ones(1, device=where)
        while more.item():  # rank 0 decides
            dist.all_reduce(values)
            _wait(where)
            count += 1
            more.fill_(float(time.monotonic() < begin + seconds))
            dist.broadcast(more, 0)
        rate = count * values.nbytes / (time.monotonic() - begin) / 1e9
    finally:
        dist.destroy_process_group()
    return {"all-reduce": rate * 2 * (size - 1) / size}


def _device(kind: str, index: int) -> torch.device:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kind = kind or (accelerator.type if accelerator else "cpu")
    return torch.device(kind) if kind == "cpu" else torch.device(kind, index)


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


if __name__ == "__main__":
    serve({"load": load, "work": work, "collectives": collectives})
