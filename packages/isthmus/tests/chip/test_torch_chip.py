"""``torch.chip`` against ``torch.cuda`` and ``torch.accelerator``, name by name; ranges, telemetry and copies."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from isthmus.chip import absent, torch_version
from tools.pages import torch_chip as surface

TABLE = surface.names()


def test_nothing_is_missing():
    missing = {module: [row.name for row in rows if row.missing] for module, rows in TABLE.items()}
    assert not any(missing.values()), missing


def test_names_with_a_reason_are_absent():
    names = [*absent.NAMES, *absent.MODULES]
    assert [name for name in names if hasattr(torch.chip, name)] == []
    known = {row.name for rows in TABLE.values() for row in rows} | torch_version.NOT_YET_IN_CUDA
    assert {*names, *absent.ACCELERATOR} <= known | set(surface.SUBMODULES)


def test_reading_an_absent_name_gives_the_reason():
    with pytest.raises(AttributeError, match=r"'CUDAGraph': torch\.chip\.Graph is the class of graphs"):
        torch.chip.CUDAGraph  # noqa: B018
    with pytest.raises(AttributeError, match=r"'nonsense'$"):
        torch.chip.nonsense  # noqa: B018


@pytest.mark.parametrize("module", [name for name in TABLE if name.startswith("torch.cuda")])
def test_functions_take_the_arguments_of_cuda(module: str):
    """Every parameter of torch.cuda's function is accepted by ours, by position and by name."""
    theirs = importlib.import_module(module)
    ours = torch.chip
    for part in module.split(".")[2:]:
        ours = getattr(ours, part, None)
    for row in TABLE[module]:
        if not row.present or not inspect.isfunction(getattr(theirs, row.name)):
            continue
        wanted = list(inspect.signature(getattr(theirs, row.name)).parameters)
        found = list(inspect.signature(getattr(ours, row.name)).parameters)
        assert found[: len(wanted)] == wanted, f"{module}.{row.name}: {found}, not {wanted}"


def test_submodules_are_imported_by_name():
    for row in ("amp", "comm", "memory", "nvtx", "profiler", "random", "streams"):
        assert importlib.import_module(f"torch.chip.{row}") is getattr(torch.chip, row)


@pytest.mark.filterwarnings("ignore:Use `:FutureWarning")
@pytest.mark.parametrize("name", [row.name for row in TABLE["torch.accelerator"] if row.present])
def test_torch_accelerator_is_the_chip(name: str):
    function = getattr(torch.accelerator, name)
    if name == "device_index":
        with function(1):
            assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_device_index() == 0
    elif name.startswith("set_device"):
        function(1)
        assert torch.chip.current_device() == 1
        function(0)
    elif name == "set_stream":
        function(torch.chip.default_stream())
        assert torch.accelerator.current_stream() == torch.chip.default_stream()
    else:
        function()
    assert torch.accelerator.current_accelerator() == torch.device("chip")


def test_out_of_memory_is_caught_by_its_name():
    with pytest.raises(torch.chip.OutOfMemoryError):
        torch.empty(1 << 50, device="chip")
    assert torch.chip.AcceleratorError is torch.AcceleratorError


# ---- telemetry


@pytest.mark.host("its telemetry")
def test_telemetry_of_the_host_chip():
    found = torch.chip.telemetry()
    assert found["health"] == 0
    assert 0 <= found["memory_utilization"] <= 1
    assert 0 <= torch.chip.utilization() <= 100
    assert 0 <= torch.chip.memory_usage(1) <= 100


@pytest.mark.parametrize(
    ("function", "quantity"),
    [("temperature", "temperature_c"), ("power_draw", "power_w"), ("clock_rate", "clock_mhz")],
)
@pytest.mark.host("its telemetry")
def test_telemetry_that_the_driver_does_not_measure_raises(function: str, quantity: str):
    if torch.chip.telemetry()[quantity] is None:
        with pytest.raises(NotImplementedError, match=f"host does not measure {quantity}"):
            getattr(torch.chip, function)()
    else:
        assert getattr(torch.chip, function)() > 0


def test_telemetry_of_no_device():
    with pytest.raises(RuntimeError, match="chip:7 does not exist"):
        torch.chip.telemetry(7)


# ---- waits of the host


@pytest.fixture
def watched():
    yield torch.chip.set_sync_debug_mode
    torch.chip.set_sync_debug_mode("default")


WAITS = {
    "item": lambda x: x[0].item(),
    "a copy from the chip": lambda x: x.cpu(),
    "a copy to the chip": lambda x: torch.ones(3).chip(),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "by a mask": lambda x: x[x > 0],
}


@pytest.mark.parametrize("what", WAITS)
def test_waits_are_reported(watched, what: str):
    x = torch.ones(3, device="chip")
    watched("error")
    assert torch.chip.get_sync_debug_mode() == 2
    with pytest.raises(RuntimeError, match=f"called a synchronizing operation.*{what}.*makes the host wait"):
        WAITS[what](x)
    watched(1)
    with pytest.warns(UserWarning, match="makes the host wait"):
        WAITS[what](x)
    watched(0)
    WAITS[what](x)


