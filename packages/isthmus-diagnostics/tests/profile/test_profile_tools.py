"""isthmus profile: hot spots of a trace and two traces compared, with figures worked out by hand."""

from __future__ import annotations

import gzip
import json
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus_diagnostics.profile import diff, hot, report
from isthmus_diagnostics.profile.operators import kernel_totals, operator_totals
from isthmus_diagnostics.profile.trace import ProfileError, read
from tests.helpers import children
from tests.helpers.children import output

HOST, CHIP = 100, 0


def event(category: str, name: str, start: float, duration: float, external: int = 0, **more: Any) -> dict:
    device = category in ("kernel", "gpu_memcpy", "gpu_memset")
    args = {"External id": external} if external else {}
    row = {"pid": CHIP if device else HOST, "tid": 7 if device else 1}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": duration,
        "args": args,
        **row,
        **more,
    }


# A linear layer whose kernel runs for 30 us, a loss whose kernels run for 10 and 5 us and overlap a copy on
# another stream; the host waits from 60 to 90 us.
EVENTS = [
    event("cpu_op", "aten::linear", 0, 20, 1),
    event("cpu_op", "aten::addmm", 5, 10, 2),
    event("cuda_runtime", "cudaLaunchKernel", 8, 2, 2),
    event("kernel", "gemm", 10, 30, 2),
    event("cpu_op", "aten::sum", 40, 10, 3),
    event("kernel", "reduce_a", 50, 10, 3),
    event("kernel", "reduce_b", 60, 5, 3),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 55, 10, tid=9),
    event("cuda_runtime", "cudaSetDevice", 45, 1),
    event("cuda_runtime", "cudaStreamSynchronize", 60, 30),
    event("cpu_op", "aten::item", 92, 8, 4),
]


def write(path: Path, events: list[dict], **more: Any) -> Path:
    content = json.dumps({"traceEvents": events, **more}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def cuda(folder: Path) -> Path:
    return write(folder / "cuda.json", EVENTS)


def isthmus(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return children.command("profile", *arguments, timeout=120)


# ---- Reading -------------------------------------------------------------------------------------------


def test_events_are_sorted_by_kind(tmp_path: Path):
    trace = read(cuda(tmp_path))
    kinds = (trace.device, trace.operators, trace.runtime)
    assert [len(events) for events in kinds] == [4, 4, 3]
    assert trace.window() == (0, 100)


def test_gzip_reads_as_the_plain_file(tmp_path: Path):
    plain, packed = read(cuda(tmp_path)), read(write(tmp_path / "trace.json.gz", EVENTS))
    assert packed.device == plain.device and packed.operators == plain.operators


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps({"traceEvents": EVENTS}).encode()[:400], "truncated or damaged at byte"),
        (gzip.compress(json.dumps({"traceEvents": EVENTS}).encode())[:-20], "gzip file is truncated"),
        (b"\x7fELF", "not a Chrome trace"),
        (b"", "not a Chrome trace"),
        (b'{"schemaVersion": 1}', "no traceEvents"),
        (b'{"traceEvents": []}', "no operators and no kernels"),
        (b'{"traceEvents": [1, null, {"ph": "X", "ts": "x", "args": 3}]}', "no operators and no kernels"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, content: bytes, words: str):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=re.escape(words)) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


# ---- Analysis ------------------------------------------------------------------------------------------


def test_device_time_of_operators_includes_nested_ones(tmp_path: Path):
    totals = operator_totals(read(cuda(tmp_path)))
    assert {name: (total.time, total.self_time) for name, total in totals.items()} == {
        "aten::linear": (30, 0),
        "aten::addmm": (30, 30),
        "aten::sum": (15, 15),
        "aten::item": (0, 0),
    }
    assert totals["aten::linear"].host_time == 20
    assert totals["aten::sum"].kernels == {"reduce_a", "reduce_b"}


