"""The driver of Ascend NPUs, over the reference runtime of AscendCL."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from isthmus_ascend.environment import variables
from tests.helpers import children
from tests.helpers.children import output, run, start_module
from tools.repository import CORE, ROOT

DRIVER = {"ISTHMUS_DRIVER": "ascend", "ISTHMUS_ASCEND_DEVICES": "2"}
# A binary operator, a product, lists, and an optimizer of the vendor's.
FEW = "add.Tensor,mm,_foreach_sqrt,_fused_sgd_"
# A negative divisor makes a call that the vendor's interface lacks.
PARTLY = "avg_pool2d"


def isthmus(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return children.command(*words, light="generate" not in words, timeout=600, **environment)


GROUPS = {"copy_async", "copy_peer_async", "event_export", "memory_export", "virtual_map", "graph_launch"}
FUNCTIONS = GROUPS | {"device_set", "memory_allocate", "stream_wait_event", "stream_host_function"}


@pytest.mark.parametrize(
    "functions",
    [
        ",".join(f"driver::{each}" for each in sorted(FUNCTIONS)),
        pytest.param("driver::*", marks=pytest.mark.full),
    ],
    ids=["some", "all"],
)
def test_it_obeys_the_rules_of_the_driver_interface(tmp_path: Path, functions: str) -> None:
    command = ("conform", "run", "--driver", "ascend", "--operators", functions)
    done = isthmus(*command, "--output", str(tmp_path), **variables() | DRIVER)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["driver"] == "ascend"
    results = report["results"]
    passed = {each["operator"].removeprefix("driver::") for each in results if each["status"] == "passed"}
    assert passed >= FUNCTIONS


def test_pytorch_runs_on_it_and_asynchronous_work_keeps_its_order() -> None:
    code = """if True:
        import torch
        a = torch.arange(1 << 20, dtype=torch.float32, pin_memory=True)
        stream = torch.chip.Stream()
        with torch.chip.stream(stream):
            b = a.to("chip", non_blocking=True)
            c = b * 2 + 1
        event = stream.record_event()
        torch.chip.current_stream().wait_event(event)
        assert torch.equal(c.cpu(), a * 2 + 1)
        print(b.device, torch.chip.get_device_name(), torch.chip.device_count())
    """
    assert output(code, **variables() | DRIVER) == "chip:0 Ascend910B2 2"


def test_priorities_of_streams_are_the_vendors() -> None:
    code = """if True:
        import ctypes, torch
        vendor = ctypes.CDLL("libascendcl.so")
        def given(stream):
            priority = ctypes.c_uint32(99)
            assert vendor.aclrtStreamGetPriority(stream._as_parameter_, ctypes.byref(priority)) == 0
            return priority.value
        chosen = [given(torch.chip.Stream(priority=each)) for each in (-1, 0, 3, 9)]
        print(torch.chip.Stream.priority_range(), chosen, given(torch.chip.Stream()))
    """
    assert output(code, **variables() | DRIVER) == "(7, 0) [0, 0, 3, 7] 0"


def test_ignored_rows_of_cross_entropy_have_no_loss_and_no_gradient() -> None:
    code = """if True:
        import torch
        from isthmus import ops
        for row, ignored, smoothing in ((float("nan"), [-100, 1], 0.1), (1.0, [-100, -100], 0.0)):
            logits = torch.tensor([[row, 2.0], [3.0, 4.0]], device="chip", requires_grad=True)
            target = torch.tensor(ignored, device="chip")
            loss = ops.cross_entropy(logits, target, label_smoothing=smoothing)
            loss.backward()
            assert loss.isnan() == (ignored[1] == -100)  # the mean of no row
            assert logits.grad[0].tolist() == [0, 0]
            assert logits.grad[1].isfinite().all()
    """
    output(code, **variables() | DRIVER)


def test_the_profiler_has_the_stream_and_the_times_of_kernels_and_copies(tmp_path: Path) -> None:
    code = f"""if True:
        import torch
        from torch.profiler import ProfilerActivity, profile
        a, on_host = torch.ones(64, 64, device="chip"), torch.ones(1 << 16, pin_memory=True)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
            with torch.chip.stream(torch.chip.Stream()):
                a @ a
            on_host.to("chip", non_blocking=True)
            torch.chip.synchronize()
        profiled.export_chrome_trace("{tmp_path}/trace.json")
    """
    output(code, **variables() | DRIVER)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    on_chip = {each["name"]: each for each in events if each.get("cat") in ("kernel", "gpu_memcpy")}
    assert set(on_chip) == {"aten::mm", "Memcpy HtoD"}
    assert on_chip["aten::mm"]["args"]["stream"] != on_chip["Memcpy HtoD"]["args"]["stream"]
    assert on_chip["Memcpy HtoD"]["args"]["bytes"] == 4 << 16
    assert all(each["dur"] > 0 and each["ts"] > 0 for each in on_chip.values())


def test_a_forked_child_raises_and_ends_by_itself() -> None:
    code = """if True:
        import os, torch
        a = torch.ones(4, device="chip")
        for _ in range(3):
            b = a + a  # from the second call on by an executor that is kept
        torch.distributed.init_process_group("chip", store=torch.distributed.HashStore(), rank=0, world_size=1)
        torch.distributed.all_reduce(a)
        child = os.fork()
        torch.chip.synchronize()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), b.tolist())
    """
    done = run(code, **variables() | DRIVER)
    assert (done.stdout, done.returncode) == ("1 [2.0, 2.0, 2.0, 2.0]\n", 0), done.stderr
    assert (
        done.stderr.count("RuntimeError: the chip cannot be used in a process forked after its first use.")
        == 1
    )


def test_without_the_vendors_library_the_message_names_the_remedy() -> None:
    done = run("import torch; torch.ones(1, device='chip')", **DRIVER)
    assert done.returncode != 0
    assert "libascendcl.so" in done.stderr
    assert "source its set_env.sh" in done.stderr


def test_it_is_not_loaded_where_torch_npu_has_registered() -> None:
    code = """if True:
        import torch
        torch.utils.rename_privateuse1_backend("npu")
        import isthmus
        from isthmus import autoload
        autoload.load()
        print(isthmus.status().registered, isthmus.status().reason)
    """
    alone = variables() | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = run(code, **alone | DRIVER)
    reason = "another plugin has registered PyTorch's PrivateUse1 device as 'npu'"
    assert done.stdout == f"False {reason}\n", done.stderr
    assert done.stderr == f"isthmus: ISTHMUS_DRIVER=ascend is not used: {reason}\n"
    unasked = run(code, **alone)  # same environment as `isthmus ascend run`
    assert unasked.stdout == "False disabled by ISTHMUS_DRIVER=none\n", unasked.stderr


def test_the_operators_of_samplers_need_no_fallback() -> None:
    code = "from tests.helpers import sampling_operators; sampling_operators.check_all(); print('checked')"
    assert (
        output(code, **variables() | DRIVER | {"ISTHMUS_STRICT": "1", "PYTHONPATH": str(ROOT)}) == "checked"
    )


def test_memory_is_no_more_than_the_machines() -> None:
    code = """if True:
        import os, torch
        free, total = torch.chip.mem_get_info()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo") as file:
            available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
        print(total <= pages, free <= available * 1.05, total == torch.chip.get_device_properties(0).total_memory)
    """
    assert output(code, **variables() | DRIVER | {"ISTHMUS_ASCEND_MEMORY": "64TiB"}) == "True True True"


def test_telemetry_has_what_the_runtime_measures() -> None:
    code = """if True:
        import torch
        memory = torch.empty(1 << 28, device="chip")
        print(torch.chip.memory_usage(), torch.chip.utilization())
    """
    printed = output(code, **variables() | DRIVER | {"ISTHMUS_ASCEND_MEMORY": "2GiB"})
    memory, utilization = map(int, printed.split())
    assert memory >= 50
    assert 0 <= utilization <= 100


def judge(through: str, folder: Path, *options: str) -> list[dict[str, str]]:
    command = ("conform", "run", "--driver", "ascend", "--through", through)
    done = isthmus(*command, "--output", str(folder), *options, **variables() | DRIVER)
    assert done.returncode == 0, done.stdout + done.stderr
    results: list[dict[str, str]] = json.loads((folder / "report.json").read_text())["results"]
    return results


def named(results: list[dict[str, str]], status: str) -> set[str]:
    return {each["operator"].removeprefix("aten::") for each in results if each["status"] == status}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("golden"))
    words = ("conform", "generate", "--output", folder, "--operators", f"{FEW},{PARTLY}")
    made = isthmus(*words)
    assert made.returncode == 0, made.stderr
    return folder


def test_a_handful_of_its_operators_passes_the_suite(tmp_path: Path, golden: str) -> None:
    """Calls that the vendor's interface cannot express are not claimed."""
    results = judge("kernels", tmp_path, "--golden", golden, "--operators", f"{FEW},{PARTLY}")
    assert named(results, "passed") == {*FEW.split(","), *PARTLY.split(",")}
    assert named(results, "not claimed") >= set(PARTLY.split(","))


@pytest.mark.full
def test_a_handful_of_its_operators_passes_through_pytorch(tmp_path: Path, golden: str) -> None:
    results = judge("pytorch", tmp_path, "--golden", golden, "--operators", FEW)
    assert named(results, "passed") == set(FEW.split(","))


@pytest.mark.full
@pytest.mark.parametrize("through", ["kernels", "pytorch"])
def test_all_of_its_operators_pass_the_suite(tmp_path: Path, through: str) -> None:
    results = judge(through, tmp_path)
    assert len({each["operator"] for each in results if each["status"] == "passed"}) >= 220


@pytest.mark.full
def test_tests_of_the_core_hold_on_it() -> None:
    """A sample of `make ascend-core`, which continuous integration runs."""
    files = [str(CORE / "tests" / "core" / name) for name in ("test_device.py", "test_streams.py")]
    child = start_module("pytest", "-p", "no:cacheprovider", *files, **variables() | DRIVER)
    printed, _ = child.communicate()
    assert child.returncode == 0, printed[-4000:]
