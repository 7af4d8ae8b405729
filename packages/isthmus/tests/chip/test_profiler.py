"""torch.profiler on the chip: rows of operators and kernels, streams, memory, stacks, schedules, Chrome traces."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

from isthmus import options
from tests.helpers import children, command
from tests.helpers.host_driver import DEVICE_TO_HOST, HOST_TO_DEVICE, start_script
from tests.helpers.outside_driver import build

NAMED = pytest.mark.skipif(options.switch("host_async"), reason="the driver records each as a host function")
BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def trace_of(prof: profile, folder: Path) -> list[dict[str, Any]]:
    prof.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


def of(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category]


def averages(prof: profile, device: DeviceType) -> dict[str, Any]:
    return {event.key: event for event in prof.key_averages() if event.device_type == device}


def test_activity_is_offered():
    assert ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()


@NAMED
def test_operators_and_kernels_have_device_time():
    x = torch.randn(128, 128, device="chip")
    with profile(activities=BOTH) as prof:
        (x @ x).relu()
    operators, kernels = averages(prof, DeviceType.CPU), averages(prof, DeviceType.PrivateUse1)
    assert kernels["aten::mm"].count == 1
    assert kernels["aten::mm"].self_device_time_total > 0
    # An operator's device time is that of its kernel, and an outer operator's includes it.
    assert operators["aten::mm"].self_device_time_total == kernels["aten::mm"].self_device_time_total
    assert operators["aten::matmul"].device_time_total == operators["aten::mm"].device_time_total
    assert operators["aten::matmul"].self_device_time_total == 0
    table = prof.key_averages().table(sort_by="privateuse1_time_total")
    assert "Self CHIP" in table and "CHIP total" in table


@NAMED
def test_chip_is_among_the_default_activities():
    x = torch.ones(8, device="chip")
    with profile() as prof:
        x + x
    assert "aten::add.Tensor" in averages(prof, DeviceType.PrivateUse1)


def test_results_do_not_depend_on_the_profiler():
    x = torch.randn(64, 64, device="chip")
    plain = (x @ x).softmax(1)
    with profile(activities=BOTH):
        profiled = (x @ x).softmax(1)
    assert torch.equal(plain, profiled)


@pytest.mark.host("its records of activity")
def test_trace_has_kernels_on_their_streams_with_arrows(tmp_path: Path):
    x = torch.randn(32, 32, device="chip")
    torch.chip.synchronize()
    stream = torch.chip.Stream()
    with profile(activities=BOTH) as prof:
        x + x
        with torch.chip.stream(stream):
            x * x
    events = trace_of(prof, tmp_path)
    kernels = {kernel["name"]: kernel for kernel in of(events, "kernel")}
    assert kernels["aten::add.Tensor"]["tid"] == 0
    assert kernels["aten::mul.Tensor"]["tid"] == stream.stream_id
    assert kernels["aten::mul.Tensor"]["args"]["stream"] == stream.stream_id
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 0}
    assert rows[0] == "stream 0 (default)" and rows[stream.stream_id] == f"stream {stream.stream_id}"

    operators = {event["args"]["External id"]: event["name"] for event in of(events, "cpu_op")}
    launches = {call["args"]["correlation"]: call for call in of(events, "privateuse1_runtime")}
    arrows = {(arrow["id"], arrow["ph"]): arrow for arrow in of(events, "ac2g")}
    for name, operator in (("aten::add.Tensor", "aten::add"), ("aten::mul.Tensor", "aten::mul")):
        kernel = kernels[name]
        assert operators[kernel["args"]["External id"]] == operator
        launch = launches[kernel["args"]["correlation"]]
        assert launch["name"] == "chipLaunchKernel"
        assert launch["tid"] == threading.get_native_id()
        start, end = (arrows[kernel["args"]["correlation"], phase] for phase in "sf")
        assert (start["tid"], end["tid"]) == (launch["tid"], kernel["tid"])
        assert launch["ts"] <= kernel["ts"]
        assert kernel["ts"] + kernel["dur"] <= launch["ts"] + launch["dur"] + 0.01


def test_every_arrow_has_an_end(tmp_path: Path):
    x = torch.randn(8, device="chip")
    with profile(activities=BOTH) as prof:
        x.cpu()
        torch.chip.synchronize()
    events = trace_of(prof, tmp_path)
    starts = {arrow["id"] for arrow in of(events, "ac2g") if arrow["ph"] == "s"}
    ends = {arrow["id"] for arrow in of(events, "ac2g") if arrow["ph"] == "f"}
    assert starts == ends != set()
    assert "chipDeviceSynchronize" in {call["name"] for call in of(events, "privateuse1_runtime")}


@pytest.mark.parametrize("pinned", [False, True])
def test_copies_are_rows_with_their_bytes(tmp_path: Path, pinned: bool):
    host = torch.randn(1 << 18)
    host = host.pin_memory() if pinned else host
    back = torch.empty_like(host, pin_memory=pinned)
    chip = host.to("chip")
    with profile(activities=BOTH) as prof:
        chip.copy_(host, non_blocking=pinned)
        back.copy_(chip, non_blocking=pinned)
        torch.chip.synchronize()
    copies = of(trace_of(prof, tmp_path), "gpu_memcpy")
    assert [(copy["name"], copy["args"]["bytes"]) for copy in copies] == [
        ("Memcpy HtoD", host.nbytes),
        ("Memcpy DtoH", host.nbytes),
    ]
    assert copies[0]["ts"] + copies[0]["dur"] <= copies[1]["ts"] + 0.01  # one stream
    assert torch.equal(back, host)


def test_calls_that_wait_are_rows(tmp_path: Path):
    x = torch.ones(8, device="chip")
    stream, event = torch.chip.Stream(), torch.chip.Event()
    with profile(activities=BOTH) as prof:
        x + x
        event.record()
        stream.wait_event(event)
        event.synchronize()
        stream.synchronize()
        torch.chip.synchronize()
    names = [call["name"] for call in of(trace_of(prof, tmp_path), "privateuse1_runtime")]
    assert names[:4] == [
        "chipLaunchKernel",
        "chipStreamWaitEvent",
        "chipEventSynchronize",
        "chipStreamSynchronize",
    ]
    assert set(names[4:]) == {"chipDeviceSynchronize"}


def test_memory_of_the_driver_is_asked_for_in_rows(tmp_path: Path):
    torch.chip.empty_cache()
    with profile(activities=BOTH) as prof:
        x = torch.empty(30 << 20, dtype=torch.uint8, device="chip")
        host = torch.empty(5 << 20, dtype=torch.uint8).pin_memory()
        del x, host
        torch.chip.empty_cache()
        torch.chip.empty_host_cache()
    names = {call["name"] for call in of(trace_of(prof, tmp_path), "privateuse1_runtime")}
    assert names >= {"chipMalloc", "chipFree", "chipMallocHost", "chipFreeHost"}


def test_copies_of_storages_are_rows(tmp_path: Path):
    x = torch.arange(1024, dtype=torch.int32, device="chip")
    with profile(activities=BOTH) as prof:
        x.resize_(2048)
        other = x.untyped_storage().clone()
    copies = sorted(of(trace_of(prof, tmp_path), "gpu_memcpy"), key=lambda copy: copy["ts"])
    assert [(copy["name"], copy["args"]["bytes"]) for copy in copies] == [
        ("Memcpy DtoD", 4096),
        ("Memcpy DtoD", 8192),
    ]
    assert torch.equal(x[:1024].cpu(), torch.arange(1024, dtype=torch.int32)) and other.nbytes() == 8192


def test_wait_of_a_stream_is_on_its_row_but_no_device_time(tmp_path: Path):
    host = torch.randn(1 << 22).pin_memory()
    first, second = torch.chip.Stream(), torch.chip.Stream()
    with profile(activities=BOTH) as prof:
        with torch.chip.stream(first):
            host.to("chip", non_blocking=True)
        second.wait_stream(first)
        torch.chip.synchronize()
    waits = of(
        trace_of(prof, tmp_path), "gpu_user_annotation"
    )  # none where the copy was done before the wait
    assert {(wait["name"], wait["tid"]) for wait in waits} <= {("Stream Wait Event", second.stream_id)}
    on_chip = [event for event in prof.events() if event.device_type == DeviceType.PrivateUse1]
    worked = sum(event.device_time_total for event in on_chip if not event.is_user_annotation)
    assert worked == averages(prof, DeviceType.CPU)["aten::to"].device_time_total > 0


@pytest.mark.host("its records of activity")
def test_second_device_has_its_own_rows(tmp_path: Path):
    x = torch.randn(8, device="chip:1")
    with profile(activities=BOTH) as prof:
        x + x
    events = trace_of(prof, tmp_path)
    (kernel,) = of(events, "kernel")
    assert kernel["pid"] == kernel["args"]["device"] == 1


def test_annotation_covers_its_kernels(tmp_path: Path):
    x = torch.randn(64, device="chip")
    with profile(activities=BOTH) as prof, record_function("forward"):
        (x + x).exp()
    events = trace_of(prof, tmp_path)
    (mark,) = of(events, "gpu_user_annotation")
    assert mark["name"] == "forward"
    for kernel in of(events, "kernel"):
        assert mark["ts"] <= kernel["ts"]
        assert kernel["ts"] + kernel["dur"] <= mark["ts"] + mark["dur"] + 0.01


@NAMED
def test_backward_is_recorded(tmp_path: Path):
    x = torch.randn(16, 16, device="chip", requires_grad=True)
    with profile(activities=BOTH) as prof:
        torch.nn.functional.gelu(x).sum().backward()
    assert "aten::gelu_backward" in {kernel["name"] for kernel in of(trace_of(prof, tmp_path), "kernel")}


@pytest.mark.host("its records of activity")
def test_memory_shapes_stacks_and_flops(tmp_path: Path):
    x = torch.randn(32, 32, device="chip")
    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(
        activities=BOTH,
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
        with_flops=True,
        experimental_config=config,
    ) as prof:
        x @ x
    events = [event for event in prof.events() if event.name == "aten::mm" and event.input_shapes]
    assert [event.input_shapes for event in events] == [[[32, 32], [32, 32]]]
    assert events[0].flops == 2 * 32**3
    assert events[0].device_memory_usage >= x.nbytes
    assert any("test_profiler.py" in frame for frame in events[0].stack)
    prof.export_stacks(str(tmp_path / "stacks"), "self_privateuse1_time_total")
    assert "test_memory_shapes_stacks_and_flops" in (tmp_path / "stacks").read_text()


@NAMED
def test_stacks_add_up_to_the_devices_time(tmp_path: Path):
    model = torch.nn.Linear(256, 256, device="chip")
    optimizer = torch.optim.SGD(model.parameters())
    x = torch.randn(256, 256, device="chip")

    def forward() -> torch.Tensor:
        with record_function("mark"):
            return model(x).square().mean()

    config = torch._C._profiler._ExperimentalConfig(verbose=True)
    cycle = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=BOTH, with_stack=True, experimental_config=config, schedule=cycle) as prof:
        for _ in range(3):
            forward().backward()
            optimizer.step()
            prof.step()
    prof.export_stacks(str(tmp_path / "stacks"), "self_privateuse1_time_total")
    lines = [line.rsplit(" ", 1) for line in (tmp_path / "stacks").read_text().splitlines()]
    kernels = [event for event in prof.events() if event.device_type == DeviceType.PrivateUse1]
    time = sum(event.device_time_total for event in kernels if not event.is_user_annotation)
    # A line is in whole microseconds, rounded down, and omitted if 0.
    assert time - len(kernels) <= sum(int(each) for _, each in lines) <= time
    # Kernels of the backward.
    product = sum(event.device_time_total for event in kernels if event.name == "aten::mm")
    assert sum(int(each) for stack, each in lines if "_backward" not in stack) > product > 0


@NAMED
def test_schedule_writes_a_trace_per_cycle(tmp_path: Path):
    x = torch.ones(8, device="chip")
    cycles = schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = tensorboard_trace_handler(str(tmp_path))
    with profile(activities=BOTH, schedule=cycles, on_trace_ready=handler) as prof:
        for _ in range(8):
            x + x
            prof.step()
    written = sorted(tmp_path.glob("*.pt.trace.json"))
    assert len(written) == 2
    for path in written:
        kernels = of(json.loads(path.read_text())["traceEvents"], "kernel")
        assert [kernel["name"] for kernel in kernels] == ["aten::add.Tensor"] * 2


@pytest.mark.host("its records of activity")
def test_chip_alone_and_cpu_alone():
    x = torch.ones(8, device="chip")
    with profile(activities=[ProfilerActivity.PrivateUse1]) as chip:
        x + x
    assert "aten::add.Tensor" in averages(chip, DeviceType.PrivateUse1)
    assert "aten::add" not in averages(chip, DeviceType.CPU)
    with profile(activities=[ProfilerActivity.CPU]) as cpu:
        x + x
    assert set(averages(cpu, DeviceType.CPU)) == {"aten::add"}


@NAMED
def test_kernels_of_other_threads_are_recorded(tmp_path: Path):
    x = torch.ones(8, device="chip")
    seen = []

    def work() -> None:
        seen.append(threading.get_native_id())
        x.exp()

    with profile(activities=BOTH) as prof:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    events = trace_of(prof, tmp_path)
    (kernel,) = (kernel for kernel in of(events, "kernel") if kernel["name"] == "aten::exp")
    calls = {call["args"]["correlation"]: call["tid"] for call in of(events, "privateuse1_runtime")}
    assert calls[kernel["args"]["correlation"]] == seen[0]


def test_profile_may_begin_before_the_first_use_of_the_chip():
    printed = children.output(
        """
        import torch
        from torch.profiler import profile
        with profile() as prof:
            print(torch.chip.is_initialized())
            host = torch.ones(1 << 17).pin_memory()
            host.to("chip", non_blocking=True)
        print(sorted({event.key for event in prof.key_averages() if "Memcpy HtoD" in event.key}))
        """
    )
    assert printed.splitlines()[-2:] == ["False", "['Memcpy HtoD']"]


def test_driver_without_records_is_timed_by_events(tmp_path: Path):
    edit = "table.activity_start = NULL; table.activity_stop = NULL; table.activity_push_correlation = NULL;"
    printed = children.output(
        """
        import torch
        from torch.profiler import profile
        host = torch.randn(1 << 16).pin_memory()
        chip = host.to("chip")
        with profile() as prof:
            chip + chip
            chip.copy_(host, non_blocking=True)
            torch.chip.synchronize()
        for event in prof.events():
            if event.device_type == torch.autograd.DeviceType.PrivateUse1:
                print(event.name, event.device_time_total > 0)
        """,
        ISTHMUS_DRIVER=build(tmp_path, edit),
    )
    assert sorted(printed.splitlines()[-2:]) == ["Memcpy HtoD True", "aten::add.Tensor True"]


CUDA = """
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(8, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    x + x
print([e.key for e in prof.key_averages() if e.device_type == torch.autograd.DeviceType.PrivateUse1])
with torch.autograd.profiler.profile(use_device="cuda") as prof:
    x + x
print("Self CHIP" in prof.key_averages().table(sort_by="cuda_time_total"))
"""


@pytest.mark.full
def test_program_that_asks_for_cuda_gets_the_chip():
    result = command.run("--quiet", "-c", CUDA)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["['aten::add.Tensor']", "True"]


# ---- The host chip's activity records, by the driver interface alone ------------------------------------


def test_host_chip_records_what_its_streams_do():
    script = f"""
from isthmus.drivers import interface
Record = interface.structure("activity")
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
seen = []
def receive(records, count, user_data):
    for record in ctypes.cast(records, ctypes.POINTER(Record))[:count]:
        seen.append((record.kind, record.device, record.correlation, record.bytes, record.name.decode(),
                     record.start_ns <= record.end_ns))
callback = ctypes.cast(Callback(receive), ctypes.c_void_p)
driver = Driver()
driver.initialize()
chip, host = driver.allocate(4096), ctypes.create_string_buffer(4096)
stream = driver.result_of("stream_create", 0)
driver.copy(chip, host, 4096, {HOST_TO_DEVICE})  # before the start
driver.activity_start(callback, None)
try:
    driver.activity_start(callback, None)
except DriverError as error:
    print(error)
driver.activity_push_correlation(7)
driver.copy(chip, host, 4096, {HOST_TO_DEVICE})
driver.set_async(chip, 1, 64, stream)
driver.activity_push_correlation(0)
driver.copy_async(host, chip, 128, {DEVICE_TO_HOST}, stream)
driver.enqueue(stream, lambda: None)
driver.stream_synchronize(stream)
driver.activity_stop()
driver.copy(chip, host, 4096, {HOST_TO_DEVICE})  # after the end
for row in seen: print(*row)
"""
    process = start_script(script)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    refused, *rows = printed.splitlines()
    assert "call activity_stop() first" in refused
    assert rows == [
        "2 0 7 4096 Memcpy HtoD True",
        "3 0 7 64 Memset True",
        "2 0 0 128 Memcpy DtoH True",
        "1 0 0 0 host function True",
    ]
