"""Strings that only look like devices are not changed; calls without a counterpart are reported."""

from __future__ import annotations

import pytest

from isthmus_migrate.convert.engine import convert_source
from isthmus_migrate.source.findings import LEFT, Severity


@pytest.mark.parametrize(
    "source",
    [
        '__all__ = ["cuda", "cpu"]\n',
        'class Times:\n    __slots__ = ("cuda",)\n',
        'from collections import namedtuple\n\nTimes = namedtuple("Times", ["cuda", "cpu"])\n',
    ],
)
def test_identifiers_stay(source: str) -> None:
    result = convert_source(source, "names.py")
    assert result.text == source
    assert {each.severity for each in result.findings} <= {Severity.NONE, Severity.REVIEW}


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (
            'import enum\nimport torch\n\n\nclass Kind(enum.Enum):\n    CUDA = "cuda"\n\n\n'
            "def f(kind: Kind):\n    torch.ones(2, device=kind.value)\n",
            "IM102",
        ),
        ('size = {"cuda": 1, "cpu": 2}[x.device.type]\n', "IM102"),
        ('match x.device.type:\n    case "cuda":\n        pass\n', "IM102"),
        ('import torch\n\nwith torch.cuda.nvtx.range("step {}", i):\n    pass\n', "IM121"),
        ('import torch\n\nwith torch.cuda.nvtx.range(msg="step"):\n    pass\n', "IM121"),
        ('def f(device=None):\n    return device == "cuda"\n', "IM119"),
        ('def f(device=None):\n    return "cuda" in str(device)\n', "IM119"),
        ('def f(device=None):\n    return str(device).startswith("cuda")\n', "IM119"),
        ('assert x.device.type not in ("cuda", "xpu")\n', "IM119"),
        ('assert x.device.type == "cuda"\n', "IM119"),  # in a file that does not use PyTorch
        ("import torch\n\n\nclass Side(torch.cuda.Stream):\n    pass\n", "IM116"),
        (
            "import torch\n\n"
            "torch.set_default_tensor_type(torch.cuda.FloatTensor if cuda else torch.FloatTensor)\n",
            "IM120",
        ),
    ],
)
def test_what_has_no_counterpart_is_reported(source: str, code: str) -> None:
    result = convert_source(source, "left.py")
    assert result.text == source
    assert [finding.code for finding in result.findings if finding.severity in LEFT] == [code]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# one\n{}\n# two\nf()\n", "# one\n# two\nf()\n"),
        ("f()\n\n# one\n{}\n", "f()\n\n# one\n"),
        ("if f():\n    # one\n    {}\n", "if f():\n    # one\n    pass\n"),
        ("if f():\n    f()\n    # one\n    {}\n", "if f():\n    f()\n    # one\n"),
    ],
)
def test_comments_above_a_dropped_import_stay(before: str, after: str) -> None:
    start = "import torch\n\n\ndef wait():\n    now()\n\n\n"
    source = start + before.format("from torch.cuda import synchronize as now")
    assert convert_source(source, "a.py").text.endswith(after)
