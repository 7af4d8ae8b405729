"""Code around CUDA graphs, kernels and engines stays with them; what is around that is converted."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert.engine import Result
from isthmus_migrate.convert.project import Request, convert
from isthmus_migrate.rules.cuda_only_file import verdict
from isthmus_migrate.source.findings import Severity
from tests.helpers import conversion

GRAPH = """
def main(graphed, model):
    model = model.cuda()
    if graphed:
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
"""
LAUNCH = """
import triton


@triton.jit
def kernel(x):
    pass


def launch(x):
    y = torch.empty(4, device="cuda")
    kernel[(1,)](x, y)
    return y
"""


def _regions(result: Result) -> list[tuple[str, int]]:
    return [(each.subject, each.line) for each in result.findings if each.code == "IM192"]


def test_a_branch_that_captures_a_graph_stays_and_the_rest_of_the_function_is_converted():
    result = conversion.convert(GRAPH)
    assert "model.to(DEVICE)" in result.text
    assert "        stream = torch.cuda.Stream()\n        torch.cuda.synchronize()\n" in result.text
    assert result.text.endswith("    torch.get_device_module(DEVICE).synchronize()\n")
    assert _regions(result) == [("a block of main", 6)]
    kept = [each for each in result.findings if "torch.cuda.CUDAGraph, line 8" in each.message]
    assert [each.severity for each in kept] == [Severity.MANUAL, Severity.NONE, Severity.NONE]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (LAUNCH, "launch"),
        (
            "class GraphOfCUDA:\n    def __init__(self):\n        self.stream = torch.cuda.Stream()\n"
            "    def __call__(self):\n        self.graph = torch.cuda.CUDAGraph()\n",
            "GraphOfCUDA",
        ),
        (
            "class Runner:\n    def __init__(self):\n        self.graph = torch.cuda.CUDAGraph()\n"
            "    def warm_up(self):\n        torch.cuda.synchronize()\n",
            "Runner",
        ),
        (
            "def load(device):\n    import tensorrt as trt\n    log = trt.Logger()\n"
            '    return torch.device("cuda:0")\n',
            "load",
        ),
        (
            "def step(x):\n    f(args=[x.data_ptr()], grid=(1, 1, 1), block=(8, 1, 1))\n"
            '    return torch.zeros(1, device="cuda")\n',
            "step",
        ),
        (
            "def run(x):\n    if run.graph is None:\n        run.graph = torch.cuda.CUDAGraph()\n"
            "    torch.cuda.synchronize()\n",
            "run",
        ),
        ("s = torch.cuda.Stream()\nwith torch.cuda.graph(g):\n    y = f(x)\n", "the top level"),
    ],
)
def test_what_stays_as_a_whole(source: str, name: str):
    result = conversion.convert(source)
    assert (result.changes, [subject.rpartition(" of ")[2] for subject, _ in _regions(result)]) == (
        [],
        [name],
    )


@pytest.mark.parametrize(
    "source",
    [
        # The function that is only called behind a test that stays, and what the test guards.
        "from torch.utils.cpp_extension import load\n\n\ndef _init():\n    return load('k', sources=['k.cu'])\n\n\n"
        "def _kernel(x):\n    torch.cuda.synchronize()\n    return x\n\n\n"
        "def op(x):\n    if x.device.type == 'cuda' and _init():\n        return _kernel(x)\n    return x\n",
        # A test in a function of its own.
        "def _asks(x):\n    if x.device.type != 'cuda':\n        return False\n    return True\n\n\n"
        "def op(x):\n    if _asks(x):\n        torch.cuda.CUDAGraph()\n    return x\n",
        f'{LAUNCH}\n\nimport unittest\n@unittest.skipUnless(torch.cuda.is_available(), "no CUDA")\n'
        'def test():\n    launch(torch.empty(1, device="cuda"))\n',
        # A variable that holds the test, and a word for the build of a package for CUDA.
        "def providers():\n    cuda = torch.cuda.is_available()\n"
        '    return ["CUDAExecutionProvider"] if cuda else []\n',
        # A binding to the processors beside a GPU, and the kernels of another language.
        "def bind(index, device_type):\n    if device_type != 'cuda':\n        return\n"
        "    from torch.numa.binding import NumaOptions\n    NumaOptions()\n",
        "import helion\n\n\n@helion.kernel()\ndef kernel(x):\n    return x\n\n\n"
        "def _fits(x, y):\n    return x.is_cuda and y.is_cuda and x.ndim == 4\n\n\n"
        "def rope(x, y):\n    return kernel(x) if _fits(x, y) else x\n",
        # An activity that is appended, and a test that sets the device itself.
        "def activities():\n    found = []\n    if torch.cuda.is_available():\n"
        "        found.append(torch.profiler.ProfilerActivity.CUDA)\n",
        "def test(monkeypatch):\n    monkeypatch.setattr('config.device_type', 'cuda')\n"
        '    assert device() == torch.device("cuda:0")\n',
        # Fake tensors.
        "from torch._subclasses import FakeTensorMode\n\n\ndef f():\n    with FakeTensorMode():\n"
        '        return torch.empty(2, device="cuda")\n',
        '@torch.library.custom_op("m::f", mutates_args=(), device_types="cuda")\n'
        'def f(x: torch.Tensor) -> torch.Tensor:\n    return torch.empty(2, device="cuda")\n\n\n'
        '@f.register_fake\ndef _(x):\n    return torch.empty(2, device="cuda")\n',
    ],
)
def test_what_runs_on_cuda_only_stays(source: str):
    assert conversion.convert(source).changes == []


@pytest.mark.parametrize(
    "source",
    [
        # A fallback, an optional import, an annotation, and a return before the graph.
        "try:\n    import cupy\nexcept ImportError:\n    cupy = None\ntorch.cuda.synchronize()\n",
        "def f(g: torch.cuda.CUDAGraph):\n    torch.cuda.synchronize()\n",
        "def f(x):\n    torch.cuda.synchronize()\n    if x:\n        return\n    torch.cuda.CUDAGraph()\n",
        "class Trainer:\n    def __init__(self):\n        torch.cuda.synchronize()\n"
        "    def capture(self):\n        torch.cuda.CUDAGraph()\n",
        "def main():\n    torch.cuda.cudart().cudaProfilerStart()\n    torch.cuda.synchronize()\n",
    ],
)
def test_what_is_converted(source: str):
    assert [each.code for each in conversion.convert(source).changes] == ["IM112"]


def test_an_import_of_mixed_precision_stays_if_a_use_does():
    source = "from torch.cuda.amp import autocast\n\n\ndef f():\n    torch.cuda.CUDAGraph()\n    with autocast():\n"
    text = conversion.convert(
        f"{source}        pass\n\n\ndef g():\n    with autocast():\n        pass\n"
    ).text
    assert "from torch.cuda.amp import autocast\n" in text
    assert "    torch.cuda.CUDAGraph()\n    with autocast():" in text


def test_the_choice_of_nccl_by_its_availability_stays_a_choice():
    choice = '"nccl" if dist.is_nccl_available() else "gloo"'
    source = f"import torch.distributed as dist\ndist.init_process_group({choice})\n"
    default = "dist.get_default_backend_for_device(DEVICE)"
    chosen = f'{default} if DEVICE.type != "cuda" or dist.is_nccl_available() else "gloo"'
    converted = conversion.convert(source).text
    assert converted.endswith(f"init_process_group({chosen})\n")
    assert conversion.convert(converted).changes == []


def test_a_backend_beside_options_of_nccl_is_left():
    source = (
        "import torch.distributed as dist\noptions = dist.ProcessGroupNCCL.Options()\n"
        'dist.new_group([0], backend="nccl", pg_options=options)\n'
    )
    assert conversion.convert(source).changes == []


def test_the_verdict_names_files_that_run_such_code_in_any_case(tmp_path: Path):
    (tmp_path / "kernels.py").write_text(f"import torch\n{LAUNCH}")
    (tmp_path / "model.py").write_text(
        "import torch\nfrom kernels import launch\n\n\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        return launch(x)\n"
    )
    (tmp_path / "train.py").write_text(
        'import model\n\n\ndef main():\n    model.Net()\n\n\nif __name__ == "__main__":\n    main()\n'
    )
    (tmp_path / "other.py").write_text(
        "import torch\nimport kernels\n\n\n"
        "def f(x, fast):\n    return kernels.launch(x) if fast else x\n\n\nf(1, False)\n"
    )
    findings = [finding for each in convert(tmp_path, Request()) for finding in each.findings]
    assert verdict(findings) == "not convertible without porting code for CUDA: train.py (IM193)"
    (found,) = [each for each in findings if each.code == "IM193"]
    assert found.message.endswith(": main -> model.Net.forward -> kernels.launch -> kernels.kernel")
    assert verdict([]) == ""


def test_what_uses_an_extension_that_setup_py_builds_of_cuda_sources_stays(tmp_path: Path):
    (tmp_path / "setup.py").write_text(
        "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('window._C', ['window.cu'])\n"
    )
    (tmp_path / "use.py").write_text(
        "import torch\nfrom window import _C\n\n\n"
        "def roll(x):\n    torch.cuda.synchronize()\n    return _C.roll(x)\n\n\n"
        "def auto(x):\n    return roll(x) if x.is_cuda else x\n"
    )
    assert [each.changes for each in convert(tmp_path, Request()) if each.name == "use.py"] == [[]]


def test_kernels_that_are_only_defined_and_optional_ones_are_no_verdict():
    optional = "try:\n    import cupy\nexcept ImportError as error:\n    WHY = error\nelse:\n    WHY = None\n"
    source = f"{LAUNCH}\n\n{optional}if WHY is None:\n    SIZE = cupy.zeros(4)\nSIZES = triton.cdiv(4, 2)\n"
    assert not [each for each in conversion.convert(source).findings if each.code == "IM193"]
