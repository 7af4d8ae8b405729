"""Tests of the comparison of two versions of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.torch_next import __main__ as torch_next
from tools.torch_next import used
from tools.torch_next.python_names import Python

PROFILER = "class profile:\n    def __init__(self, enabled=True, *{extra}, use_device=None): pass\n"
FUNCTIONS = """\
- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
  dispatch:
    CPU, CUDA: add
- func: {name}(Tensor self) -> Tensor
- func: relu(Tensor self{more}) -> Tensor
"""


def site(folder: Path, version: str, extra: str, name: str, more: str, header: str) -> Path:
    """Write an unpacked PyTorch with the parts that differ."""
    texts = {
        "torch/version.py": f"__version__ = '{version}'\n",
        "torch/__init__.py": "from torch.functional import einsum as einsum\ntry:\n    x = 1\nexcept E:\n    y = 2\n",
        "torch/functional.py": "def einsum(*args): pass\n",
        "torch/autograd/__init__.py": "",
        "torch/autograd/profiler.py": PROFILER.format(extra=extra),
        "torch/include/c10/core/Stream.h": f"// comment {version}\nclass Stream {{\n  {header}\n}};\n",
        "torchgen/packaged/ATen/native/native_functions.yaml": FUNCTIONS.format(name=name, more=more),
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def sites(tmp_path: Path) -> list[str]:
    old = site(tmp_path / "old", "2.13.0", ", use_cuda=False", "qr", "", "int id;")
    new = site(tmp_path / "new", "2.15.0", "", "polar", ", bool fast=False", "long id;")
    return [str(old), str(new)]


def test_the_report(
    sites: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        used, "headers", lambda: {"c10/core/Stream.h": {"a.cpp", "b.cpp"}, "ATen/none.h": {"a.cpp"}}
    )
    names = {"torch.autograd.profiler.profile.__init__": {"shim.py"}, "torch.einsum": {"ops.py"}}
    monkeypatch.setattr(used, "names", lambda: names)
    monkeypatch.setattr(used, "operators", lambda: {"qr"})
    torch_next.main(sites)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        "torch 2.13.0 -> 2.15.0",
        "Headers: 1",
        "c10/core/Stream.h: 2 lines; used by a.cpp and 1 more",
        "-int id;",
        "+long id;",
        "Python names: 1",
        "torch.autograd.profiler.profile.__init__: (self, enabled=, *, use_cuda=, use_device=)"
        " -> (self, enabled=, *, use_device=); used by shim.py",
        "Operators: 3",
        "polar: new: polar(Tensor self) -> Tensor",
        "qr: gone (named here)",
        "relu: relu(Tensor self) -> Tensor",
        "-> relu(Tensor self, bool fast=False) -> Tensor",
    ]


def test_names_are_found_without_an_import(sites: list[str]) -> None:
    python = Python(Path(sites[0]))
    assert python.describe("torch.einsum") == "(*args)"
    assert python.describe("torch.autograd.profiler.profile") == "class"
    assert python.describe("torch.autograd.profiler") == "module"
    assert python.describe("torch.x") == "value" and python.describe("torch.y") == "value"
    assert python.describe("torch.nosuch") is None
    assert python.describe("torch.autograd.profiler.profile.nosuch") is None


def test_what_this_repository_uses_is_found() -> None:
    assert "packages/isthmus/csrc/dispatch/graph.h" in used.headers()["ATen/core/Generator.h"]
    patched = used.names()["torch.autograd.profiler.profile.__init__"]
    assert "packages/isthmus/src/isthmus/shim/profiling.py" in patched
    assert {"add", "native_layer_norm_backward"} <= used.operators()
