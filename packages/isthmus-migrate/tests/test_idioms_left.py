"""Idioms of public projects that a conversion leaves as they are or lists, each by a small source of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert import project
from isthmus_migrate.source.findings import Severity
from tests.helpers.conversion import convert, ends


@pytest.mark.parametrize(
    ("source", "code", "end"),
    [
        ("if torch.cuda.is_available():\n    g = torch.cuda.CUDAGraph()\n", "IM110", Severity.NONE),
        (
            "ok = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)\n",
            "IM110",
            Severity.NONE,
        ),
        (
            '@torch.library.custom_op("m::f", mutates_args=(), device_types="cuda")\ndef f(x): ...\n',
            "IM102",
            Severity.NONE,
        ),
        (
            "given = {}\nfor key, value in rows:\n    given[key] = value\nother.Report(**given)\n"
            'rows = [("label", "cuda")]\n',
            "IM102",
            Severity.REVIEW,
        ),
        (
            "from contextlib import nullcontext\nif mixed:\n    scope = torch.autocast\nelse:\n"
            "    scope = nullcontext\nwith scope('cuda'):\n    step()\n",
            "IM118",
            Severity.REVIEW,
        ),
        ("def f(scope=torch.autocast):\n    with scope('cuda'):\n        step()\n", "IM118", Severity.REVIEW),
        ("y = torch._scaled_mm(a, b)\n", "IM191", Severity.MANUAL),
        ("torch.backends.cuda.enable_cudnn_sdp(False)\n", "IM191", Severity.NONE),
        (
            "import lightning\nwhere = 'cuda' if fast else 'cpu'\nlightning.Fabric(accelerator=where)\n",
            "IM102",
            Severity.REVIEW,
        ),
        (
            "import pytest\n@pytest.mark.parametrize('name', ['cpu', 'cuda'])\ndef test(name):\n    print(name)\n",
            "IM102",
            Severity.NONE,
        ),
        (
            "from torch._utils import _get_available_device_type\n"
            'kind = _get_available_device_type() or "cuda"\nx = torch.ones(2, device=kind)\n',
            "IM102",
            Severity.NONE,
        ),
        (
            'import unittest\n@unittest.skipUnless(torch.cuda.is_available(), "symmetric memory requires CUDA")\n'
            "class Test(unittest.TestCase): ...\n",
            "IM110",
            Severity.REVIEW,
        ),
        (
            'import unittest\n@unittest.skipIf(not torch.cuda.is_available(), "this test requires CUDA")\n'
            "class Test(unittest.TestCase): ...\n",
            "IM110",
            Severity.AUTOMATIC,
        ),
        (
            "def load(d):\n    cuda = torch.cuda.is_available() and d.type != 'cpu'\n"
            "    need('paddlepaddle-gpu' if cuda else 'paddlepaddle>=3.0.0')\n",
            "IM110",
            Severity.REVIEW,
        ),
        (
            "need(f\"tensorflow{'' if torch.cuda.is_available() else '-macos' if MAC else '-cpu'}<=2.15\")\n",
            "IM110",
            Severity.REVIEW,
        ),
        ("opt.half = torch.cuda.is_available() and opt.device != 'cpu'\n", "IM110", Severity.REVIEW),
        ("use = torch.cuda.is_available()\nn = 2 if use else 1\n", "IM110", Severity.AUTOMATIC),
        ("y = torch.ops.symm_mem.fused_all_gather_matmul(a, b, 0, g)\n", "IM191", Severity.MANUAL),
        (
            "from torch.distributed._symmetric_memory import _test_mode\n"
            "if torch.cuda.is_available():\n    with _test_mode():\n        f(x)\n",
            "IM110",
            Severity.NONE,
        ),
        (
            'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"\n'
            "def main():\n    torch.use_deterministic_algorithms(True)\n",
            "IM129",
            Severity.NONE,
        ),
        ('n = torch.cuda.get_device_properties("cuda").multi_processor_count\n', "IM115", Severity.REVIEW),
        ("torch.manual_seed(seed)\ntorch.cuda.manual_seed_all(seed)\n", "IM117", Severity.NONE),
        ('name = str(x.device).replace("cuda:", "")\n', "IM133", Severity.REVIEW),
        (
            "from torch.utils.cpp_extension import load\n\n\n"
            "def plugin():\n    return load('k', sources=['k.cu'])\n\n\n"
            "def op(x):\n    if x.device.type == 'cuda' and plugin():\n        return plugin()(x)\n    return x\n",
            "IM119",
            Severity.NONE,
        ),
        (
            "import triton\n\n\nclass R(torch.autograd.Function):\n    @staticmethod\n"
            "    def forward(ctx, x):\n        return triton.cdiv(x, 2)\n\n\n"
            "def f(x):\n    return R.apply(x) if x.is_cuda else x\n",
            "IM119",
            Severity.NONE,
        ),
        (
            "import unittest\n\n\n@unittest.skipUnless(torch.cuda.is_available(), 'CUDA graphs')\n"
            "def test():\n    torch.cuda.CUDAGraph()\n",
            "IM110",
            Severity.NONE,
        ),
        (
            "try:\n    from apex.normalization import FusedRMSNorm as Norm\nexcept ImportError:\n"
            "    from own import Norm\nlayer = Norm(8)\n",
            "IM232",
            Severity.NONE,
        ),
        (
            'def f(a):\n    device = torch.device("cuda" if a else "cpu")\n'
            '    device = torch.device("xpu" if a else "cpu")\n    return device\n',
            "IM106",
            Severity.REVIEW,
        ),
        (
            'def load(x, device="cuda"):\n    return x\n\n\nload(1, device="invalid")\n',
            "IM102",
            Severity.REVIEW,
        ),
        (  # a required parameter that its method ignores
            "class Single:\n    def wrap(self, model, backend):\n        return model\n\n\n"
            'Single().wrap(1, "nccl")\n',
            "IM201",
            Severity.NONE,
        ),
        (
            "class Base:\n    def wrap(self, model, backend):\n        raise NotImplementedError\n\n\n"
            'Base().wrap(1, "nccl")\n',
            "IM201",
            Severity.REVIEW,
        ),
    ],
)
def test_what_stays(source: str, code: str, end: Severity) -> None:
    assert ends(source, code) == [end]


@pytest.mark.parametrize(
    ("source", "code", "end"),
    [
        ("library.f(torch.cuda.current_stream().cuda_stream)\n", "IM116", Severity.MANUAL),
        ("event = torch.cuda.Event()\nlibrary.f(event.cuda_event)\n", "IM116", Severity.MANUAL),
        (
            "def f(x):\n    if x.is_cuda:\n        library.f(torch.cuda.current_stream().cuda_stream)\n",
            "IM119",
            Severity.NONE,
        ),
        (
            "known = torch.cuda.get_device_properties(0)\nprint(known.multi_processor_count)\n",
            "IM115",
            Severity.REVIEW,
        ),
        ("known = torch.cuda.get_device_properties(0)\nprint(known.name)\n", "IM115", Severity.AUTOMATIC),
    ],
)
def test_a_call_whose_result_gives_what_only_cuda_has_stays(source: str, code: str, end: Severity) -> None:
    assert ends(source, code) == [end]


def test_a_string_under_a_key_that_names_a_device_is_listed() -> None:
    source = 'def fill(given):\n    for key, value in {"device": "cuda", "n": "one"}.items():\n'
    found = convert(f"{source}        given.setdefault(key, value)\n").findings
    assert [(each.code, each.severity, each.message) for each in found] == [
        ("IM102", Severity.REVIEW, 'may be a device: kept under "device", whose use is not shown')
    ]


def test_what_is_printed_is_not_compared() -> None:
    source = 'import library\nkind = "cuda"\nlibrary.run(kind)\nprint(kind, torch.zeros(2).device)\n'
    assert ends(source, "IM102") == [Severity.REVIEW]


def test_a_device_that_is_read_before_it_is_set_again_is_not_overwritten() -> None:
    assert ends('device = "cuda"\ndevice = torch.device(device)\nx.to(device)\n', "IM106") == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("plugin(sources=['a.cpp', 'a.cu'])\n", "is passed a.cu, to build for CUDA"),
        ("plugin('a', extra_cuda_cflags=[])\n", "is passed CUDA sources, to build for CUDA"),
        (
            "import torch.utils.cpp_extension\n\n\ndef plugin(sources):\n"
            "    torch.utils.cpp_extension.load(name='a', sources=sources)\n",
            "builds sources that it is given",
        ),
        (
            "import torch.utils.cpp_extension\ntorch.utils.cpp_extension.load(name='a', sources=['a.cpp'])\n",
            "builds C++ sources",
        ),
    ],
)
def test_sources_of_extensions_are_followed_to_the_call_that_names_them(
    tmp_path: Path, source: str, said: str
) -> None:
    (tmp_path / "build.py").write_text(f"import torch\n{source}")
    (found,) = next(project.convert(tmp_path, project.Request())).findings
    assert (found.code, found.message) == ("IM411", said)


MOCKED = """\
from unittest.mock import patch


