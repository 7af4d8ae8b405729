"""Tests for CUDA in public projects, and what they decide: each by a small source of its own."""

from __future__ import annotations

import pytest

from isthmus_migrate.source.findings import Severity
from tests.helpers.conversion import convert, ends

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
    result = convert(source)
    assert result.text == f"import torch\n{source}"
    tests = [each for each in result.findings if each.code in ("IM110", "IM119")]
    assert [each.severity for each in tests] == [Severity.REVIEW]
    assert 'decides for "cuda" in line' in tests[0].message


def test_a_test_for_cuda_stays_with_the_word_that_it_decides_for() -> None:
    source = 'print("built for", "cuda" if torch.cuda.is_available() else "cpu")\n'
    assert ends(source, "IM110") == [Severity.NONE]
    said = 'if torch.cuda.is_available():\n    print("cuda")\n    x = torch.zeros(2).cuda()\n'
    assert ends(said, "IM110") == [Severity.AUTOMATIC]


def test_a_string_and_the_comparisons_of_its_variable_change_together() -> None:
    source = 'kind = "cuda"\nif x.device.type == kind:\n    f()\nif kind == "cuda":\n    g()\n'
    assert set(ends(source, "IM102") + ends(source, "IM119")) == {Severity.AUTOMATIC}


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
    assert becomes in convert(source).text


def test_a_function_that_asks_nvidia_smi_keeps_its_test_for_cuda() -> None:
    source = (
        "import subprocess\n\n\ndef links():\n    subprocess.run(['nvidia-smi', 'topo', '-m'])\n\n\n"
        "if torch.cuda.is_available():\n    links()\n"
    )
    assert ends(source, "IM110") == [Severity.NONE]


def test_a_test_for_cuda_before_calls_of_both_kinds_is_listed() -> None:
    source = (
        "import subprocess\n\n\ndef links():\n    subprocess.run(['nvidia-smi', 'topo', '-m'])\n\n\n"
        "def f(fabric):\n    if torch.cuda.is_available():\n        links()\n        fabric.launch()\n"
    )
    assert ends(source, "IM110") == [Severity.REVIEW]


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
    assert ends(source, "IM110") == [end]
