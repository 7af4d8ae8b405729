"""isthmus profile advise and report: each rule on its recorded runs, and figures worked out by hand."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from isthmus_diagnostics.profile import advise, ranks
from isthmus_diagnostics.profile.critical import critical_path
from isthmus_diagnostics.profile.detectors import Context
from isthmus_diagnostics.profile.host import Host
from isthmus_diagnostics.profile.intervals import clip, minus, union
from isthmus_diagnostics.profile.modules import module_totals
from isthmus_diagnostics.profile.overview import overview, sections
from isthmus_diagnostics.profile.roofline import Limits, works
from isthmus_diagnostics.profile.steps import breakdown, steps
from isthmus_diagnostics.profile.trace import Trace, read_folder
from tests.profile.test_profile_tools import event, isthmus, write
from tools.repository import ROOT

RUNS = Path(__file__).parent / "profile_rules"
SCRIPTS = sorted(path.stem for path in RUNS.glob("*.py") if path.stem != "record")
RULES = sorted(rule.name for rule in advise.rules())


def rank_of(folder: Path, rank: int, events: list[dict]) -> Trace:
    folder.mkdir(exist_ok=True)
    path = write(folder / f"trace{rank}.json", events, distributedInfo={"rank": rank})
    return read_folder(path)[0]


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def mark(name: str, start: float, duration: float) -> dict:
    return event("user_annotation", name, start, duration)


# ---- Rules -----------------------------------------------------------------------------------------------


def rule_of(script: str) -> str:
    return next(rule for rule in RULES if script.startswith(rule))


def advice(folder: Path, sources: Path = RUNS) -> list[advise.Finding]:
    return advise.advise(Context.of_traces(read_folder(folder), [sources]))


def test_every_rule_has_its_runs():
    assert sorted({rule_of(script) for script in SCRIPTS}) == RULES


@pytest.mark.parametrize("page", ["docs/guides/profile.md", "docs/zh/guides/profile.md"])
def test_the_guide_has_every_rule(page: str):
    text = (ROOT / page).read_text()
    assert [rule for rule in RULES if f"| `{rule}` |" not in text] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_rule_names_the_slow_line_and_all_are_silent_on_the_corrected_one(script: str):
    assert [finding.rule for finding in advice(RUNS / script / "after")] == []
    source = (RUNS / f"{script}.py").read_text().splitlines()
    slow = next(number for number, line in enumerate(source, 1) if line.endswith("# slow"))
    found = {finding.rule: finding for finding in advice(RUNS / script / "before")}
    cause = found[rule_of(script)].causes[0]
    assert cause.file == f"{script}.py" and cause.line == slow and cause.time > 0


def test_time_is_not_counted_twice():
    for script in SCRIPTS:
        findings = advice(RUNS / script / "before")
        for rank in {finding.rank for finding in findings}:
            assert sum(finding.share for finding in findings if finding.rank == rank) <= 1 + 1e-9


def test_without_the_source_the_function_is_named(tmp_path: Path):
    findings = advice(RUNS / "contiguous" / "before", tmp_path)
    assert findings[0].causes[0].where == "contiguous.py:8 (in layer)"


# ---- Steps -----------------------------------------------------------------------------------------------


def test_intervals():
    assert union([(3, 5), (0, 1)], [(1, 2), (4, 7)]) == [(0, 2), (3, 7)]
    assert minus([(0, 10)], [(2, 3), (5, 12)]) == [(0, 2), (3, 5)]
    assert clip([(0, 2), (3, 7), (9, 11)], 1, 10) == [(1, 2), (3, 7), (9, 10)]


STEPS = [
    mark("ProfilerStep#3", 0, 100),
    mark("ProfilerStep#4", 100, 50),
    event("kernel", "gemm", 10, 40),
    event("kernel", "ncclDevKernel_AllReduce", 30, 40, tid=9),
    event("gpu_memcpy", "Memcpy HtoD", 80, 5, tid=8),
    event("kernel", "ncclDevKernel_SendRecv", 95, 15, tid=9),
    event("kernel", "gemm", 120, 30),
]


def test_parts_of_a_step_add_up(tmp_path: Path):
    third, fourth = breakdown(read_folder(write(tmp_path / "trace.json", STEPS))[0])
    assert (third.compute, third.exposed, third.overlapped, third.copies, third.free) == (40, 25, 20, 5, 30)
    assert (fourth.compute, fourth.exposed, fourth.free, fourth.bubble) == (30, 10, 10, 10)
    for row in (third, fourth):
        assert row.compute + row.exposed + row.copies + row.free == row.time


def test_critical_path_follows_a_wait_to_its_kernel_and_launch(tmp_path: Path):
    events = [
        mark("ProfilerStep#1", 0, 100),
        event("cpu_op", "aten::mm", 10, 10, 1),
        event("cuda_runtime", "cudaLaunchKernel", 12, 3, 1, args={"External id": 1, "correlation": 7}),
        event("kernel", "gemm", 20, 60, 1, args={"External id": 1, "correlation": 7}),
        event("cuda_runtime", "cudaStreamSynchronize", 30, 52),
        event("cpu_op", "aten::relu", 85, 10, 2),
    ]
    trace = read_folder(write(tmp_path / "trace.json", events))[0]
    path = critical_path(Host(trace, []), trace.device, steps(trace))
    assert path == {
        ("device", "gemm"): 60,
        ("host", "aten::relu"): 20,
        ("host", "ProfilerStep#1"): 12,
        ("host", "(launch)"): 8,
    }


@pytest.mark.parametrize(
    "frames",
    [
        ["isthmus_diagnostics/health/session.py(166): backward"],
        ["isthmus_diagnostics/health/session.py(166): backward", "torch/_tensor.py(631): backward"],
        ["torch/_tensor.py(631): backward", "isthmus_diagnostics/health/session.py(166): backward"],
        ["isthmus/shim/devices.py(51): function", "isthmus/chip/distributed.py(20): all_reduce"],
        [
            "isthmus_common/patches.py(9): call",
            "/opt/lib/python3.11/site-packages/deepspeed/engine.py(3): step",
        ],
    ],
    ids=["health", "health outside of torch", "health within torch", "shim", "other packages"],
)
def test_the_place_of_an_all_reduce_is_the_users(tmp_path: Path, frames: list[str]):
    names = ["train.py(12): <module>", *frames, "<built-in method run_backward of object at 0x7f00>"]
    events = [event("python_function", name, i, 90 - 2 * i) for i, name in enumerate(names)]
    events += [event("cpu_op", "chip:all_reduce", 20, 9, 1), event("kernel", "chip:all_reduce", 30, 9, 1)]
    host = Host(read_folder(write(tmp_path / "trace.json", events))[0], [])
    (index,) = [i for i, each in enumerate(host.events) if each.name == "chip:all_reduce"]
    assert str(host.place(index)) == "train.py:12 (in <module>)"


# ---- Ranks -----------------------------------------------------------------------------------------------


def collective(start: float, duration: float, group: str, elements: int = 1000) -> dict:
    args = {
        "Collective name": "allreduce",
        "Process Group Ranks": group,
        "In msg nelems": elements,
        "dtype": "Float",
    }
    return event("kernel", "ncclDevKernel_AllReduce", start, duration, args=args)


def test_last_rank_and_slow_group_are_found_without_a_common_clock(tmp_path: Path):
    # Rank 1 arrives 20 us after rank 0; the clocks of the ranks differ by 1000 us. Group [4, 5] is slow.
    times = {
        0: ("[0, 1]", 30),
        1: ("[0, 1]", 10),
        2: ("[2, 3]", 10),
        3: ("[2, 3]", 10),
        4: ("[4, 5]", 50),
        5: ("[4, 5]", 50),
    }
    traces = [
        rank_of(
            tmp_path,
            rank,
            [mark("ProfilerStep#1", 1000 * rank, 100), collective(1000 * rank + 10, time, group)],
        )
        for rank, (group, time) in times.items()
    ]
    assert ranks.time_waited_for(ranks.waits(traces))["1"] == 20
    links = ranks.links(traces)
    assert {link.group: (link.bytes, link.time, ranks.slowness(link, links)) for link in links} == {
        "[0, 1]": (4000, 10, 1),
        "[2, 3]": (4000, 10, 1),
        "[4, 5]": (4000, 50, 5),
    }
    assert ranks.pairs(links)[4, 5] == 5 and (1, 2) not in ranks.pairs(links)


def test_ranks_without_numbers_follow_their_file_names(tmp_path: Path):
    for name in "ab":
        write(tmp_path / f"{name}.json", STEPS)
    assert [(trace.path.name, trace.rank) for trace in read_folder(tmp_path)] == [
        ("a.json", 0),
        ("b.json", 1),
    ]


def test_stages_of_a_pipeline_and_its_bubble(tmp_path: Path):
    # Two stages: the second waits 30 us for the first, then computes.
    def exchange(kind: str, start: float, duration: float) -> dict:
        args = {"Collective name": kind, "Process Group Ranks": "[0, 1]"}
        return event("kernel", "ncclDevKernel_SendRecv", start, duration, tid=9, args=args)

    step, gemm = mark("ProfilerStep#1", 0, 100), event("kernel", "gemm", 0, 30)
    events = [[step, gemm, exchange("send", 30, 1)], [step, exchange("recv", 1, 30), gemm | {"ts": 40}]]
    traces = [rank_of(tmp_path, rank, found) for rank, found in enumerate(events)]
    seen = overview(Context.of_traces(traces, []), None, None)
    assert seen.stages == {"0": 0, "1": 1}
    assert [seen.steps[rank][0].bubble for rank in "01"] == [1, 30]
    assert [row.work["forward"] for row in seen.last_step] == [[(0, 30)], [(40, 30)]]
    titles = [section.title for section in sections(seen, 5)]
    assert titles[:4] == ["Steps", "Slow ranks", "Pipeline", "The last step by rank"]


def test_all_to_all_is_no_bubble(tmp_path: Path):
    args = {"Collective name": "all_to_allv", "Process Group Ranks": "[0, 1]"}
    events = [event("kernel", "ncclDevKernel_SendRecv", 0, 10, args=args), mark("ProfilerStep#1", 0, 20)]
    (row,) = breakdown(read_folder(write(tmp_path / "trace.json", events))[0])
    assert (row.exposed, row.bubble) == (10, 0)


def test_each_device_of_a_process_is_analysed(tmp_path: Path):
    events = [mark("ProfilerStep#1", 0, 100)]
    for device, time in (0, 40.0), (1, 20.0), (2, 0.1):  # the last is a stray one
        events.append(event("kernel", "gemm", 0, time, pid=device, args={"device": device}))
    traces = read_folder(write(tmp_path / "trace.json", events))
    rows = {trace.name: breakdown(trace)[0].compute for trace in traces}
    assert rows == {"0, device 0": 40, "0, device 1": 20}


def test_groups_of_a_size_are_looked_up_in_the_job(tmp_path: Path):
    info = {"rank": 1, "pg_config": [{"ranks": [0, 1, 2, 3]}, {"ranks": "[0, 1]"}]}
    sized = event("kernel", "chip:all_reduce", 0, 10, args={"Group size": 2})
    (trace,) = read_folder(write(tmp_path / "trace.json", [sized], distributedInfo=info))
    assert ranks.group_of(trace.device[0], trace) == "[0, 1]"


# ---- Operators -------------------------------------------------------------------------------------------


def shaped(name: str, start: float, identity: int, *dims: list[int]) -> list[dict]:
    args = {"External id": identity, "Input Dims": list(dims), "Input type": ["float"] * len(dims)}
    return [
        event("cpu_op", name, start, 5, identity, args=args),
        event("kernel", "kernel", start + 10, 4, identity),
    ]


def test_operations_come_from_shapes(tmp_path: Path):
    heads = [[2, 4, 8, 16]] * 3
    events = [
        mark("ProfilerStep#1", 0, 100),
        *shaped("aten::mm", 1, 1, [3, 5], [5, 7]),
        *shaped("aten::addmm", 21, 2, [7], [3, 5], [5, 7]),
        *shaped("aten::_scaled_dot_product_flash_attention", 41, 3, *heads),
        # a checkpoint's recomputation: a forward operator in the backward pass
        event("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 60, 20, 4),
        *shaped("aten::addmm", 61, 5, [7], [3, 5], [5, 7]),
    ]
    trace = read_folder(write(tmp_path / "trace.json", events))[0]
    found = {work.name: work for work in works(Host(trace, []), trace.device, steps(trace))}
    assert found["aten::mm"].flops == 2 * 3 * 5 * 7
    assert (found["aten::addmm"].flops, found["aten::addmm"].recomputed) == (2 * 210, 210)
    assert found["aten::_scaled_dot_product_flash_attention"].flops == 2 * 2 * 2 * 4 * 8 * 8 * 16
    assert found["aten::mm"].bytes == 4 * (15 + 35 + 21)
    assert found["aten::mm"].attainable_time(Limits({"float": 210e6}, 1e12)) == pytest.approx(1)
    seen = overview(Context.of_traces([trace], []), None, 840e6 / 1e-4 / 1e6)
    assert seen.hfu and seen.mfu and seen.hfu > seen.mfu


def test_modules_have_their_backward_work(tmp_path: Path):
    forward = {"External id": 1, "Sequence number": 4, "Fwd thread id": 0}
    events = [
        event("python_function", "nn.Module: MLP_0", 0, 50),
        event("python_function", "nn.Module: Linear_0", 5, 30),
        event("cpu_op", "aten::addmm", 8, 10, args=forward),
        event("kernel", "gemm", 20, 6, 1),
        event("cpu_op", "AddmmBackward0", 60, 20, args={"Sequence number": 4, "Fwd thread id": 1}),
        event("cpu_op", "aten::mm", 62, 10, 2),
        event("kernel", "gemm_t", 70, 9, 2),
    ]
    totals = module_totals(read_folder(write(tmp_path / "trace.json", events))[0])
    assert {path: total.time for path, total in totals.items()} == {
        "MLP_0/Linear_0": 6,
        "MLP_0/Linear_0 (backward)": 9,
    }


# ---- The vendor's output ---------------------------------------------------------------------------------


def vendor_output(folder: Path) -> Path:
    folder = folder / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder.parent / "profiler_info_3.json").write_text("{}")
    device = {"pid": 3, "tid": 7, "ph": "X"}
    events = [
        {"ph": "M", "name": "process_name", "pid": 3, "tid": 0, "args": {"name": "Ascend Hardware"}},
        {**device, "name": "MatMulV2", "ts": "0", "dur": 60.0},
    ]
    (folder / "trace_view.json").write_text(json.dumps(events))
    (folder / "step_trace_time.csv").write_text(
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n0,5,60.0,10.0,2.0,12.0,30.0,100,4.0,6.0,1.0\n"
    )
    (folder / "kernel_details.csv").write_text(
        "Name,Type,Duration(us),Input Shapes,Input Data Types,Output Shapes\n"
        'aclnnMatmul_1,MatMulV2,60.0,"""3,5;5,7""",FLOAT;FLOAT,"""3,7"""\n'
    )
    (folder / "memory_record.csv").write_text(
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Device Type\n"
        "PTA,10.0,2.0,8.0,NPU:3\nPTA+GE,20.0,9.0,9.0,NPU:3\nPTA,30.0,1.5,8.0,NPU:3\n"
    )
    call = {
        "Communication Time Info": {"Transit Time(ms)": 0.5},
        "Communication Bandwidth Info": {"HCCS": {"Transit Size(MB)": 4.0}, "RDMA": {"Transit Size(MB)": 0}},
    }
    found = {
        "step5": {"p2p": {}, "collective": {"hcom_allReduce__1@12345678901": call, "Total Op Info": call}}
    }
    (folder / "communication.json").write_text(json.dumps(found))
    return folder.parent


def test_vendor_tables_are_read(tmp_path: Path):
    traces = read_folder(vendor_output(tmp_path))
    seen = overview(Context.of_traces(traces, []), None, None)
    (row,) = seen.steps["3"]
    assert (row.step, row.time, row.compute, row.exposed, row.free, row.bubble) == (5, 100, 60, 10, 30, 4)
    (work,) = seen.operators
    assert (work.name, work.shapes, work.flops, work.time) == ("MatMulV2", "3x5 5x7", 210, 60)
    (link,) = seen.links
    assert (link.bytes, link.time, link.bandwidth) == (4_000_000, 500, 8e9)
    (peak,) = seen.peaks
    assert (peak.device, peak.allocated, peak.reserved, len(seen.timeline)) == ("3", 2 << 20, 8 << 20, 2)
    assert [section.title for section in sections(seen, 5)][:3] == ["Steps", "The last step by rank", "Links"]


# ---- Commands --------------------------------------------------------------------------------------------


def test_report_writes_a_page_and_json(tmp_path: Path):
    folder = RUNS / "unbalanced" / "before"
    page = tmp_path / "page.html"
    assert printed(isthmus("report", folder, "--html", page, "--source", RUNS)).strip() == str(page)
    text = page.read_text()
    assert (
        "Slow ranks" in text
        and "unbalanced.py:14" in text
        and 'class="finding"' in text
        and 'class="heat"' in text
    )
    found = json.loads(printed(isthmus("report", folder, "--json", "--source", RUNS)))
    assert sorted(found["steps"]) == ["0", "1"]
    assert "unbalanced" in {finding["rule"] for finding in found["advice"]}


def test_diff_of_folders_compares_ranks():
    text = printed(isthmus("diff", RUNS / "unbalanced" / "before", RUNS / "unbalanced" / "after"))
    assert "rank 0, exposed communication" in text and "rank 1, step" in text and "mean, step" in text
    assert "all_reduce [0, 1] 4.0 KiB" in text


def test_empty_folder_is_one_line(tmp_path: Path):
    done = isthmus("advise", tmp_path)
    assert done.returncode == 1 and "give a folder of traces" in done.stderr and done.stderr.count("\n") == 1