def setup(backend, rank):
    torch.distributed.init_process_group(backend=backend, rank=rank)


@patch.object(torch.distributed, "init_process_group")
def test_mocked(mock):
    setup(backend="nccl", rank=1)
    mock.assert_called_once_with(backend="nccl", rank=1)


def test_plain():
    setup(backend="nccl", rank=1)


def test_replaced(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    x = torch.zeros(2, device="cuda")
"""


def test_equal_names_of_a_mocked_test_stay_together() -> None:
    result = convert(MOCKED)
    assert result.text.count('"nccl"') == 2
    assert 'device="cuda"' in result.text
    assert "backend=torch.distributed.get_default_backend_for_device(DEVICE), rank=1)" in result.text
    held = [each for each in result.findings if "test with mocks" in each.message]
    assert [(each.line, each.severity) for each in held] == [(11, Severity.REVIEW), (21, Severity.REVIEW)]
    (mock,) = [each for each in result.findings if each.code == "IM199"]
    assert "replace torch.accelerator.is_available and its DEVICE" in mock.advice


def test_a_mock_of_a_name_by_the_path_of_a_module_is_listed() -> None:
    source = (
        'from unittest import mock\n\n\n@mock.patch("own.torch.cuda.device_count", return_value=2)\n'
        "def test(count): ...\n"
    )
    (found,) = convert(source).findings
    assert (found.code, found.severity) == ("IM199", Severity.REVIEW)
    (both,) = convert('monkeypatch.setattr("torch.cuda.set_device", int)\n').findings
    assert ".set_device or torch.accelerator.set_device_index and its DEVICE" in both.advice
    assert "torch.accelerator.device_count" in found.advice