def test_recursion_counts_once(tmp_path: Path):
    events = [event("cpu_op", "f", 0, 20, 1), event("cpu_op", "f", 5, 5, 2), event("kernel", "k", 6, 3, 2)]
    total = operator_totals(read(write(tmp_path / "trace.json", events)))["f"]
    assert (total.calls, total.time, total.host_time) == (2, 3, 20)


def test_kernels_by_name(tmp_path: Path):
    totals = kernel_totals(read(cuda(tmp_path)))
    assert {name: (total.calls, total.time) for name, total in totals.items()} == {
        "gemm": (1, 30),
        "reduce_a": (1, 10),
        "reduce_b": (1, 5),
        "Memcpy DtoH (Device -> Pinned)": (1, 10),
    }


def test_gaps_count_streams_together_and_name_the_host(tmp_path: Path):
    found = hot.analyse(read(cuda(tmp_path)))
    assert (found.span, found.busy) == (100, {"0": 45})
    assert [(gap.start, gap.end, gap.host) for gap in found.gaps] == [
        (0, 10, "aten::addmm"),
        (40, 50, "cudaSetDevice"),
        (65, 100, "cudaStreamSynchronize"),
    ]


def test_python_names_a_gap_only_where_no_operator_runs(tmp_path: Path):
    frame = event("python_function", "data.py(3): batch", 0, 200)
    events = [*EVENTS, frame, event("kernel", "late", 190, 10)]
    gaps = hot.analyse(read(write(tmp_path / "trace.json", events))).gaps
    assert [gap.host for gap in gaps] == ["aten::addmm", "cudaSetDevice", "data.py(3): batch"]


def test_one_function_of_several_objects_is_one_host(tmp_path: Path):
    name = "<built-in method run_backward of torch._C._EngineBase object{}>"
    frames = [
        event("python_function", name.format(f" at 0x7f{i}c0"), start, 80)
        for i, start in enumerate((110, 200))
    ]
    events = [*EVENTS, *frames, *(event("kernel", "late", start, 10) for start in (190, 280))]
    gaps = hot.analyse(read(write(tmp_path / "trace.json", events))).gaps
    assert [gap.host for gap in gaps][-2:] == [name.format("")] * 2


@pytest.mark.parametrize("maker", ["cuda{}", "chip{}", "aclrt{}", "AscendCL@aclrt{}", "hip{}"])
def test_calls_are_counted_by_any_makers_name(tmp_path: Path, maker: str):
    names = ["SetDevice", "SetDevice", "StreamSynchronize", "SynchronizeEvent", "MemcpyAsync", "LaunchKernel"]
    events = [event("privateuse1_runtime", maker.format(name), 10 * i, 2) for i, name in enumerate(names)]
    calls = hot.analyse(read(write(tmp_path / "trace.json", events))).calls
    assert {name: total.calls for name, total in calls.items()} == {
        "setDevice": 2,
        "synchronize": 2,
        "memcpy": 1,
        "malloc and free": 0,
        "launch": 1,
    }
    assert calls["setDevice"].host_time == 4


