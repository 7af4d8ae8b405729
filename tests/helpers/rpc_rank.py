"""One of two RPC workers: ``python -m tests.helpers.rpc_rank RANK PORT chip|cuda``; cuda runs under the shim.

Worker 0 maps its chip 0 to chip 1 of worker 1 and prints one line of JSON: the result of each case below.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.distributed import autograd, rpc

from isthmus import shim

KIND = sys.argv[3]


def add_and_place(x: torch.Tensor, y: Any = 0) -> tuple[torch.Tensor, str]:
    """The sum, and the device on which it was computed."""
    return x + y, str(x.device)


def on_chip_0(x: torch.Tensor) -> torch.Tensor:
    return x.to("chip:0")


@rpc.functions.async_execution
def doubled_later(x: torch.Tensor) -> torch.futures.Future:
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(x * 2)
    return future


class Layer:
    def __init__(self) -> None:
        self.weight = torch.full((3,), 4.0, device="chip:1")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


def gradient() -> tuple[torch.Tensor, str]:
    x = torch.ones(3, device="chip:0", requires_grad=True)
    with autograd.context() as context:
        result, _ = rpc.rpc_sync("w1", add_and_place, args=(x * 2, x))
        autograd.backward(context, [result.sum()])
        return autograd.get_gradients(context)[x], ""


def cases() -> dict[str, Callable[[], Any]]:
    x = torch.ones(3, device=f"{KIND}:0")
    layer = rpc.remote("w1", Layer)
    return {
        "function": lambda: rpc.rpc_sync("w1", add_and_place, args=(x, x)),
        "remote": lambda: rpc.remote("w1", add_and_place, args=(x, 1)).to_here(),
        "operator": lambda: rpc.rpc_async("w1", torch.add, args=(x, 1)).wait(),
        "asynchronous": lambda: rpc.rpc_sync("w1", doubled_later, args=(x,)),
        "object": lambda: layer.rpc_sync().__call__(x),
        "reference": lambda: layer.remote().__call__(x).to_here(),
        "cpu": lambda: rpc.rpc_sync("w1", add_and_place, args=(x.cpu(), 1)),
        "gradient": gradient,
        "unmapped": lambda: rpc.rpc_sync("w1", add_and_place, args=(x.to("chip:1"), 1)),
        "unmapped reply": lambda: rpc.rpc_sync("w1", on_chip_0, args=(x,)),
    }


def outcome_of(case: Callable[[], Any]) -> Any:
    try:
        found = case()
    except RuntimeError as error:
        return str(error)
    tensor, place = found if isinstance(found, tuple) else (found, "")
    return [tensor.tolist(), str(tensor.device), place]


def main() -> None:
    rank, port = int(sys.argv[1]), sys.argv[2]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, devices=[f"{KIND}:0"])
    if rank == 0:
        options.set_device_map("w1", {f"{KIND}:0": f"{KIND}:1"})
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        print(json.dumps({name: outcome_of(case) for name, case in cases().items()}), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    with shim.enter() if KIND == "cuda" else nullcontext():
        main()
