"""Idioms of public projects that a conversion once got wrong, each by a small source of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.migrate.convert import project
from isthmus.migrate.convert.engine import Result, convert_source
from isthmus.migrate.source.findings import Severity


def _convert(source: str) -> Result:
    return convert_source(f"import torch\n{source}", "a.py")


def _ends(source: str, code: str) -> list[Severity]:
    return [each.severity for each in _convert(source).findings if each.code == code]


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ('x = torch.empty(*shape, device="cuda")\n', "torch.empty(*shape, device=DEVICE.type)"),
        ("y = torch.cuda.ByteTensor(n)\n", "torch.ByteTensor(n).to(DEVICE)"),
        (
            "import torch.distributed as dist\nif dist.get_backend() == 'nccl':\n    f()\n",
            "== dist.get_default_backend_for_device(DEVICE) != 'gloo':",
        ),
        (
            'class T:\n    def test(self):\n        self.assertEqual(x.device.type, "cuda")\n',
            "self.assertEqual(x.device.type, DEVICE.type)",
        ),
        (
            "if torch.cuda.is_available():\n    a()\nelif torch.xpu.is_available():\n    b()\n",
            'if DEVICE.type not in ("cpu", "xpu"):',
        ),
        (
            "def f(x):\n  torch.cuda.empty_cache()\n",
            "  if torch.accelerator.is_available():\n    torch.accelerator.empty_cache()\n",
        ),
        (
            "from torch.profiler import ProfilerActivity as A, profile\n"
            "profile(activities=[\n    A.CPU,  # host\n    A.CUDA,  # device\n])\n",
            "    A.CPU,  # host\n    *(torch.profiler.supported_activities() - {A.CPU}),  # device\n])\n",
        ),
        (
            "from torch.profiler import profile, ProfilerActivity as A\n"
            "profile(activities=[A.CPU, A.CUDA])\n",
            "from torch.profiler import profile\nprofile(activities=torch.profiler.supported_activities())\n",
        ),
        (
            "import pytest\n@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=slow)])\n"
            "def test(device):\n    torch.zeros(2, device=device)\n",
            "pytest.param(DEVICE.type, marks=slow)",
        ),
        (
            "import pytest\n@pytest.mark.parametrize(('n', 'where'), [(1, 'cpu'), (2, 'cuda:1')])\n"
            "class TestMove:\n    def test(self, n, where):\n        torch.zeros(n).to(where)\n",
            "(2, f'{DEVICE.type}:1')",
        ),
        (
            "import pytest\n@pytest.fixture(params=['cpu', 'cuda'])\ndef where(request):\n"
            "    yield request.param\ndef test(where):\n    torch.zeros(2).to(where)\n",
            "params=['cpu', DEVICE.type]",
        ),
        (
            "from contextlib import nullcontext\nscope = torch.autocast if mixed else nullcontext\n"
            "with scope('cuda'):\n    step()\n",
            "with scope(DEVICE.type):",
        ),
        (
            "def new(where):\n    return torch.zeros(2).to(where)\ndef old(where):\n    pass\n"
            "def both(flag):\n    make = new if flag else old\n    make(where='cuda')\n",
            "make(where=DEVICE.type)",
        ),
        (
            "class A:\n    @property\n    def kind(self):\n        return 'cuda'\n"
            "    def make(self):\n        return torch.zeros(2, device=self.kind)\n",
            "return DEVICE.type",
        ),
        (
            "def places(model):\n    return {k: str(v.device) for k, v in model.named_parameters()}\n"
            "assert places(model) == {'weight': 'cuda:0'}\n",
            "{'weight': f'{DEVICE.type}:0'}",
        ),
        ("model.cuda(config.LOCAL_RANK)\n", "model.to(torch.device(DEVICE.type, config.LOCAL_RANK))"),
        (
            "with torch.autocast('cuda', enabled=torch.cuda.is_available()):\n    step()\n",
            "with torch.autocast(DEVICE.type, enabled=torch.accelerator.is_available()):",
        ),
        (  # a name that the parameter hides
            "import torch.distributed as dist\ndef f(dist):\n    torch.distributed.init_process_group('nccl')\n",
            "    torch.distributed.init_process_group(torch.distributed.get_default_backend_for_device(DEVICE))",
        ),
        (  # the step of the block, not that of a text or of another block
            '"""Layout:\n  text\n"""\ndef f():\n    torch.cuda.empty_cache()\ndef g():\n  pass\n',
            "    if torch.accelerator.is_available():\n        torch.accelerator.empty_cache()\n",
        ),
        (
            "match x:\n    case 1:\n        torch.cuda.empty_cache()\n",
            "        if torch.accelerator.is_available():\n            torch.accelerator.empty_cache()\n",
        ),
    ],
)
def test_what_is_converted(source: str, converted: str) -> None:
    assert converted in _convert(source).text


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
            'os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"\ntorch.use_deterministic_algorithms(True)\n',
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
    assert _ends(source, code) == [end]


_CHOICES = [
    'import library\nlibrary.run(device="cuda" if torch.cuda.is_available() else "cpu")\n',
    'import library\nif torch.cuda.is_available():\n    name = "cuda"\nelse:\n    name = "cpu"\nlibrary.run(name)\n',
    "import library\nuse_cuda = torch.cuda.is_available()\n"
    'name = "cuda" if use_cuda else "cpu"\nlibrary.run(name)\n',
    "import library\n\n\ndef run(x):\n    "
    'kind = "cuda" if x.device.type == "cuda" else "cpu"\n    library.run(kind)\n',
    'import library\nlibrary.run("cuda" if x.is_cuda else "cpu")\n',
]


@pytest.mark.parametrize("source", _CHOICES)
def test_a_test_for_cuda_stays_with_the_string_that_it_decides_for(source: str) -> None:
    result = _convert(source)
    assert result.text == f"import torch\n{source}"
    tests = [each for each in result.findings if each.code in ("IM110", "IM119")]
    assert [each.severity for each in tests] == [Severity.REVIEW]
    assert 'decides for "cuda" in line' in tests[0].message


def test_a_test_for_cuda_stays_with_the_word_that_it_decides_for() -> None:
    source = 'print("built for", "cuda" if torch.cuda.is_available() else "cpu")\n'
    assert _ends(source, "IM110") == [Severity.NONE]
    said = 'if torch.cuda.is_available():\n    print("cuda")\n    x = torch.zeros(2).cuda()\n'
    assert _ends(said, "IM110") == [Severity.AUTOMATIC]


def test_what_is_printed_is_not_compared() -> None:
    source = 'import library\nkind = "cuda"\nlibrary.run(kind)\nprint(kind, torch.zeros(2).device)\n'
    assert _ends(source, "IM102") == [Severity.REVIEW]


def test_a_string_and_the_comparisons_of_its_variable_change_together() -> None:
    source = 'kind = "cuda"\nif x.device.type == kind:\n    f()\nif kind == "cuda":\n    g()\n'
    assert set(_ends(source, "IM102") + _ends(source, "IM119")) == {Severity.AUTOMATIC}


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        (
            "def f(opt):\n    if opt.cuda:\n        torch.cuda.empty_cache()\n",
            "if torch.accelerator.is_available():",
        ),
        (
            "def f(use_cuda):\n    n = torch.cuda.memory_allocated() if use_cuda else 1\n",
            "is_available() else 0",
        ),
        (
            "cuda = torch.cuda.is_available()\nif cuda:\n    torch.cuda.empty_cache()\n",
            "if cuda:\n    torch.acc",
        ),
        (
            "def f(args):\n    args.cuda = not args.no_cuda and torch.cuda.is_available()\n"
            "    if args.cuda:\n        torch.cuda.empty_cache()\n",
            "    if args.cuda:\n        torch.acc",
        ),
        (
            "has = torch.cuda.is_available()\non = False\nif has:\n    on = True\n"
            "if on:\n    torch.cuda.empty_cache()\n",
            "if on:\n    torch.acc",
        ),
    ],
)
def test_a_condition_guards_by_what_its_variable_holds_not_by_its_name(source: str, becomes: str) -> None:
    assert becomes in _convert(source).text


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
    assert _ends(source, code) == [end]


def test_a_string_under_a_key_that_names_a_device_is_listed() -> None:
    source = 'def fill(given):\n    for key, value in {"device": "cuda", "n": "one"}.items():\n'
    found = _convert(f"{source}        given.setdefault(key, value)\n").findings
    assert [(each.code, each.severity, each.message) for each in found] == [
        ("IM102", Severity.REVIEW, 'may be a device: kept under "device", whose use is not shown')
    ]


def test_an_option_reaches_the_functions_of_other_files_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "opts.py").write_text(
        'import torch\n\n\ndef add(parser):\n    parser.add("--gpu_backend", default="nccl")\n'
    )
    (tmp_path / "run.py").write_text(
        "import torch\n\n\ndef start(opt):\n    torch.distributed.init_process_group(backend=opt.gpu_backend)\n"
    )
    (converted,) = project.convert(tmp_path, project.Request())
    assert b"default=torch.distributed.get_default_backend_for_device(DEVICE)" in converted.after
    (tmp_path / "model.py").write_text(
        "class Model:\n    def __init__(self):\n        self.gpu_backend = 'fast'\n"
    )
    (left,) = project.convert(tmp_path, project.Request())
    assert [each.severity for each in left.findings] == [Severity.REVIEW]


@pytest.mark.parametrize(
    ("source", "becomes"),
    [
        (
            "def f(size=8):\n    return torch.cuda.ByteTensor(size)\n",
            "torch.empty(size, dtype=torch.uint8, device=DEVICE)",
        ),
        ("def f(m, x):\n    weight = m.weight\n    x.cuda(weight.device)\n", "x.to(weight.device)"),
    ],
)
def test_a_size_and_the_device_of_a_parameter_need_no_test(source: str, becomes: str) -> None:
    assert becomes in _convert(source).text


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


def test_a_function_that_asks_nvidia_smi_keeps_its_test_for_cuda() -> None:
    source = (
        "import subprocess\n\n\ndef links():\n    subprocess.run(['nvidia-smi', 'topo', '-m'])\n\n\n"
        "if torch.cuda.is_available():\n    links()\n"
    )
    assert _ends(source, "IM110") == [Severity.NONE]


def test_a_test_for_cuda_before_calls_of_both_kinds_is_listed() -> None:
    source = (
        "import subprocess\n\n\ndef links():\n    subprocess.run(['nvidia-smi', 'topo', '-m'])\n\n\n"
        "def f(fabric):\n    if torch.cuda.is_available():\n        links()\n        fabric.launch()\n"
    )
    assert _ends(source, "IM110") == [Severity.REVIEW]


def test_a_device_that_is_read_before_it_is_set_again_is_not_overwritten() -> None:
    assert _ends('device = "cuda"\ndevice = torch.device(device)\nx.to(device)\n', "IM106") == []


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
    result = _convert(MOCKED)
    assert result.text.count('"nccl"') == 2
    assert 'device="cuda"' in result.text
    assert "backend=torch.distributed.get_default_backend_for_device(DEVICE), rank=1)" in result.text
    held = [each for each in result.findings if "test with mocks" in each.message]
    assert [(each.line, each.severity) for each in held] == [(11, Severity.REVIEW), (21, Severity.REVIEW)]
    (mock,) = [each for each in result.findings if each.code == "IM199"]
    assert "replace torch.accelerator.is_available and its DEVICE" in mock.advice


@pytest.mark.parametrize(
    ("uses", "converted"),
    [
        ("torch.cuda.set_device(c.LOCAL)\n", True),
        ("m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[c.LOCAL])\n", True),
        ("", False),
    ],
)
def test_what_is_set_as_the_device_of_the_rank_is_an_index(uses: str, converted: bool) -> None:
    result = _convert(f"def f(m, c):\n    m.cuda(c.LOCAL)\n\n\ndef g(m, c):\n    {uses or 'pass'}\n")
    assert ("m.to(torch.device(DEVICE.type, c.LOCAL))" in result.text) == converted


def test_a_mock_of_a_name_by_the_path_of_a_module_is_listed() -> None:
    source = (
        'from unittest import mock\n\n\n@mock.patch("own.torch.cuda.device_count", return_value=2)\n'
        "def test(count): ...\n"
    )
    (found,) = _convert(source).findings
    assert (found.code, found.severity) == ("IM199", Severity.REVIEW)
    assert "torch.accelerator.device_count" in found.advice


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("    return triton.cdiv(x, 2)\n", Severity.NONE),
        ("    if fuse:\n        return triton.cdiv(x, 2)\n    return x\n", Severity.AUTOMATIC),
        ("    if not fuse:\n        return x\n    return triton.cdiv(x, 2)\n", Severity.AUTOMATIC),
        ("    return triton.cdiv(x, 2) if fuse else x\n", Severity.AUTOMATIC),
        ("    if fuse:\n        return first(x)\n    return triton.cdiv(x, 2)\n", Severity.NONE),
        (
            "    if fuse:\n        return triton.cdiv(x, 2)\n    else:\n        return triton.cdiv(x, 3)\n",
            Severity.NONE,
        ),
        (
            "    global made\n    if made is None:\n        made = triton.jit(x)\n    return made(x)\n",
            Severity.NONE,
        ),
        ("    return x + 1 if torch.version.hip else x\n", Severity.AUTOMATIC),
    ],
)
def test_a_test_in_front_of_a_function_that_may_use_what_only_cuda_has(body: str, end: Severity) -> None:
    source = (
        f"import triton\n\n\ndef op(x, fuse):\n{body}\n\nif torch.cuda.is_available():\n    op(x, fuse)\n"
    )
    assert _ends(source, "IM110") == [end]


def test_the_default_of_an_option_that_is_evaluated_where_a_job_is_submitted(tmp_path: Path) -> None:
    main = (
        "import argparse\n\nimport torch\n\n\ndef options():\n    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--device", default="cuda")\n    return parser\n\n\n'
        "def main(args):\n    return torch.ones(2, device=args.device)\n\n\nmain(options().parse_args())\n"
    )
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "job.py").write_text("import submitit\n\nimport main\n\nargs = main.options().parse_args()\n")
    (converted,) = project.convert(tmp_path, project.Request())
    assert converted.after.decode() == main
    assert [each.severity for each in converted.findings if each.code == "IM102"] == [Severity.REVIEW]
    (tmp_path / "job.py").write_text("import main\n\nargs = main.options().parse_args()\n")
    (converted,) = project.convert(tmp_path, project.Request())
    assert "default=DEVICE.type" in converted.after.decode()
