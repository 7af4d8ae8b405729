"""Injected faults of the reference runtime, through the driver of Ascend NPUs: exception, vendor's code, remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus_ascend.environment import variables
from tests.helpers.children import output

JOB = """if True:
    import ctypes, json, torch
    import torch.distributed as dist

    block = torch.arange(1 << 20, dtype=torch.float32, pin_memory=True).to("chip")
    on_host = torch.ones(1 << 20, pin_memory=True)
    kept = []

    def synchronizes():
        block.copy_(on_host, non_blocking=True)
        torch.chip.synchronize()

    def allocates():
        kept.append(torch.empty(64 << 20, device="chip"))

    def hangs():
        limit = ctypes.c_uint64()
        ctypes.CDLL("libascendcl.so").aclrtSetOpExecuteTimeOutV2(ctypes.c_uint64(500_000), ctypes.byref(limit))
        synchronizes()

    def reduces():
        if not dist.is_initialized():
            dist.init_process_group("chip", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(block)
        torch.chip.synchronize()

    raised = None
    try:
        for _ in range(100):
            WORK()
    except Exception as error:
        raised = [type(error).__name__, str(error)]
    allocated = torch.chip.memory_allocated()
    expected = sum(each.untyped_storage().nbytes() for each in [block, *kept])
    del block
    kept.clear()
    print(json.dumps({"raised": raised, "lost": allocated - expected, "left": torch.chip.memory_allocated()}))
    ONWARDS
"""
# A fault that passes leaves the device usable.
ONWARDS = """again = torch.full((1 << 20,), 3.0, pin_memory=True).to("chip")
    torch.chip.empty_cache()
    assert torch.equal(again.cpu(), torch.full((1 << 20,), 3.0))"""

CACHED = """again = torch.empty(1 << 20, device="chip").copy_(on_host)
    assert torch.equal(again.cpu(), on_host)"""


def report(fault: str, work: str, onwards: str = ONWARDS) -> dict[str, Any]:
    """Run the work until it raises, with the fault; return what was raised and what the allocator then has."""
    environment = {"ISTHMUS_DRIVER": "ascend", "ISTHMUS_ASCEND_DEVICES": "1", "ISTHMUS_ASCEND_FAULT": fault}
    code = JOB.replace("WORK", work).replace("ONWARDS", onwards)
    found: dict[str, Any] = json.loads(output(code, **variables() | environment).splitlines()[0])
    return found


@pytest.mark.parametrize(
    ("fault", "work", "words"),
    [
        ("ecc:3", "synchronizes", ("507054", "HBM MULTI BIT ECC ERROR", "restart the job from a checkpoint")),
        ("memory:3", "synchronizes", ("507053", "DEVICE MEM ERROR", "restart the job from a checkpoint")),
        ("core:3", "synchronizes", ("507015", "the vendor's log names the operator")),
        ("hang:2:aclrtMemcpyAsync", "hangs", ("507014", "did not end within", "names the operator")),
    ],
)
def test_a_fault_of_the_device_is_an_accelerator_error(fault: str, work: str, words: tuple[str, ...]) -> None:
    found = report(fault, work)
    kind, message = found["raised"]
    assert kind == "AcceleratorError"
    assert all(each in message for each in words), message
    assert (found["lost"], found["left"]) == (0, 0)


def test_a_lost_device_stays_lost_and_the_process_ends_by_itself() -> None:
    found = report("lost:60", "synchronizes", onwards="")
    kind, message = found["raised"]
    assert kind == "AcceleratorError"
    assert "507010" in message and "the device is lost; check the device with `npu-smi info`" in message
    assert (found["lost"], found["left"]) == (0, 0)


def test_a_full_device_is_an_out_of_memory_error_and_its_memory_serves_again() -> None:
    found = report("oom:4", "allocates", onwards=CACHED)
    kind, message = found["raised"]
    assert kind == "OutOfMemoryError"
    assert message.startswith("chip 0 is out of memory: asked 256.0 MiB, ")
    assert "aclrtMalloc failed with 207001: " in message, message
    assert "the device is out of memory; lower the micro-batch, or end other processes" in message
    assert (found["lost"], found["left"]) == (0, 0)


@pytest.mark.parametrize("call", [1, 40])
def test_a_link_that_is_down_is_a_backend_error(call: int) -> None:
    found = report(f"link:{call}", "reduces")
    kind, message = found["raised"]
    assert kind == "DistBackendError"
    assert "failed with 13 (a link is down)" in message, message
    assert (found["lost"], found["left"]) == (0, 0)
