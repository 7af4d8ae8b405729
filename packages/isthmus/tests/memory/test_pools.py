"""Pools, fractions, memory by address, the choice of an allocator, and step boundaries."""

from __future__ import annotations

import threading

import pytest
import torch

from isthmus import config, options
from isthmus.chip.memory import pools
from tests.helpers.children import output

chip = torch.chip
memory = chip.memory
MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("fresh_memory")


def empty(size: int, device: str = "chip") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


# ---- pools, fraction, raw memory


def test_a_thread_allocates_from_a_pool_until_the_end():
    """The functions under the shim's ``torch._C._cuda_beginAllocateCurrentThreadToPool`` and its kin."""
    id_, found = chip.graph_pool_handle(), list[torch.Tensor]()

    def is_inside(tensor: torch.Tensor) -> bool:
        segments = memory.memory_snapshot(id_)
        return any(0 <= tensor.data_ptr() - each["address"] < each["total_size"] for each in segments)

    pools.begin_allocate_to_pool(0, id_)
    found += [empty(3 * MIB)]
    other = threading.Thread(target=lambda: found.append(empty(3 * MIB)))
    other.start(), other.join()
    pools.begin_allocate_to_pool(0, chip.graph_pool_handle())
    found += [empty(3 * MIB)]
    pools.end_allocate_to_pool(0, id_)
    found += [empty(3 * MIB)]
    pools.end_allocate_to_pool(0, id_)
    found += [empty(3 * MIB)]
    assert list(map(is_inside, found)) == [True, False, False, True, False]
    with pytest.raises(RuntimeError, match="does not allocate to pool"):
        pools.end_allocate_to_pool(0, id_)
    pools.release_pool(0, id_)
    assert is_inside(found[0].fill_(1)) and found[0].min() == 1
    del found[:]
    chip.empty_cache()
    assert memory.memory_snapshot(id_) == []


def test_a_pool_is_separate_and_is_released():
    pool = memory.MemPool()
    before = chip.memory_reserved()
    with memory.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = empty(3 * MIB)
    outside = empty(3 * MIB)
    assert pool.use_count() == 1
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    start = segment["address"]
    assert start <= inside.data_ptr() < start + segment["total_size"]
    assert not start <= outside.data_ptr() < start + segment["total_size"]
    key = "reserved_bytes_by_private_pools.{}_{}.all.current".format(*pool.id)
    assert chip.memory_stats()[key] == segment["total_size"]
    del inside, outside
    chip.empty_cache()
    assert chip.memory_reserved() == before + segment["total_size"]
    del pool
    chip.empty_cache()
    assert chip.memory_reserved() == before
    assert chip.memory_stats()[key] == 0


def test_a_pool_outlives_its_object_while_a_tensor_does():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool):
        tensor = torch.ones(MIB, device="chip")
    del pool
    chip.empty_cache()
    assert bool((tensor == 1).all())
    identity = (tensor.data_ptr(), 4 * MIB)
    assert identity in [
        (b["address"], b["requested_size"]) for s in chip.memory_snapshot() for b in s["blocks"]
    ]


