"""Idioms of public projects and what they become, each by a small source of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus_migrate.convert import project
from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import Severity
from tests.helpers.conversion import convert


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ('x = torch.empty(*shape, device="cuda")\n', "torch.empty(*shape, device=DEVICE.type)"),
        ("y = torch.cuda.ByteTensor(n)\n", "torch.ByteTensor(n).to(DEVICE)"),
        (
            "import torch.distributed as dist\nif dist.get_backend() == 'nccl':\n    f()\n",
            "if dist.get_backend() != 'gloo':",
        ),
        ('a = f and "cuda" in str(args[0].device)\n', 'a = f and args[0].device.type != "cpu"\n'),
        ('x.shape\na = "cuda" not in str(x.device)\n', 'a = x.device.type == "cpu"\n'),
        ('a = "cuda" in str(args.device)\n', 'DEVICE.type in str(args.device) and DEVICE.type != "cpu"\n'),
        (
            "import torch.distributed as dist\nn = ['mpi']\nif dist.get_backend() != 'nccl':\n    f()\n",
            "if dist.get_backend() in ('gloo', 'mpi'):",
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
            "scope = torch.autocast if mixed and DEVICE.type != 'cpu' else nullcontext\nwith scope(DEVICE.type):",
        ),
        (
            "from contextlib import nullcontext\nscope = nullcontext if full else torch.autocast\n"
            "with scope(device_type='cuda'):\n    step()\n",
            "nullcontext if full or DEVICE.type == 'cpu' else torch.autocast\nwith scope(device_type=DEVICE.type):",
        ),
        (
            "scope = torch.autocast\nwith scope('cuda', enabled=mixed):\n    step()\n",
            "with scope(DEVICE.type, enabled=mixed and DEVICE.type != 'cpu'):",
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
        (
            "import torch.distributed as dist\nassert torch.cuda.is_available()\n"
            "dist.init_process_group(backend='cuda:nccl,cpu:gloo')\n",
            "backend=f'{DEVICE.type}:{dist.get_default_backend_for_device(DEVICE)},cpu:gloo')\n",
        ),
        (
            "def keep(x):\n    if x.device != torch.device('cuda'):\n        x = x.to(torch.device('cuda'))\n",
            "    if x.device != DEVICE:\n        x = x.to(DEVICE)\n",
        ),
        (
            "def keep(x):\n    if x.device != torch.device('cuda'):\n        print(x)\n",
            "    if x.device != DEVICE or x.device.type == 'cpu':\n",
        ),
        (
            "n = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count\n",
            "torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count",
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
    assert converted in convert(source).text


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
    assert becomes in convert(source).text


@pytest.mark.parametrize(
    ("uses", "converted"),
    [
        ("torch.cuda.set_device(c.LOCAL)\n", True),
        ("m = torch.nn.parallel.DistributedDataParallel(m, device_ids=[c.LOCAL])\n", True),
        ("", False),
    ],
)
def test_what_is_set_as_the_device_of_the_rank_is_an_index(uses: str, converted: bool) -> None:
    result = convert(f"def f(m, c):\n    m.cuda(c.LOCAL)\n\n\ndef g(m, c):\n    {uses or 'pass'}\n")
    assert ("m.to(torch.device(DEVICE.type, c.LOCAL))" in result.text) == converted


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        (
            'assert all(p.device.type == "cuda" for p in ps)',
            "assert all(p.device.type == DEVICE.type for p in ps)",
        ),
        (
            "assert x.is_cuda and y.is_cuda",
            "assert x.device.type == DEVICE.type and y.device.type == DEVICE.type",
        ),
        ("assert not x.is_cuda", 'assert x.device.type == "cpu"'),
        ('assert x.device.type != "cuda"', 'assert x.device.type == "cpu"'),
        ("self.assertTrue(x.is_cuda)", "self.assertTrue(x.device.type == DEVICE.type)"),
        ('assert "cuda" in str(x.device)', "assert DEVICE.type in str(x.device)"),
        ('assert x.device == torch.device("cuda")', "assert x.device == DEVICE"),
        ('assert x.device.type == "cuda", x == (y.device.type == "cuda")', 'x == (y.device.type != "cpu")'),
    ],
)
def test_an_assertion_requires_the_device_in_use(source: str, converted: str) -> None:
    text = convert(f"{source}\n").text
    assert converted in text
    assert convert_source(text, "a.py").text == text


_NAMES_MPS = 'def g(device):\n    return device.type == "mps" or device.type == "meta"\n'


@pytest.mark.parametrize(
    ("body", "converted"),
    [
        ('if x.device.type == "cuda":\n        a()', 'if x.device.type != "cpu":'),
        (
            'if x.device.type == "cuda":\n        a()\n    elif x.device.type == "mps":\n        b()',
            '("cpu", "mps"):',
        ),
        ('if x.device.type != "cuda":\n        raise ValueError', 'if x.device.type in ("cpu", "meta"):'),
        (
            'if x.device.type == "cuda":\n        torch.cuda.manual_seed_all(1)',
            'if x.device.type not in ("cpu", "mps"):\n        torch.get_device_module(DEVICE).manual_seed_all(1)\n',
        ),
        (
            'use = x.device.type == "cuda" and x.n\n    if use:\n        torch.cuda.manual_seed_all(1)',
            'use = x.device.type not in ("cpu", "mps") and x.n\n    if use:\n        torch.get_device_module',
        ),
    ],
)
def test_a_type_stays_apart_where_its_function_or_the_branch_says_so(body: str, converted: str) -> None:
    text = convert(f"{_NAMES_MPS}def f(x):\n    {body}\n").text
    assert converted in text
    assert convert_source(text, "a.py").text == text


def test_a_project_that_knows_mps_does_not_ask_it_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "known.py").write_text(f"import torch\n{_NAMES_MPS}", encoding="utf-8")
    asks = "import torch\nif torch.cuda.is_available():\n    a = torch.cuda.is_bf16_supported()\n"
    (tmp_path / "asks.py").write_text(asks, encoding="utf-8")
    (converted,) = project.convert(tmp_path, project.Request())
    assert b'if DEVICE.type not in ("cpu", "mps"):' in converted.after


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
