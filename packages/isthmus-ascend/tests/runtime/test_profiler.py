"""The profiler: tasks that the runtime times, the tables of msprof, and the files of torch_npu.profiler."""

import csv
import ctypes
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus_ascend.environment import PROFILER
from isthmus_ascend.msprof import OUTPUT, UsageError, run
from tests.helpers.children import ROOT
from tests.runtime.runtime import DEVICE_TO_DEVICE, acl, fails, hccl
from tests.runtime.test_torch_npu import needs_torch_npu, start

FLOAT32, SUM = 4, 0  # of HcclDataType and HcclReduceOp
GUIDES = [ROOT / "docs" / folder / "ascend-profile.md" for folder in ("guides", "zh/guides")]
TASKS = """\
kernel\taclnnMatmul\t3\t71\t1000\t2000\t3000\t9000\t2,3;3,4\tFLOAT;FLOAT\t2,4\tFLOAT
collective\thcom_allReduce_\t4\t71\t2000\t2500\t8000\t14000\t3000\tgroup123
copy\taclrtMemcpyAsync\t3\t71\t2600\t2700\t9100\t9200\t
kernel\taclnnAdd\t3\t72\t3000\t3500\t16000\t18000\t4\tDT_BFLOAT16\t4\tDT_BFLOAT16
"""


def table(folder: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of the table with this name."""
    (path,) = folder.glob(f"{name}*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return an exported profile of TASKS, whose clock of the wall is ahead by 5 ms."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host/start_info").write_text(
        '{"collectionTimeBegin": "5000", "clockMonotonicRaw": "0", "pid": 9}'
    )
    (tmp_path / "device_0/data").mkdir(parents=True)
    (tmp_path / "device_0/data/isthmus_tasks.tsv").write_text(TASKS)
    assert run(["--export=on", f"--output={tmp_path}"]).startswith("exported 4 tasks to ")
    return tmp_path


def test_operators_have_times_and_shapes(profile: Path) -> None:
    matmul, reduce, add = table(profile / OUTPUT, "op_summary")
    assert (matmul["Op Name"], matmul["OP Type"], matmul["Task Type"]) == (
        "aclnnMatmul_Matmul",
        "Matmul",
        "AI_CORE",
    )
    assert (matmul["Task Start Time(us)"], matmul["Task Duration(us)"]) == ("5003.000", "6.000")
    assert (matmul["Input Shapes"], matmul["Output Formats"]) == ('"2,3;3,4"', "ND")
    assert (reduce["Task Type"], add["Task Wait Time(us)"]) == ("COMMUNICATION", "2.000")
    statistic = table(profile / OUTPUT, "op_statistic")
    assert [(row["OP Type"], row["Count"], row["Ratio(%)"]) for row in statistic] == [
        ("Matmul", "1", "75.0"),
        ("Add", "1", "25.0"),
    ]
    assert [row["task_time(us)"] for row in table(profile / OUTPUT, "task_time")] == [
        *("6.000", "6.000", "0.100", "2.000")
    ]
    assert table(profile / OUTPUT, "api_statistic")[0]["API Name"] == "aclnnMatmul"


def test_collectives_have_times_and_sizes(profile: Path) -> None:
    assert run(["--analyze=on", f"--output={profile}"]) == "analyzed 1 collectives"
    found = json.loads((profile / "analyze/communication.json").read_text())
    times, bandwidths = found["hcom_allReduce__123_0_1@group123"].values()
    assert times["Start Timestamp(us)"] == 5008 and times["Elapse Time(ms)"] == 0.006
    assert bandwidths["SDMA"]["Transit Size(MB)"] == 0.003 and bandwidths["SDMA"]["Bandwidth(GB/s)"] == 0.5


def test_the_trace_joins_calls_and_tasks(profile: Path) -> None:
    (path,) = (profile / OUTPUT).glob("msprof_*.json")
    events: list[dict[str, Any]] = json.loads(path.read_text())
    begins = {event["id"]: event["ts"] for event in events if event.get("ph") == "s"}
    ends = {event["id"]: event["ts"] for event in events if event.get("ph") == "f"}
    assert begins.keys() == ends.keys() and begins["0"] == "5001.000" and ends["0"] == "5003.000"
    lanes = {
        name: [
            (event["ts"], event["dur"]) for event in events if event["name"] == name and event["ph"] == "X"
        ]
        for name in ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    }
    assert lanes == {
        "Computing": [("5003.000", 6.0), ("5016.000", 2.0)],
        "Communication": [("5008.000", 6.0)],
        "Communication(Not Overlapped)": [("5009.000", 5.0)],
        "Free": [("5014.000", 2.0)],
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--application=train.py"], "unknown arguments: --application=train.py"),
        (["--export=off", "--output=."], "take the value on"),
        (["--export=on", "--output=/no/such"], "not a folder PROF_* of the reference runtime: /no/such"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        run(arguments)


def test_databases_are_not_offered() -> None:
    # torch_npu asks the help whether there is an option --type, and refuses ExportType.Db without one.
    assert "--type" not in run(["--help"]) and run(["--help"]).startswith("Usage: msprof")
    assert (PROFILER / "msprof").stat().st_mode & 0o111


def configuration_of(*devices: int) -> int:
    """Return a new aclprofConfig."""
    acl.raw.aclprofCreateConfig.restype = ctypes.c_void_p
    numbers = (ctypes.c_uint32 * len(devices))(*devices)
    made: int = acl.raw.aclprofCreateConfig(numbers, len(devices), 0, None, ctypes.c_uint64(0))
    return made


def copy_on(stream: int | None, address: int) -> None:
    acl.aclrtMemcpyAsync(address, 64, address + 64, 64, DEVICE_TO_DEVICE, stream)


def test_tasks_are_recorded_between_start_and_stop(tmp_path: Path) -> None:
    acl.aclrtSetDevice(0)
    path = str(tmp_path).encode()
    configuration = configuration_of(0)
    with fails(100001, "call aclprofInit() first"):
        acl.aclprofStart(configuration)
    stream = acl.result_of("aclrtCreateStream")
    address = acl.result_of("aclrtMalloc", 4096, 0)
    acl.aclprofInit(path, len(path))
    acl.aclprofWarmup(configuration)
    copy_on(stream, address)
    acl.aclprofStart(configuration)
    for _ in range(2):
        copy_on(stream, address)
    acl.aclprofStop(configuration)
    copy_on(stream, address)
    acl.aclprofFinalize()
    acl.aclprofDestroyConfig(configuration)
    acl.aclrtSynchronizeStream(stream)
    (folder,) = tmp_path.iterdir()
    assert re.fullmatch(r"PROF_\d{6}_\d{17}_[0-9A-Z]+", folder.name)
    run(["--export=on", f"--output={folder}"])
    tasks = table(folder / OUTPUT, "task_time")
    assert [task["kernel_type"] for task in tasks] == ["MEMCPY_ASYNC"] * 2
    assert all(float(task["task_time(us)"]) > 0 for task in tasks)
    acl.aclrtFree(address)
    acl.aclrtDestroyStream(stream)
    with fails(200007, "setting 3 of the profiler is not supported"):
        acl.aclprofSetConfig(3, b"50", 2)


def test_collectives_are_recorded_with_their_bytes(tmp_path: Path) -> None:
    acl.aclrtSetDevice(0)
    comm = ctypes.c_void_p()
    hccl.HcclCommInitAll(1, (ctypes.c_int32 * 1)(0), ctypes.byref(comm))
    stream, address = acl.result_of("aclrtCreateStream"), acl.result_of("aclrtMalloc", 4096, 0)
    path, configuration = str(tmp_path).encode(), configuration_of(0)
    acl.aclprofInit(path, len(path))
    acl.aclprofStart(configuration)
    hccl.HcclAllReduce(address, address, 100, FLOAT32, SUM, comm, stream)
    hccl.HcclGroupStart()  # begins what is in it at its end
    hccl.HcclAllReduce(address, address, 100, FLOAT32, SUM, comm, stream)
    hccl.HcclGroupEnd()
    acl.aclprofStop(configuration)
    acl.aclprofFinalize()
    acl.aclprofDestroyConfig(configuration)
    (folder,) = tmp_path.iterdir()
    assert run(["--analyze=on", f"--output={folder}"]) == "analyzed 1 collectives"
    ((name, found),) = json.loads((folder / "analyze/communication.json").read_text()).items()
    assert re.fullmatch(r"hcom_allReduce__\w{3}_0_1@hccl_\w+", name)
    assert found["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] == 0.0004
    hccl.HcclCommDestroy(comm)
    acl.aclrtFree(address)
    acl.aclrtDestroyStream(stream)


def test_a_folder_that_cannot_be_written_is_named() -> None:
    acl.aclprofInit(b"/proc/none", 10)
    configuration = configuration_of()
    with fails(100004, "cannot write /proc/none/PROF_"):
        acl.aclprofStart(configuration)
    acl.aclprofFinalize()
    acl.aclprofDestroyConfig(configuration)


@pytest.fixture(scope="module")
def profiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder where the example of the guide has written `profile`, with this task queue."""
    folder = tmp_path_factory.mktemp("profiled")
    (code,) = {re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0] for page in GUIDES}
    code = code.replace('"profile"', repr(str(folder / "profile")))
    ended = start("run", "-c", code, TASK_QUEUE_ENABLE=request.param)
    assert ended.returncode == 0 and "Error" not in ended.stdout + ended.stderr, ended.stdout + ended.stderr
    return folder


