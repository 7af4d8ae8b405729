"""Ends of findings: changed, left, undecided or portable; in scripted code, in f-strings, and by what is around."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from isthmus_migrate.convert.engine import Result, convert_module
from isthmus_migrate.rules.registry import all_rules
from isthmus_migrate.source.cuda_names import FLAGS
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import Severity
from isthmus_migrate.source.parse import parse
from isthmus_migrate.source.surroundings import Surroundings

HEAD = "import torch\nfrom torch.utils.data import DataLoader\n\n"
CHANGED, LEFT, UNCLEAR, RIGHT = Severity.AUTOMATIC, Severity.MANUAL, Severity.REVIEW, Severity.NONE


def convert(text: str, target: str = "") -> Result:
    source = Source(Path("a.py"), "a.py", Kind.PYTHON, text.encode(), text, "utf-8")
    module, problems = parse(source, around=Surroundings(target=target))
    assert module is not None
    assert not problems
    return convert_module(module, all_rules())


def ends(text: str) -> set[tuple[str, Severity]]:
    return {(each.code, each.severity) for each in convert(text).findings}


@pytest.mark.parametrize(
    ("line", "code", "end"),
    [
        ("torch.cuda.nccl.version()", "IM191", LEFT),
        ("if torch.version.cuda: pass", "IM191", UNCLEAR),
        ("print(torch.version.cuda)", "IM191", RIGHT),
        ("g = torch.cuda.CUDAGraph()", "IM405", LEFT),
        ("pool = torch.cuda.MemPool()", "IM190", LEFT),
        ("torch.cuda.no_such_name()", "IM199", UNCLEAR),
        ("torch.cuda.Stream.priority_range()", "IM199", UNCLEAR),
        ("getattr(torch.cuda, name)", "IM199", UNCLEAR),
        ('getattr(torch, "cuda").synchronize()', "IM199", UNCLEAR),
        ('if hasattr(torch, "cuda"): pass', "IM199", RIGHT),
        ('patch("torch.cuda.is_available")', "IM199", UNCLEAR),
        ('def f(s: "torch.cuda.Stream"): pass', "IM199", RIGHT),
        ("class Side(torch.cuda.Stream): pass", "IM116", LEFT),
        ("torch.cuda.get_device_properties(0).multi_processor_count", "IM115", UNCLEAR),
        ("torch.cuda.get_device_properties(0).major", "IM115", CHANGED),
        ("torch.backends.cudnn.benchmark, a = True, 1", "IM122", RIGHT),
        ('foo(pin_memory_device="cuda")', "IM123", UNCLEAR),
        ("activities.append(torch.profiler.ProfilerActivity.CUDA)", "IM124", UNCLEAR),
        ("event.cuda_time_total", "IM124", RIGHT),
        ('row["cuda_time"]', "IM124", RIGHT),
        ("torch.autograd.profiler.profile(use_cuda=False)", "IM124", RIGHT),
        ("from torch.cuda import *", "IM130", LEFT),
        ('"CUDA out of memory" in str(e)', "IM132", UNCLEAR),
        ('"out of memory" in str(e)', "IM132", RIGHT),
        ("class Scaler(torch.cuda.amp.GradScaler): pass", "IM118", LEFT),
        ("use(torch.cuda.amp.autocast)", "IM118", UNCLEAR),
        ('torch.autocast("cuda", **given)', "IM118", UNCLEAR),
        ('f("torch.cuda.FloatTensor")', "IM120", UNCLEAR),
        ("isinstance(x, (torch.cuda.FloatTensor, torch.FloatTensor))", "IM120", UNCLEAR),
        ("def f(x: torch.cuda.FloatTensor): pass", "IM120", RIGHT),
        ('torch.set_default_tensor_type("torch.cuda.FloatTensor"); torch.Tensor([1])', "IM120", LEFT),
        ("torch.cuda.nvtx.range(msg=name)", "IM121", LEFT),
        ("push = torch.cuda.nvtx.range_push", "IM121", LEFT),
    ],
)
def test_how_a_line_ends(line: str, code: str, end: Severity) -> None:
    assert (code, end) in ends(f"{HEAD}{line}\n")
    if end is not CHANGED:
        assert line in convert(f"{HEAD}{line}\n").text


SCRIPTED = """import torch