def test_trace_of_torch_npu(tmp_path: Path):
    """A list without categories for the device; arrows lead from an operator to its kernel."""
    arrow = {"name": "async_npu", "cat": "async_npu", "id": "5"}
    events = [
        {"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "CANN"}},
        {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": "10.5", "dur": 10},
        {"ph": "X", "name": "aten::empty", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 12, "dur": 1},
        {"ph": "X", "name": "AscendCL@aclrtSetDevice", "pid": 2, "tid": 1, "ts": 11, "dur": 1},
        {
            "ph": "X",
            "name": "MatMulV2",
            "pid": 3,
            "tid": 4,
            "ts": "30.125",
            "dur": 7,
            "args": {"Stream Id": 4},
        },
        {"ph": "s", "pid": 1, "tid": 1, "ts": 15, **arrow},
        {"ph": "f", "bp": "e", "pid": 3, "tid": 4, "ts": "30.125", **arrow},
    ]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    found = hot.analyse(read(path))
    assert (found.operators["aten::mm"].time, found.operators["aten::empty"].time) == (7, 0)
    assert found.kernels["MatMulV2"].calls == found.calls["setDevice"].calls == 1


def test_trace_without_device_says_so(tmp_path: Path):
    trace = read(write(tmp_path / "trace.json", [event("cpu_op", "aten::add", 0, 1, 1)]))
    text = report.as_text("", hot.sections(hot.analyse(trace), 5))
    assert "no device events" in text


# ---- Two traces ----------------------------------------------------------------------------------------

# The norm was composed of two kernels, and became one that takes a quarter of the time.
BEFORE = [
    event("cpu_op", "aten::linalg_vector_norm", 0, 10, 1),
    event("kernel", "pow", 5, 20, 1),
    event("kernel", "reduce", 25, 20, 1),
    event("cpu_op", "aten::mm", 20, 5, 2),
    event("kernel", "gemm", 50, 10, 2),
]
AFTER = [
    event("cpu_op", "aten::linalg_vector_norm", 0, 4, 1),
    event("kernel", "norm", 3, 10, 1),
    event("cpu_op", "aten::mm", 20, 5, 2),
    event("kernel", "gemm", 30, 10, 2),
    event("cpu_op", "aten::relu", 40, 5, 3),
    event("kernel", "relu", 42, 1, 3),
]


def both(folder: Path) -> tuple[Path, Path]:
    return write(folder / "a.json", BEFORE), write(folder / "b.json.gz", AFTER)


def test_pairs_are_ranked_by_change(tmp_path: Path):
    before, after = (hot.analyse(read(path)) for path in both(tmp_path))
    found = diff.pairs(before.operators, after.operators)
    assert [(pair.name, pair.delta, pair.status) for pair in found] == [
        ("aten::linalg_vector_norm", -30, "0.250"),
        ("aten::relu", 1, "new"),
        ("aten::mm", 0, "1.000"),
    ]
    kernels = {pair.name: pair.status for pair in diff.pairs(before.kernels, after.kernels)}
    assert kernels == {"pow": "gone", "reduce": "gone", "norm": "new", "gemm": "1.000", "relu": "new"}


def test_only_one_operator_and_its_kernels(tmp_path: Path):
    before, after = (hot.analyse(read(path)) for path in both(tmp_path))
    _, operators, kernels, _ = diff.sections(before, after, "aten::linalg_vector_norm", 20)
    assert [row[0] for row in operators.rows] == ["aten::linalg_vector_norm"]
    assert {row[0] for row in kernels.rows} == {"pow", "reduce", "norm"}
    assert operators.rows[0][3:7] == ["40.000 us", "10.000 us", "-30.000 us", "0.250"]
    assert operators.rows[0][-2:] == ["10.000 us", "4.000 us"]


# ---- The commands --------------------------------------------------------------------------------------


def test_hot_prints_every_table(tmp_path: Path):
    result = isthmus("hot", cuda(tmp_path))
    assert result.returncode == 0, result.stderr
    assert re.search(r"aten::addmm +30\.000 us +66\.7 % +30\.000 us +1", result.stdout)
    assert re.search(r"cudaStreamSynchronize +35\.000 us +63\.6 %", result.stdout)
    assert re.search(r"setDevice +1 +1\.000 us", result.stdout)


def test_diff_prints_and_writes_a_page(tmp_path: Path):
    a, b = both(tmp_path)
    page = tmp_path / "diff.html"
    assert "aten::linalg_vector_norm" in isthmus("diff", a, b).stdout
    result = isthmus("diff", a, b, "--html", page)
    assert (result.returncode, result.stdout.strip()) == (0, str(page))
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert "aten::linalg_vector_norm" in page.read_text()


def test_page_loads_nothing_and_escapes_names(tmp_path: Path):
    name = "<script>alert('x')</script>&"
    path = write(tmp_path / "t.json", [event("kernel", name, 0, 1), event("cpu_op", name, 0, 1, 1)])
    page = tmp_path / "hot.html"
    assert isthmus("hot", path, "--html", page).returncode == 0
    text = page.read_text()
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import|url\(", text)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hot", "{folder}/none.json"), "No such file"),
        (("diff", "{a}", "{folder}/none.json"), "No such file"),
        (("diff", "{a}"), "only one trace given; usage: isthmus profile diff A B"),
        (("diff", "{a}", "{b}", "--only", "aten::conv*"), "no operator of either trace matches"),
        (("hot", "{a}", "--html", "{folder}/none/page.html"), "give a file in a folder that exists"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str):
    a, b = both(tmp_path)
    result = isthmus(*(argument.format(folder=tmp_path, a=a, b=b) for argument in arguments))
    assert result.returncode == 1
    assert words in result.stderr and result.stderr.count("\n") == 1


def test_profile_of_the_chip(tmp_path: Path):
    path = tmp_path / "chip.json.gz"
    code = f"""
        import torch
        x = torch.randn(64, 64, device="chip")
        with torch.profiler.profile() as prof:
            for _ in range(3):
                (x @ x).relu()
            x.cpu()
        prof.export_chrome_trace({str(path)!r})
    """
    output(code)  # in a child: threads of other tests may select devices meanwhile
    found = hot.analyse(read(path))
    assert found.kernels["aten::mm"].calls == found.operators["aten::matmul"].calls == 3
    assert found.operators["aten::matmul"].time == found.kernels["aten::mm"].time > 0
    assert found.calls["launch"].calls >= 6
    assert found.calls["memcpy"].calls == 1
    assert found.calls["setDevice"].calls == 0
    assert sum(found.busy.values()) + sum(gap.duration for gap in found.gaps) == pytest.approx(found.span)


@pytest.mark.parametrize("wrong", [{"dur": -5}, {"dur": "NaN"}, {"dur": float("nan")}, {"ts": float("inf")}])
def test_events_without_a_time_are_left_out_and_counted(tmp_path: Path, wrong: dict):
    clean, odd = cuda(tmp_path), write(tmp_path / "odd.json", [*EVENTS, event("kernel", "odd", 1, 1) | wrong])
    result = isthmus("hot", odd)
    assert result.returncode == 0
    said = "ignored 1 events whose time is negative, infinite or not a number"
    assert result.stderr == f"isthmus: warning: {odd}: {said}\n"
    before, after = hot.analyse(read(clean)), hot.analyse(read(odd))
    assert hot.sections(after, 20) == hot.sections(before, 20)


def test_a_number_beyond_every_float_is_not_a_time(tmp_path: Path):
    path = tmp_path / "x.json"
    for digits, message in [
        ("1e400", "(1 have an invalid one)"),
        ("1" * 400, "(1 have an invalid one)"),
        ("1" * 9000, "damaged"),
    ]:
        text = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": DUR}]}'
        path.write_text(text.replace("DUR", digits))
        with pytest.raises(ProfileError) as caught:
            read(path)
        assert message in str(caught.value)


def test_a_profile_of_no_time_is_refused(tmp_path: Path):
    path = write(tmp_path / "x.json", [event("cpu_op", "aten::mm", 3, 0), event("kernel", "gemm", 3, 0)])
    result = isthmus("hot", path)
    message = f"isthmus: {path}: the events have no duration; profile some steps\n"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", message)


def test_a_page_needs_the_name_of_a_file(tmp_path: Path):
    for page in (".", tmp_path):
        result = isthmus("hot", cuda(tmp_path), "--html", page)
        assert (result.returncode, result.stderr) == (
            1,
            f"isthmus: {page}: a folder; give the name of a file\n",
        )
