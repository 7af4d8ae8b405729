"""Strict mode: what each product refuses, failures that stay, and the report of a run."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus_ascend import products, report
from isthmus_ascend.environment import LIBRARIES
from isthmus_ascend.generate.limits import Limit, constant, read_limits
from isthmus_ascend.generate.table import Row
from tests.helpers import children
from tests.runtime.test_runtime import ENVIRONMENT
from tests.runtime.test_torch_npu import needs_torch_npu, start

STRICT = {**ENVIRONMENT, "ISTHMUS_ASCEND_STRICT": "1", "ISTHMUS_ASCEND_SOC": "910B2"}


def job(call: str, **environment: str) -> str:
    return children.output(
        f"from tests.runtime import strict_jobs; strict_jobs.{call}", **{**STRICT, **environment}
    )


def test_names_of_products() -> None:
    expected = {
        "910A": "Ascend910A", "910B": "Ascend910B2", "Ascend910B": "Ascend910B", "910_93": "Ascend910_9391",
        "310P3": "Ascend310P3", "310P": "Ascend310P3", "910B4": "Ascend910B4", "Ascend950": "Ascend950",
    }  # fmt: skip
    assert {name: products.full_name(name) for name in expected} == expected
    with pytest.raises(ValueError, match="unknown product; expected one of Ascend910A"):
        products.full_name("910X")
    code = f"import ctypes; name = ctypes.CDLL({str(LIBRARIES / 'libascendcl.so')!r}).aclrtGetSocName; "
    code += "name.restype = ctypes.c_char_p; print(name().decode())"
    ended = {
        name: subprocess.run(
            [sys.executable, "-S", "-c", code],
            env={**os.environ, "ISTHMUS_ASCEND_SOC": name}, capture_output=True, text=True, check=False,
        )
        for name in [*expected, "910X"]
    }  # fmt: skip
    failed = ended.pop("910X")
    assert {name: process.stdout.strip() for name, process in ended.items()} == expected
    assert failed.returncode == 2 and "ISTHMUS_ASCEND_SOC=910X: unknown product" in failed.stderr


@pytest.mark.parametrize("series", ["910", "310P", "910B", "910_93"])
def test_every_row_of_the_table_refuses(series: str) -> None:
    assert int(job(f"table('{series}')", ISTHMUS_ASCEND_SOC=series)) > (50 if series != "910" else 90)


def test_a_refusal_has_the_text_of_a_card() -> None:
    code = "import torch; print(refused('RepeatInterleaveIntWithDim', self=torch.zeros(2).double(), repeats_int=2))"
    message = children.output(f"from tests.runtime.strict_jobs import refused; {code}", **STRICT)
    listed = "[DT_UINT8,DT_INT8,DT_INT16,DT_INT32,DT_INT64,DT_BOOL,DT_FLOAT16,DT_FLOAT,DT_BFLOAT16,]"
    assert "error 161002 in aclnnRepeatInterleaveIntWithDim: EZ1001: [PID: " in message
    assert (
        f" self not implemented for DT_DOUBLE, should be in dtype support list {listed}. (Ascend910B2; "
        in message
    )
    kind = children.output(
        f"from tests.runtime.strict_jobs import refused; {code}", **STRICT | {"ISTHMUS_ASCEND_STRICT": "0"}
    )
    assert "EZ1001" not in kind


def test_a_compressed_mask_has_2048_positions() -> None:
    code = """
        import torch
        from tests.runtime.strict_jobs import refused
        x = torch.zeros(1, 1, 4, 64)
        given = {"query": x, "key": [x], "value": [x], "num_heads": 1, "input_layout": "BNSD", "out": x}
        for shape in ((4, 4), (2048, 2048), (1, 1, 2048, 2048), None):
            mask = shape and torch.ones(shape).bool().triu(1)
            for mode in (0, 3):
                print(refused("FusedInferAttentionScoreV3", **given, sparse_mode=mode, atten_mask=mask) or "taken")
    """
    mine = "error 161002 in aclnnFusedInferAttentionScoreV3: "
    expected = "expected [2048, 2048], [1, 2048, 2048] or [1, 1, 2048, 2048]"
    lines = children.output(code, **STRICT).splitlines()
    assert [line == "taken" for line in lines] == [True, False, True, True, True, True, True, False]
    assert f"{mine}attenMask has shape [4, 4] and sparseMode is 3, {expected}" in lines[1]
    assert f"{mine}attenMask is absent and sparseMode is 3, {expected}" in lines[7]


def test_bfloat16_and_float8_by_product() -> None:
    code = """
        import torch
        from tests.runtime.strict_jobs import refused
        x = torch.zeros(2)
        for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn):
            given = x.to(dtype)
            print("EZ1001" in refused("InplaceCopy", self_ref=given, src=given), end=" ")
    """
    from tests.runtime import opapi

    names = [name for _, name in opapi.ROWS["InplaceCopy"].parameters]
    code = code.replace("self_ref", names[0]).replace("src", names[1])
    for product, expected in (
        ("910A", "False True True"), ("310P3", "False True True"), ("910B1", "False False True"),
        ("Ascend950", "False False False"),
    ):  # fmt: skip
        assert children.output(code, **STRICT | {"ISTHMUS_ASCEND_SOC": product}).strip() == expected, product


def test_rows_of_the_table() -> None:
    row = Row("Add", (("tensor", "self"), ("int", "dim")), "", "")
    (limit,) = read_limits("# comment\nAdd self | 910B 910 | dtypes float32 int64 | page\n")
    assert limit == Limit("Add", "self", ("910B", "910"), "dtypes", ("float32", "int64"), "page")
    assert 'Limit::kDtypes, 513u, 0, 0, "DT_FLOAT,DT_INT64,", "page"' in constant(limit, {"Add": (3, row)})
    with pytest.raises(ValueError, match="Add has no other; expected one of self, dim"):
        constant(replace(limit, parameter="other"), {"Add": (3, row)})
    for text in (
        "Add self | 910B | dtypes bool",
        "Add self | 910X | dtypes bool | page",
        "Add self | 910 | kind | page",
    ):
        with pytest.raises(ValueError, match="line 1"):
            list(read_limits(text))


def test_a_stream_that_stops_on_failure() -> None:
    job("streams()")


def test_every_function_with_degenerate_arguments() -> None:
    printed = job("every_function(1)", ISTHMUS_ASCEND_STRICT="0", ISTHMUS_ASCEND_MEMORY="64MiB")
    assert int(printed.splitlines()[-1]) > 2000


# Calls of which the first are refused; later ones give what the CPU gives, or raise.
RANDOM_CALLS = """
import random, sys
import torch, torch_npu

