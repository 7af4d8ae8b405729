"""The caching allocator, pinned host memory, and the router that lends the chip's memory to CPU kernels."""

from __future__ import annotations

import gc
import itertools
import textwrap
import threading

import pytest
import torch

from isthmus import chip
from tests.helpers import children

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_chip() -> None:
    """Start each test with no memory allocated, cached or counted on the chip."""
    gc.collect()
    chip.synchronize()
    chip.empty_cache()
    chip.reset_peak_memory_stats()
    chip.reset_accumulated_memory_stats()


def stat(name: str) -> int:
    return int(chip.memory_stats()[name])


def held() -> int:
    gc.collect()
    return int(chip.memory_allocated())


def run(script: str, **environment: str) -> str:
    """Run a script in a new process and return its output; fails unless it exits with 0."""
    return children.output("import torch\n" + textwrap.dedent(script), **environment)


def test_statistics_count_blocks_and_bytes() -> None:
    output = run("""
        from isthmus import chip
        stat = lambda name: int(chip.memory_stats()[name])
        small = torch.empty(100, dtype=torch.uint8, device="chip")
        large = torch.empty(3 << 20, dtype=torch.uint8, device="chip")
        print(chip.memory_allocated(), stat("requested_bytes.large_pool.current"))
        print(stat("reserved_bytes.large_pool.current"))
        del small, large
        print(chip.memory_allocated(), chip.max_memory_allocated())
        print(stat("allocation.all.freed"), stat("allocation.all.allocated"))
        chip.reset_peak_memory_stats()
        print(chip.max_memory_allocated())
    """)
    both = 512 + 3 * MIB
    assert [int(word) for word in output.split()] == [both, 3 * MIB, 20 * MIB, 0, both, 2, 2, 0]


def test_a_freed_block_is_the_next_of_its_size() -> None:
    first = torch.empty(1000, device="chip")
    address = first.data_ptr()
    del first
    calls = stat("num_device_alloc")
    assert torch.empty(990, device="chip").data_ptr() == address
    assert stat("num_device_alloc") == calls


def test_empty_cache_releases_memory_to_the_driver() -> None:
    free = chip.mem_get_info()[0]
    tensor = torch.empty(40 * MIB, dtype=torch.uint8, device="chip")
    del tensor
    assert chip.mem_get_info()[0] <= free - 40 * MIB
    chip.empty_cache()
    assert chip.mem_get_info()[0] == free


def test_neighbours_merge() -> None:
    parts = [torch.empty(4 * MIB, dtype=torch.uint8, device="chip") for _ in range(5)]
    reserved = chip.memory_reserved()
    del parts
    whole = torch.empty(9 * MIB, dtype=torch.uint8, device="chip")
    assert chip.memory_reserved() == reserved
    assert whole.numel() == 9 * MIB


def test_small_blocks_of_other_sizes_are_merged_before_memory_grows() -> None:
    parts = [torch.empty(1024, dtype=torch.uint8, device="chip") for _ in range(4 * 2048)]
    reserved = chip.memory_reserved()
    del parts
    other = [torch.empty(4096, dtype=torch.uint8, device="chip") for _ in range(1500)]
    assert chip.memory_reserved() == reserved
    assert len({tensor.data_ptr() for tensor in other}) == 1500


def test_live_tensors_never_overlap() -> None:
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, 3 * MIB, (400,), generator=generator).tolist()
    live: list[torch.Tensor] = []
    for i, size in enumerate(sizes):
        live.append(torch.full((size >> (i % 12),), i % 251, dtype=torch.uint8, device="chip"))
        if i % 3 == 2:
            live.pop(int(torch.randint(len(live), (), generator=generator)))
    ends = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel()) for tensor in live if tensor.numel()
    )
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert all(bool((tensor == tensor[0]).all()) for tensor in live if tensor.numel())


def test_outputs_and_workspaces_of_cpu_kernels_are_counted() -> None:
    x = torch.ones(1 << 20, device="chip")
    before = held()
    chip.reset_peak_memory_stats()
    y = x + 1
    assert held() - before == 4 * MIB
    values, _ = torch.sort(y)  # sorts in place of copies of its own
    assert chip.max_memory_allocated() - before >= 12 * MIB
    assert values.device.type == "chip"


