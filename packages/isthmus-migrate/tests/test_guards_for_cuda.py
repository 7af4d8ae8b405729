"""Tests for CUDA and what they guard: both stay, or both are converted."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity


def _converted(source: str) -> str:
    return convert_source(f"import torch\n{source}", "a.py").text


PARALLEL = """def f(cuda, model):
    if cuda and torch.cuda.device_count() > 1:
        print("use", torch.cuda.device_count())
        model = torch.nn.DataParallel(model)
    return model
"""


def test_a_count_of_gpus_in_front_of_data_parallel_stays() -> None:
    assert "torch.accelerator" not in _converted(PARALLEL)
    moved = _converted(PARALLEL.replace("DataParallel(model)", "DataParallel(model).cuda()"))
    assert "if cuda and torch.accelerator.device_count() > 1:" in moved


CHECKER = """import triton

@triton.jit
def kernel(x): ...

def forward(x):
    return kernel[(1,)](x)

run = executor.register_operator("run", fn=forward)

def checker(x):
    return x.device.type == "cuda" and x.ndim == 2

executor.register_implementation(old, checker=checker, execution_transform=run)
"""


def test_a_predicate_that_is_passed_beside_an_implementation_for_cuda_stays() -> None:
    assert _converted(CHECKER) == f"import torch\n{CHECKER}"
    portable = CHECKER.replace("kernel[(1,)](x)", "x + 1")
    assert 'x.device.type != "cpu" and x.ndim == 2' in _converted(portable)


REFUSALS = """def usable(x):
    if not torch.backends.cudnn.enabled:
        return False
    if x.device.type != "cuda":
        return False
    return True
"""


def test_the_tests_on_which_a_function_answers_false_are_one_condition() -> None:
    assert _converted(REFUSALS) == f"import torch\n{REFUSALS}"
    assert 'if x.device.type == "cpu":' in _converted(REFUSALS.replace("torch.backends.cudnn.", ""))


BRANCHES = """import triton

@triton.jit
def kernel(x): ...

def forward(n):
    losses = torch.empty(n, device="cuda")
    if n == 1:
        sums = torch.empty(n, device="cuda")
        kernel[(n,)](losses, sums)
    else:
        sums = torch.empty(n, 2, device="cuda")
        kernel[(n, 2)](losses, sums)
    return sums
"""


def test_a_function_that_launches_a_kernel_in_every_branch_is_for_cuda_as_a_whole() -> None:
    assert _converted(BRANCHES) == f"import torch\n{BRANCHES}"
    assert "losses = torch.empty(n, device=DEVICE.type)" in _converted(
        BRANCHES.replace("kernel[(n, 2)](losses, sums)", "sums.fill_(losses)")
    )


ASKED = """import subprocess

def links():
    subprocess.run(["nvidia-smi", "topo", "-m"])

def check():
    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0).name
        if "nvidia" in found:
            links()
"""


def test_what_moves_nothing_stays_with_its_test_for_cuda() -> None:
    assert _converted(ASKED) == f"import torch\n{ASKED}"
    assert "torch.cuda" not in _converted(ASKED.replace("nvidia-smi", "lspci"))


SKIPPED = """import unittest

@unittest.skipUnless(torch.cuda.is_available(), "CUDA required for MoE forward")
class TestIt(unittest.TestCase):
    def test(self):
        x = torch.zeros(2, device="cuda")
        {}
"""


@pytest.mark.parametrize(
    ("used", "end"),
    [
        ("x.sum()", Severity.AUTOMATIC),
        ("self.assertIn('triton', code(x))", Severity.REVIEW),
        ("cudagraph_pass(x)", Severity.REVIEW),
        ("run(attn=FlexAttention)", Severity.REVIEW),
        ("self.assert_fla_matches(x)", Severity.REVIEW),
        ("from fla.ops import conv; conv(x)", Severity.REVIEW),
        ("from torch.cuda._graph_annotations import get; get(x)", Severity.NONE),
    ],
)
def test_a_skipped_test_is_opened_if_it_names_no_kernel_or_graph(used: str, end: Severity) -> None:
    found = convert_source(f"import torch\n{SKIPPED.format(used)}", "a.py").findings
    assert [each.severity for each in found if each.code == "IM110"] == [end]


COMPILED = """def load(text):
    if torch.cuda.is_available() is False:
        return None
    from cupy.cuda import function
    if text:
        module = function.Module()
        module.load(text)
"""


def test_a_method_of_an_object_that_only_cuda_has_is_no_call_for_other_accelerators() -> None:
    found = convert_source(f"import torch\n{COMPILED}", "a.py").findings
    assert [each.severity for each in found if each.code == "IM110"] == [Severity.NONE]


def test_a_device_beside_a_named_library_of_collectives_is_left() -> None:
    source = 'comm = new_comm("mccl", device=torch.device("cuda"))\n'
    assert _converted(source) == f"import torch\n{source}"