drawn = random.Random(int(sys.argv[1]))
y = torch.arange(12.0).view(3, 4)
n, index = y.npu(), torch.tensor([9]).npu()
right = [
    lambda x: x + 1, lambda x: x @ x.T, lambda x: x.sum(0), lambda x: x.softmax(1), lambda x: x[:, 1:] * 2,
    lambda x: x.clamp(min=2.5), lambda x: torch.cat([x, x]), lambda x: (x > 3).sum(),
    lambda x: x.long().clamp(min=1.0),
    lambda x: x.mean().item(),
]
wrong = [
    lambda: n.double().repeat_interleave(2, dim=0), lambda: torch_npu.npu_rms_norm(n, n),
    lambda: torch.arange(4, dtype=torch.int8, device="npu"), lambda: n.to(torch.float8_e4m3fn), lambda: n @ n,
    lambda: torch.randn(3, dtype=torch.complex32, device="npu"), lambda: n.softmax(9),
]
late = [
    lambda: n[index], lambda: torch_npu.npu_sub_sample(torch.tensor([1, 2, -1], dtype=torch.int32).npu(), 3, 0.6),
    lambda: torch.nn.functional.embedding(index, n),
]
values = raised = garbage = refusals = 0
stopped = False
for call in range(int(sys.argv[2])):
    if drawn.random() < 0.2:
        try:
            drawn.choice(wrong)()
        except RuntimeError:
            refusals += 1
    if call == int(sys.argv[3]):
        try:
            drawn.choice(late)()
        except RuntimeError:
            pass
        stopped = True
    function = drawn.choice(right)
    try:
        result = function(n)
        result = result.cpu() if isinstance(result, torch.Tensor) else result
    except RuntimeError:
        raised += 1
        continue
    values += 1
    expected = function(y)
    same = abs(result - expected) < 1e-5 if isinstance(expected, float) else torch.allclose(result, expected)
    garbage += not same or stopped
try:
    torch.npu.synchronize()
    ended = "no error"
except RuntimeError:
    ended = "error"
print(values, raised, garbage, refusals, ended)
"""


@needs_torch_npu
@pytest.mark.parametrize("queue", [pytest.param("0", marks=pytest.mark.full), "1", "2"])
def test_no_call_after_a_refusal_returns_what_a_card_would_not(queue: str) -> None:
    found = start("run", "-c", RANDOM_CALLS, queue, "700", "500", TASK_QUEUE_ENABLE=queue)
    values, raised, garbage, refusals, ended = found.stdout.split()
    assert (int(values) + int(raised), garbage, ended) == (700, "0", "error"), found.stdout + found.stderr
    if queue != "2":  # there the first refusal ends the queue
        assert (int(values), int(raised)) == (500, 200), found.stderr
        assert int(refusals) > 50


REPORTED = """
import torch, torch_npu

x = torch.arange(4.0).npu()
for _ in range(3):
    y = x + 1
wide, half = torch.rand(4, dtype=torch.float64).npu(), torch.rand(4, 16, 16).half().npu()
for wrong in (
    lambda: wide.repeat_interleave(2),
    lambda: torch_npu.npu_kronecker_quant(half, half[0], half[0]),
):
    try:
        wrong()
    except RuntimeError:
        pass
"""


@needs_torch_npu
def test_the_report_of_a_run(tmp_path: Path) -> None:
    script, file = tmp_path / "program.py", tmp_path / "report.json"
    script.write_text(REPORTED)
    ended = start("run", "--report", str(file), str(script))
    assert ended.returncode == 0, ended.stderr
    printed = children.command("ascend", "report", str(file)).stdout
    assert "  aclnnAdds  3\n    " + f"{script}:6  3\n" in printed
    assert "missing in the runtime:" in printed and f"  aclnnFlatQuant  1\n    {script}:10  1\n" in printed
    refused = printed.partition("refused:")[2]
    assert (
        "  aclnnRepeatInterleaveInt  1\n    EZ1001: [PID: " in refused and f"    {script}:9  1\n" in refused
    )


def test_reports_add_up(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    entry = {"function": "aclnnAdd", "outcome": "called", "site": "a.py:1", "message": "", "calls": 1}
    entries = [
        entry,
        entry | {"calls": 4},
        entry | {"site": "b.py:2"},
        entry | {"outcome": "refused", "message": "why"},
    ]
    file.write_text("".join(json.dumps(each) + os.linesep for each in entries))
    assert list(report.lines(report.read(file), 1)) == [
        "called: 1 functions, 6 calls",
        "  aclnnAdd  6",
        "    a.py:1  5",
        "    and 1 more call sites",
        "refused: 1 functions, 1 calls",
        "  aclnnAdd  1",
        "    why",
        "    a.py:1  1",
        "missing in the runtime: 0 functions, 0 calls",
    ]
    file.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1 is not a line of a report"):
        report.read(file)