def test_pools_of_devices_and_threads():
    pool = memory.MemPool()
    with memory.use_mem_pool(pool, "chip:1"):
        here, there = empty(MIB, "chip:0"), empty(MIB, "chip:1")
        other: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: other.append(empty(MIB, "chip:1")))
        thread.start()
        thread.join()
    segments = pool.snapshot()
    assert [segment["device"] for segment in segments] == [1]
    held = [b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
    assert held == [there.data_ptr()]
    assert here.data_ptr() not in held and other[0].data_ptr() not in held


def test_a_pool_of_last_resort():
    printed = output(
        """
        import torch
        chip = torch.chip
        chip.set_per_process_memory_fraction(0.5)
        pools = [chip.MemPool(use_on_oom=answer) for answer in (False, True)]
        for pool in pools:
            with chip.use_mem_pool(pool):
                torch.empty(12 << 20, dtype=torch.uint8, device="chip")
        ones = torch.ones(11 << 20, dtype=torch.bool, device="chip")
        print(chip.get_per_process_memory_fraction(), bool(ones.all()))
        """,
        ISTHMUS_HOST_MEMORY="64MiB",
    )
    assert printed.split() == ["0.5", "True"]


def test_unsupported_uses_of_a_pool():
    for arguments in ({"no_split": True}, {"allocator": object()}):
        with pytest.raises(NotImplementedError, match="MemPool"):
            memory.MemPool(**arguments)


def test_fraction_of_the_device():
    chip.set_per_process_memory_fraction(0.01)
    try:
        assert chip.get_per_process_memory_fraction() == 0.01
        with pytest.raises(torch.OutOfMemoryError, match=r"reserve 20\.5 MiB \(set_per.*Raise the fraction"):
            empty(100 * MIB)
        empty(5 * MIB)
    finally:
        chip.set_per_process_memory_fraction(1)
    assert empty(100 * MIB).numel() == 100 * MIB
    for fraction in (0, 1.5, -1):
        with pytest.raises(ValueError, match="fraction"):
            chip.set_per_process_memory_fraction(fraction)


def test_memory_by_address():
    before = chip.memory_allocated()
    address = chip.caching_allocator_alloc(5000)
    assert chip.memory_allocated() == before + 5120
    chip.caching_allocator_delete(address)
    assert chip.memory_allocated() == before
    with pytest.raises(ValueError, match="caching_allocator_delete"):
        chip.caching_allocator_delete(address)


# ---- allocators and steps


def test_the_options_know_every_allocator():
    assert set(options.ALLOCATORS) == set(memory.allocators())


def test_allocators_are_chosen_by_device():
    printed = output("""
        import torch
        memory = torch.chip.memory
        memory.set_allocator("torch", "chip:1", "max_split_size_mb:64")
        torch.ones(3, device="chip:0"), torch.ones(3, device="chip:1")
        print(*(memory.get_allocator_backend(i) for i in range(2)), memory.memory_stats(1)["max_split_size"])
        for arguments in (("bf", 0), ("none", 1), ("bf", 1, "no:1")):
            try:
                memory.set_allocator(*arguments)
            except (RuntimeError, ValueError) as error:
                print(type(error).__name__, str(error).splitlines()[0])
    """)
    names, used, unknown, option = printed.splitlines()
    assert names.split() == ["planned", "torch", str(64 * MIB)]
    assert used.startswith("RuntimeError chip 0 has allocated memory already")
    assert unknown.startswith("ValueError") and "none" in unknown
    assert option.startswith("ValueError") and "no:1" in option


@pytest.mark.parametrize(
    ("variable", "value", "is_right"),
    [
        ("ISTHMUS_ALLOCATOR", "chip:1=torch,planned", True),
        ("ISTHMUS_ALLOCATOR", "jemalloc", False),
        ("ISTHMUS_ALLOCATOR", "torch,", False),
        ("ISTHMUS_ALLOCATOR", "chip:0=torch,0=bf", False),
        ("ISTHMUS_ALLOC_CONF", "roundup_power2_divisions:[256:1,512:2],expandable_segments:True", True),
        ("ISTHMUS_ALLOC_CONF", "max_split_size", False),
    ],
)
def test_options_are_checked(monkeypatch, variable: str, value: str, is_right: bool):
    monkeypatch.setenv(variable, value)
    (option,) = [option for option in config.options() if option.variable == variable]
    assert (option.problem == "") is is_right


def test_each_optimizer_step_is_a_step():
    model = torch.nn.Linear(4, 4).to("chip")
    optimizer = torch.optim.AdamW(model.parameters())
    memory._record_memory_history(context=None, clear_history=True)
    for _ in range(3):
        model(torch.ones(2, 4, device="chip")).sum().backward()
        optimizer.step()
    memory.step()
    actions = torch.chip.memory._C.memory_events(0)[0].tolist()
    assert actions.count(9) == 4


def test_a_job_without_the_chip_has_no_hook():
    printed = output("""
        import torch
        from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
        before = len(hooks)
        torch.optim.SGD([torch.ones(1)], 0.1).step()
        torch.ones(1, device="chip"), torch.ones(1).to("chip")
        print(before, len(hooks))
    """)
    assert printed.split() == ["0", "1"]


def test_communication_streams_are_marked():
    stream = chip.Stream()
    memory.mark_communication_stream(stream)
    others = [empty(2 * MIB) for _ in range(3)]
    tensor = empty(2 * MIB)
    address = tensor.data_ptr()
    tensor.record_stream(stream)
    del tensor, others
    again = [empty(2 * MIB) for _ in range(3)]
    assert address not in [each.data_ptr() for each in again]


def test_arguments_of_another_type_are_refused():
    chip.init()
    for call, message in [
        (lambda: memory.memory_stats(1.5), "expected a device such as 'chip:0', or an index, got 1.5"),
        (lambda: memory.use_mem_pool(3).__enter__(), "expected a torch.chip.MemPool, got 3"),
        (lambda: memory.caching_allocator_alloc(10, 0, "a"), "expected a stream or its id, got 'a'"),
        (lambda: memory.caching_allocator_alloc(1.5), "expected a size in bytes, got 1.5"),
        (lambda: memory.caching_allocator_delete("a"), "expected an address, got 'a'"),
    ]:
        with pytest.raises(TypeError) as caught:
            call()
        assert message in str(caught.value)