def test_a_training_step_without_waits(watched):
    layer = torch.nn.Linear(4, 4).chip()
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    x = torch.ones(2, 4, device="chip")
    pinned = torch.ones(2, 4).pin_memory()
    watched("error")
    layer(x[torch.arange(2, device="chip")] + pinned.to("chip", non_blocking=True)).sum().backward()
    optimizer.step()
    torch.chip.synchronize()


def test_unknown_mode_is_refused(watched):
    for mode in ("loud", 3, None):
        with pytest.raises(ValueError, match="'default', 'warn' or 'error'"):
            watched(mode)


# ---- ranges and the profiler's switch


def names_of(region) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        region()
    return [event.name for event in profile.events()]


def test_ranges_are_rows_of_the_profiler():
    def region():
        assert torch.chip.nvtx.range_push("outer") == 0
        assert torch.chip.nvtx.range_push("inner") == 1
        torch.chip.nvtx.mark("mark")
        assert torch.chip.nvtx.range_pop() == 1
        assert torch.chip.nvtx.range_pop() == 0
        assert torch.chip.nvtx.range_pop() == -1
        with torch.chip.nvtx.range("step {}", 3):
            torch.ones(2, device="chip")
        handle = torch.chip.nvtx.range_start("across")
        torch.chip.nvtx.range_end(handle)
        torch.chip.nvtx.range_end(handle)

    assert {"outer", "inner", "mark", "step 3", "across"} <= set(names_of(region))


def test_a_range_ends_with_an_error():
    with pytest.raises(KeyError), torch.chip.nvtx.range("broken"):
        raise KeyError
    assert torch.chip.nvtx.range_pop() == -1


def test_the_profiler_pauses():
    def region():
        torch.chip.profiler.stop()
        torch.zeros(2, device="chip")
        with torch.chip.profiler.profile():
            torch.full((2,), 1.0, device="chip")
        torch.zeros(2, device="chip")
        torch.chip.profiler.start()

    seen = names_of(region)
    assert "aten::full" in seen
    assert "aten::zeros" not in seen


def test_the_switch_does_nothing_without_a_profiler():
    torch.chip.profiler.start()
    torch.chip.profiler.stop()


# ---- copies and sums among devices


def test_broadcast():
    x = torch.arange(4.0, device="chip:0")
    copies = torch.chip.comm.broadcast(x, [0, "chip:1"])
    assert [str(copy.device) for copy in copies] == ["chip:0", "chip:1"]
    assert all(torch.equal(copy.cpu(), x.cpu()) for copy in copies)
    out = [torch.empty(4, device="chip:1"), torch.empty(4, device="chip:0")]
    assert torch.chip.comm.broadcast(x, out=out)[0] is out[0]
    assert torch.equal(out[0].cpu(), x.cpu())
    with pytest.raises(ValueError, match="devices or out"):
        torch.chip.comm.broadcast(x)
    with pytest.raises(ValueError, match="not both"):
        torch.chip.comm.broadcast(x, [0], out=out)


def test_broadcast_coalesced():
    tensors = [torch.ones(2, device="chip"), torch.zeros(3, device="chip")]
    on_first, on_second = torch.chip.comm.broadcast_coalesced(tensors, [0, 1])
    assert [t.device.index for t in (*on_first, *on_second)] == [0, 0, 1, 1]
    assert torch.equal(on_second[1].cpu(), tensors[1].cpu())


def test_reduce_add():
    parts = [torch.full((3,), float(i + 1), device=f"chip:{i}") for i in range(2)]
    total = torch.chip.comm.reduce_add(parts, 1)
    assert total.device.index == 1
    assert total.tolist() == [3, 3, 3]
    assert parts[1].tolist() == [2, 2, 2]
    (first, second) = torch.chip.comm.reduce_add_coalesced([[parts[0], parts[0]], [parts[1], parts[1]]], 0)
    assert first.tolist() == second.tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="on chip:1"):
        torch.chip.comm.reduce_add(parts[:1], 1)
    with pytest.raises(ValueError, match="one shape"):
        torch.chip.comm.reduce_add([parts[0], parts[1][:2]], 0)


def test_scatter_and_gather():
    x = torch.arange(10.0, device="chip").view(5, 2)
    chunks = torch.chip.comm.scatter(x, [0, 1], chunk_sizes=[2, 3])
    assert [tuple(chunk.shape) for chunk in chunks] == [(2, 2), (3, 2)]
    assert [chunk.device.index for chunk in chunks] == [0, 1]
    assert torch.equal(torch.chip.comm.gather(chunks, 0, 1).cpu(), x.cpu())
    assert torch.chip.comm.gather(chunks, 0, "cpu").device.type == "cpu"
    streams = [torch.chip.Stream(0), torch.chip.Stream(1)]
    halves = torch.chip.comm.scatter(x, ["chip:0", "chip:1"], dim=1, streams=streams)
    torch.chip.synchronize(0), torch.chip.synchronize(1)
    out = torch.empty(5, 2, device="chip")
    assert torch.equal(torch.chip.comm.gather(halves, 1, out=out).cpu(), x.cpu())
    targets = [torch.empty(1, 2, device="chip:1"), torch.empty(4, 2, device="chip:0")]
    torch.chip.comm.scatter(x, out=targets)
    assert torch.equal(targets[0].cpu(), x[:1].cpu())
    with pytest.raises(ValueError, match="must add up to 5"):
        torch.chip.comm.scatter(x, [0, 1], chunk_sizes=[2, 2])