@needs_torch_npu
@pytest.mark.sampled(1)
@pytest.mark.parametrize("profiled", ["1", "0"], indirect=True)
def test_torch_npu_writes_its_files(profiled: Path) -> None:
    (folder,) = profiled.glob("profile/*_ascend_pt/ASCEND_PROFILER_OUTPUT")
    kernels = table(folder, "kernel_details")
    products = [row for row in kernels if "Matmul" in row["Type"] or row["Type"] == "Mm"]
    assert [row["Step Id"] for row in products] == ["1", "2", "3"]
    assert all(float(row["Duration(us)"]) > 0 and "64,64" in row["Input Shapes"] for row in products)
    assert sum(int(row["Count"]) for row in table(folder, "op_statistic")) == len(kernels)
    steps = table(folder, "step_trace_time")
    assert [row["Step"] for row in steps] == ["1", "2", "3"]
    assert all(float(row["Computing"]) > 0 for row in steps)
    trace = json.loads((folder / "trace_view.json").read_text())
    names = {event["name"] for event in trace}
    assert {"torch_to_npu", "ProfilerStep#1", "Computing"} <= names
    assert all(isinstance(event["ts"], str) for event in trace if event["ph"] == "X")
    arrows = [event for event in trace if event["name"] == "torch_to_npu" and event["ph"] == "f"]
    assert len(arrows) >= len(products)


@needs_torch_npu
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("msprof-analyze"), reason="msprof-analyze is not on PATH")
@pytest.mark.parametrize("profiled", ["1"], indirect=True)
def test_msprof_analyze_shows_tables(profiled: Path) -> None:
    lines = {line for page in GUIDES for line in page.read_text().splitlines() if " -d profile/*" in line}
    ended = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=profiled, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Model Profiling Time Distribution" in ended.stdout
    assert [*profiled.glob("compared/*.xlsx")] and [*profiled.glob("advice/*.html")]