def scaled(x):
    torch.cuda.synchronize()
    return x * 2


@torch.jit.script
def doubled(x):
    return scaled(x)


class Part(torch.nn.Module):
    def forward(self, x):
        return x if torch.cuda.is_available() else doubled(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.cuda.synchronize()
        self.part = Part()

    @torch.jit.ignore
    def report(self):
        torch.cuda.synchronize()

    def forward(self, x):
        torch.cuda.synchronize()
        return self.part(x)


net = Net()
scripted = torch.jit.script(net)
"""


def test_code_that_torchscript_compiles_does_not_use_the_device() -> None:
    found = {each.line: each.severity for each in convert(SCRIPTED).findings}
    assert found == {5: LEFT, 16: LEFT, 22: CHANGED, 27: CHANGED, 30: LEFT}


def test_every_part_of_an_f_string_is_changed_in_place_or_left() -> None:
    text = (
        HEAD
        + 'print(f"""\n  {a}\n {torch.cuda.memory_allocated() / 2} {"x"}""" f"{torch.cuda.device_count()}")\n'
    )
    result = convert(text)
    assert {each.severity for each in result.findings} <= {CHANGED, LEFT}
    for each in result.findings:
        assert each.edits or "f-string" in each.message
    compile(result.text, "a.py", "exec")


def test_an_import_of_torch_amp_stays_with_a_call_that_stays() -> None:
    head = "import torch\nfrom torch.cuda.amp import autocast\n"
    for unknown, end in (("*given", LEFT), ("**given", UNCLEAR)):
        result = convert(f"{head}a = autocast({unknown})\nb = autocast()\n")
        assert "from torch.cuda.amp import autocast\n" in result.text
        assert f"a = autocast({unknown})\n" in result.text
        assert "b = torch.amp.autocast(DEVICE.type," in result.text
        assert end in {each.severity for each in result.findings}
    pinned = convert(f"{head}a = autocast(**given)\n", "npu").text
    assert "from torch.amp import autocast\n" in pinned
    assert "a = autocast(DEVICE.type, **given)\n" in pinned


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "from torch.cuda import synchronize as wait, nccl\nwait()\nnccl.version()\n",
            "from torch.cuda import nccl\n",
        ),
        (
            "from torch.cuda import nccl, synchronize as wait\nwait()\nnccl.version()\n",
            "from torch.cuda import nccl\n",
        ),
        (
            '__all__ = ["wait"]\nfrom torch.cuda import synchronize as wait\nwait()\n',
            "import synchronize as wait\n",
        ),
        ("import os; from torch.cuda import synchronize\nsynchronize()\n", "import os\n"),
        ("from torch.cuda import synchronize; import os\nsynchronize()\n", "import os\n"),
        (
            "try:\n    from torch.cuda import seed\n    from torch.cuda import init\nexcept ImportError:\n    raise\n"
            "seed()\ninit()\n",
            'torch.device("cpu")\n\nif torch.accelerator',
        ),
    ],
)
def test_what_is_dropped_of_an_import(before: str, after: str) -> None:
    assert after in convert(before).text


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_flags_of_cuda_can_be_set_without_cuda(flag: str) -> None:
    owner, _, name = flag.rpartition(".")
    where = functools.reduce(getattr, owner.split(".")[1:], torch)
    value = {"fp32_precision": "ieee", "benchmark_limit": 5}.get(name, True)
    before = getattr(where, name, value)  # PyTorch no longer has `fastest`
    with (
        torch.backends.__allow_nonbracketed_mutation()
    ):  # PyTorch's test utilities forbid it for a whole process
        try:
            setattr(where, name, value)
            assert getattr(where, name) == value
        finally:
            setattr(where, name, before)


def test_a_function_that_is_passed_on_stays_itself_without_an_accelerator() -> None:
    line = "for seed in (torch.manual_seed, torch.cuda.manual_seed_all): seed(0)\n"
    once = convert(HEAD + line).text
    assert "manual_seed_all if torch.accelerator.is_available() else torch.cuda.manual_seed_all)" in once
    assert convert(once).text == once
