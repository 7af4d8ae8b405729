"""Tests for an accelerator that imply, guard or refuse something: skips of tests, counts, callers and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert import project
from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity

SKIPPED = """import unittest
import torch

def _measure():
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.max_memory_allocated()

{skip}
class TestMemory(unittest.TestCase):
    def test(self):
        torch.cuda.empty_cache()
        assert _measure() == 0
"""


def _text(source: str, name: str = "test_a.py") -> str:
    text = convert_source(source, name).text
    assert convert_source(text, name).text == text
    return text


def _project(root: Path, **sources: str) -> dict[str, project.Conversion]:
    for name, source in sources.items():
        (root / f"{name}.py").write_text(source)
    found = project.convert(root, project.Request(), processes=1)
    return {each.name.removesuffix(".py"): each for each in found}


@pytest.mark.parametrize(
    "skip",
    [
        '@unittest.skipIf(not torch.cuda.is_available(), "no GPU")',
        '@unittest.skipUnless(torch.cuda.is_available(), "no GPU")',
        '@unittest.skipIf(torch.cuda.device_count() < 2, "two GPUs")',
        "@unittest.skipUnless(torch.cuda.device_count() > 0 and True, reason='a GPU')",
    ],
)
def test_what_a_skip_guards_needs_no_test_for_the_cpu(skip: str) -> None:
    text = _text(SKIPPED.format(skip=skip))
    assert "    torch.accelerator.reset_peak_memory_stats()\n" in text
    assert "        torch.accelerator.empty_cache()\n        assert" in text
    assert text.count("is_available()") == skip.count("is_available()") + text.count("check_available")


@pytest.mark.parametrize("skip", ["", '@unittest.skipIf(torch.cuda.is_available(), "CPU only")'])
def test_what_no_skip_guards_is_tested(skip: str) -> None:
    assert "if torch.accelerator.is_available():\n            torch.accelerator.empty_cache()" in _text(
        SKIPPED.format(skip=skip)
    )


@pytest.mark.parametrize("leave", ['self.skipTest("no GPU")', 'pytest.skip("no GPU")', "return"])
def test_a_test_that_leaves_is_one_for_what_follows(leave: str) -> None:
    text = _text(
        "import pytest, torch\n\nclass T:\n    def test(self):\n        if not torch.cuda.is_available():\n"
        f"            {leave}\n        torch.cuda.empty_cache()\n"
    )
    assert "\n        torch.accelerator.empty_cache()\n" in text


TRAINER = """import torch

def capture():
    return torch.cuda.CUDAGraph()

class Trainer:
    def __init__(self, config):
        self.config = config

    def step(self):
        if self.config.graphs:
            return capture()
        return None

def run(config):
    return Trainer(config).step()
"""
TEST = """import unittest
import torch
import trainer

@unittest.skipUnless(torch.cuda.is_available(), "CUDA required")
class TestTrainer(unittest.TestCase):
    def test(self):
        assert trainer.run(object()) is None
"""


def test_a_skip_before_code_that_may_run_a_graph_two_calls_away_is_left(tmp_path: Path) -> None:
    found = _project(tmp_path, trainer=TRAINER, test_trainer=TEST)["test_trainer"]
    (test,) = (each for each in found.findings if each.code == "IM110")
    assert test.severity is Severity.REVIEW
    assert test.message == "skips tests of run, which may run code that not every device has"
    assert found.after == TEST.encode()


def test_a_program_with_a_branch_for_graphs_stays_portable(tmp_path: Path) -> None:
    main = "import torch\nimport trainer\n\nif torch.cuda.is_available():\n    trainer.run(object())\n"
    after = _project(tmp_path, trainer=TRAINER, main=main)["main"].after
    assert b"if torch.accelerator.is_available():" in after


def test_a_graph_behind_calls_of_methods_makes_a_class_one_for_cuda(tmp_path: Path) -> None:
    always = TRAINER.replace("        self.config = config\n", "        self._start()\n").replace(
        "    def step(self):\n        if self.config.graphs:\n            return capture()\n",
        "    def _start(self):\n        self._record()\n\n    def _record(self):\n        capture()\n\n"
        "    def step(self):\n",
    )
    main = "import torch\nimport trainer\n\nif torch.cuda.is_available():\n    trainer.Trainer(object())\n"
    assert _project(tmp_path, trainer=always, main=main)["main"].after == main.encode()


RANK = 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--local_rank", default=0, type=int)\n'
SETUP = 'import os\n\ndef setup(args):\n    args.gpu = int(os.environ["LOCAL_RANK"])\n    print({})\n'


@pytest.mark.parametrize(
    ("read", "end"), [("args.gpu", Severity.NONE), ("args.local_rank", Severity.AUTOMATIC)]
)
def test_a_local_rank_that_nothing_reads_keeps_its_default(tmp_path: Path, read: str, end: Severity) -> None:
    main = f"{RANK}import torch\nimport tools\ntools.setup(p.parse_args())\n"
    findings = _project(tmp_path, main=main, tools=SETUP.format(read))["main"].findings
    assert [each.severity for each in findings if each.code == "IM221"] == [end]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    return torch.cuda.is_available() and g()\n\ndef g():\n    return f()\n",
        "def f(b):\n    a = torch.cuda.is_available() and b\n    a = a and b\n    return a\n",
        "a = torch.cuda.is_available() and b\nb = a\n",
    ],
)
def test_tests_that_lead_to_each_other_are_followed_once(source: str) -> None:
    assert "torch.accelerator.is_available()" in _text(f"import torch\n{source}")


def test_a_group_of_one_accelerator_is_demanded_of_what_precedes_it_in_its_block() -> None:
    start = "import torch\nimport torch.distributed as dist\ndevice = torch.device('cuda', 0)\n"
    join = "dist.init_process_group(backend='nccl', device_id=device)\n"
    demanded = _text(f"{start}torch.cuda.set_device(device)\n{join}")
    left_before = _text(f"{start}torch.cuda.set_device(device)\nif x:\n    exit()\n{join}")
    assert "\ntorch.accelerator.set_device_index(device)\n" in demanded
    assert (
        "if torch.accelerator.is_available():\n    torch.accelerator.set_device_index(device)" in left_before
    )


def test_a_device_equal_to_the_one_in_use_is_an_accelerator() -> None:
    text = _text("import torch\nif device == torch.device('cuda'):\n    torch.cuda.set_device(0)\n")
    assert text.endswith("\n    torch.accelerator.set_device_index(0)\n")


def test_a_test_that_a_mock_replaces_is_asked_at_run_time(tmp_path: Path) -> None:
    tool = "import torch\ndef size():\n    if torch.cuda.is_available():\n"
    tool += "        return torch.cuda.get_device_properties(0).total_memory\n"
    test = "from unittest import mock\nimport torch\nimport tool\ndef test():\n"
    test += '    with mock.patch("tool.torch.cuda.is_available", return_value=False):\n        tool.size()\n'
    found = _project(tmp_path, tool=tool, test_tool=test, other='x.to("mps")\n')
    asked = 'if torch.accelerator.is_available() and DEVICE.type != "mps":'
    assert asked in found["tool"].after.decode().replace("'", '"')
    assert "tool.torch.accelerator.is_available" in found["test_tool"].after.decode()


def test_the_device_of_a_barrier_is_named_to_nccl_only() -> None:
    source = "import torch.distributed as dist\nif dist.get_backend() == 'nccl':\n"
    source += "    dist.barrier(device_ids=[device.index])\nelse:\n    dist.barrier()\n"
    assert _text(source) == source
