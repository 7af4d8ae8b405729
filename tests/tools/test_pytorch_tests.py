"""PyTorch's own tests: copies with the chip's name, and the page of their results."""

from __future__ import annotations

import pytest

from tools.pytorch_tests.__main__ import renamed
from tools.pytorch_tests.device_tests import sampled
from tools.pytorch_tests.page import REASONS, page
from tools.suites import reason

ASARRAY = "TestAsArrayCHIP::test_alias_from_tensor_chip_float32: AssertionError: Booleans mismatch: True is not False"


@pytest.mark.parametrize(
    ("copy", "test"),
    [
        ("x = torch.ones(2).npu()", "x = torch.ones(2).chip()"),
        ("import torch_npu\nimport torch_npu.testing", "pass\npass"),
        ("if torch_npu.npu.is_available():", "if torch.chip.is_available():"),
        ("from torch_npu.testing.testcase import TestCase", "from testcase import TestCase"),
        ("input_cpu, inputs = 1, 2", "input_cpu, inputs = 1, 2"),
        (
            'if __name__ == "__main__":\n    instantiate_parametrized_tests(TestA)\n    run_tests()',
            "instantiate_parametrized_tests(TestA)",
        ),
    ],
)
def test_a_copy_has_the_chips_name(copy: str, test: str) -> None:
    assert renamed(copy) == test and renamed(test) == test


@pytest.mark.parametrize(
    ("message", "known"),
    [
        (ASARRAY, True),
        (ASARRAY.replace("test_alias_from_tensor", "test_copy_tensor"), False),
        ("TestA::test_a: AttributeError: module 'numpy' has no attribute 'msort'", True),
        ("TestA::test_a: AssertionError: Tensor-likes are not close!", False),
    ],
)
def test_a_reason_holds_for_its_tests_alone(message: str, known: bool) -> None:
    assert (reason(message, "failed", REASONS) in REASONS) == known


def test_failures_have_their_tests_name_and_skips_have_not() -> None:
    name = "test/test_a.py"
    tests = {
        f"{name}::TestA::test_a": ["passed", ""],
        f"{name}::TestA::test_b": ["failed", "RuntimeError: wrong"],
        f"{name}::TestAsArrayCHIP::test_alias_from_tensor_chip_float32": [
            "failed",
            ASARRAY.partition(": ")[2],
        ],
        f"{name}::TestA::test_c": ["skipped", "Only runs on cpu"],
    }
    text = page([{"ranks": 1, "file": name, "seconds": 1, "tests": tests}], [name, "test/test_b.py"], "abc")
    assert "1 of 2 files" in text
    assert f"| {name} | 4 | 1 | 2 | 1 | 0 | 0 | 50.0% |" in text
    assert "| `TestA::test_b: RuntimeError: wrong` | 1 |" in text
    assert "| `Only runs on cpu` | 1 |" in text


def test_a_sample_has_one_test_in_so_many_of_its_file() -> None:
    names = [f"TestA::test_{i}" for i in range(1000)]
    assert all(sampled(f"test/test_torch.py::{name}") for name in names)
    found = sum(sampled(f"test/test_sparse.py::{name}") for name in names)
    assert found == sum(sampled(f"test_sparse.py::{name}") for name in names)
    assert 150 < found < 250