def test_cpu_tensors_hold_no_memory_of_the_chip() -> None:
    before = held()
    x = torch.randn(64, 64, device="chip")
    host = [x.cpu(), (x @ x).to("cpu"), torch.linalg.qr(x)[0].cpu(), torch.tensor(x.tolist())]
    scalar = x.sum().item()
    del x
    assert held() == before
    assert all(tensor.is_cpu for tensor in host)
    assert scalar == pytest.approx(host[0].sum().item(), rel=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_cpu_convolution_is_the_same_around_use_of_the_chip(dtype: torch.dtype) -> None:
    output = run(f"""
        x, w = torch.randn(2, 8, 16, 16).to({dtype}), torch.randn(4, 8, 3, 3).to({dtype})
        before = torch.conv2d(x, w)
        on_chip = torch.conv2d(x.to("chip"), w.to("chip"))
        print(torch.equal(before, torch.conv2d(x, w)), torch.equal(before, on_chip.cpu()))
        del on_chip
        print(torch.equal(before, torch.conv2d(x, w)), torch.chip.memory_allocated())
    """)
    assert output.split() == ["True", "True", "True", "0"]


def test_record_stream_keeps_a_block_until_the_stream_has_passed() -> None:
    before, reserved = held(), chip.memory_reserved()
    stream = chip.Stream()
    source = torch.empty(64 * MIB, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(64 * MIB, dtype=torch.uint8, device="chip")
    with chip.stream(stream):
        target.copy_(source, non_blocking=True)
    target.record_stream(stream)
    del target
    assert stat("allocated_bytes.all.current") == before
    stream.synchronize()
    chip.empty_cache()
    assert stat("active_bytes.all.current") == before
    assert chip.memory_reserved() == reserved


def test_streams_do_not_share_blocks() -> None:
    first = torch.empty(1000, device="chip")
    address = first.data_ptr()
    del first
    with chip.stream(chip.Stream()):
        assert torch.empty(1000, device="chip").data_ptr() != address
    assert torch.empty(1000, device="chip").data_ptr() == address


def test_tensors_may_be_freed_by_another_thread() -> None:
    before = held()
    tensors = [torch.ones(1000, device="chip") for _ in range(100)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert held() == before


def test_threads_allocate_together() -> None:
    before = held()
    wrong: list[int] = []

    def churn(value: int) -> None:
        for i in range(300):
            tensor = torch.full((1 + 37 * i,), value, device="chip")
            if not bool((tensor == value).all()):
                wrong.append(i)

    threads = [threading.Thread(target=churn, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert held() == before


@pytest.mark.host("the size of its memory, and its two addresses")
def test_out_of_memory_reports_amounts_then_recovers() -> None:
    output = run(
        """
        kept = torch.empty(40 << 20, dtype=torch.uint8, device="chip")
        for size in (30 << 20, 1 << 61):
            try:
                torch.empty(size, dtype=torch.uint8, device="chip")
            except torch.OutOfMemoryError as error:
                print(str(error).splitlines()[0])
        print(torch.chip.memory_stats()["num_ooms"])
        del kept
        small = [torch.empty(1 << 16, dtype=torch.uint8, device="chip") for _ in range(900)]
        del small
        print(bool(torch.ones(50 << 20, dtype=torch.bool, device="chip").all()))
        """,
        ISTHMUS_HOST_MEMORY="64MiB",
    )
    first, second, count, recovered = output.splitlines()
    assert first == (
        "chip 0 is out of memory: asked 30.0 MiB, 24.0 MiB free of 64.0 MiB (reserved 40.0 MiB, of which "
        "0 bytes unused, largest free block 0 bytes). Set ISTHMUS_HOST_MEMORY or lower the micro-batch."
    )
    assert second.startswith("chip 0 is out of memory: asked 2097152.0 TiB")
    assert (count, recovered) == ("2", "True")


def test_a_forked_child_may_free_but_not_allocate() -> None:
    output = run("""
        import os, sys
        tensor = torch.ones(1000, device="chip")
        if os.fork() == 0:
            del tensor
            try:
                torch.ones(1000, device="chip")
            except RuntimeError as error:
                print(str(error).splitlines()[0], flush=True)
            os._exit(0)
        os.wait()
        print(int(tensor.sum().item()))
    """)
    refusal, value = output.splitlines()
    assert "fork" in refusal
    assert value == "1000"


@pytest.mark.full
def test_tensors_may_outlive_the_interpreter() -> None:
    output = children.output_fresh("""
        import builtins, torch
        builtins.kept = [torch.ones(10, device="chip"), torch.ones(10).pin_memory()]
        print("end")
    """)
    assert output == "end"


def test_pinned_memory_is_recognised_and_reused() -> None:
    source = torch.arange(1000.0)
    assert not source.is_pinned()
    pinned = source.pin_memory()
    assert pinned.is_pinned()
    assert pinned[500:].is_pinned()
    assert torch.equal(pinned, source)
    address, allocated = pinned.data_ptr(), chip.host_memory_stats()["num_host_alloc"]
    del pinned
    assert torch.empty(1000, pin_memory=True).data_ptr() == address
    assert chip.host_memory_stats()["num_host_alloc"] == allocated


def test_pinned_memory_is_not_reused_under_a_copy() -> None:
    stream = chip.Stream()
    copies = []
    with chip.stream(stream):
        for value in range(8):
            pinned = torch.full((8 * MIB,), value, dtype=torch.uint8).pin_memory()
            copies.append(pinned.to("chip", non_blocking=True))
            del pinned  # the next round may only have it once its copy is done
    stream.synchronize()
    assert all(bool((copy == value).all()) for value, copy in enumerate(copies))


def test_empty_host_cache_releases_pinned_memory() -> None:
    tensor = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    del tensor
    gc.collect()
    chip.synchronize()
    chip.empty_host_cache()
    stats = chip.host_memory_stats()
    assert stats["allocated_bytes.current"] == stats["active_bytes.current"]


def test_pinning_initialises_the_driver() -> None:
    output = run("""
        before = torch.chip.is_initialized()
        print(before, torch.ones(3).pin_memory().is_pinned(), torch.chip.is_initialized())
    """)
    assert output.split() == ["False", "True", "True"]


def test_memory_profiler_sees_the_chip() -> None:
    with torch.profiler.profile(profile_memory=True) as profile:
        tensor = torch.empty(4 * MIB, dtype=torch.uint8, device="chip")
        del tensor
    events = profile.profiler.kineto_results.events()
    sizes = [event.nbytes() for event in events if event.name() == "[memory]"]
    assert 4 * MIB in sizes
    assert -4 * MIB in sizes


@pytest.mark.host("the size of its memory, and its two addresses")
def test_strict_mode_has_two_addresses() -> None:
    output = run(
        """
        x = torch.arange(10.0, device="chip")
        y = (x + x).sort(descending=True).values.clone()
        print(y[0].item(), torch.equal(y.cpu(), (x.cpu() * 2).flip(0)))
        del x, y
        print(torch.chip.memory_allocated())
        """,
        ISTHMUS_HOST_STRICT="1",
    )
    assert output.split() == ["18.0", "True", "0"]
