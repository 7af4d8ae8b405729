"""Code that reaches code to port by hand, through functions, methods, instances and modules."""

from pathlib import Path

import pytest

from isthmus_migrate.analyse import engine
from isthmus_migrate.source.findings import Finding, Severity

GRAPH = "    g = torch.cuda.CUDAGraph()\n"  # a finding to port by hand
BASE = f"import torch\ndef bad():\n{GRAPH}"


def findings(root: Path, files: dict[str, str]) -> list[Finding]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = engine.analyse(root, target="chip", probe=False, processes=1).findings
    return [each for each in found if each.code == "IM412"]


def reached(root: Path, text: str) -> set[str]:
    found = findings(root, {"a.py": BASE + text})
    others = (each.message.partition("; also ")[2].split(", ") for each in found)
    return {each.subject.removeprefix("a.") for each in found} | {
        name for each in others for name in each if name
    }


def test_a_finding_names_the_whole_chain(tmp_path: Path):
    files = {
        "ops.py": f"import torch\ndef fused_bias(x):\n{GRAPH}",
        "model.py": (
            "from torch import nn\nimport ops\n"
            "class Model(nn.Module):\n    def forward(self, x):\n        return ops.fused_bias(x)\n"
        ),
        "train.py": "from model import Model\ndef train():\n    model = Model()\n    model(1)\n",
    }
    first, second = findings(tmp_path, files)
    assert (first.subject, first.line, first.severity) == ("model.Model.forward", 4, Severity.REVIEW)
    assert (second.path, second.subject, second.line, second.end_line) == ("train.py", "train.train", 2, 2)
    assert second.message == (
        "reaches torch.cuda.CUDAGraph (IM405, ops.py:3): train -> model.Model.forward -> ops.fused_bias"
    )


@pytest.mark.parametrize(
    "text",
    [
        "def f(): bad()\n",
        "def f(): return [bad() for _ in x]\n",
        "def f(): return (lambda: bad())()\n",
        "from torch.utils.checkpoint import checkpoint\ndef f(): checkpoint(bad, x)\n",
        "same = bad\ndef f(): same()\n",
        "def f(passes): passes.append(bad)\n",
        "async def f(): await bad()\n",
    ],
)
def test_functions(tmp_path: Path, text: str):
    assert reached(tmp_path, text) == {"f"}


CLASS = "class C:\n    def run(self):\n        bad()\n"
MODULE = "class M(torch.nn.Module):\n    def forward(self, x):\n        bad()\n"


@pytest.mark.parametrize(
    ("text", "also"),
    [
        ("    def f(self): self.run()\n", "C.f"),
        ("    def f(self, pool): pool.submit(self.run)\n", "C.f"),
        ("def make(): return C()\ndef f(): make().run()\n", "f"),
        ("def f(c): c.run()\nf(C())\n", "f"),
        ("class D(C):\n    def f(self): self.run()\n", "D.f"),
        ("class D(C):\n    def run(self): super().run()\n", "D.run"),
        ("class B(C): pass\nclass D(B):\n    def f(self): self.run()\n", "D.f"),
        ("def f():\n    c = C()\n    c.run()\n", "f"),
        ("def f(): C().run()\n", "f"),
        ("def f(c: C): c.run()\n", "f"),
        ("c = C()\ndef f(): c.run()\n", "f"),
        ("def f():\n    c = C()\n    d = c\n    d.run()\n", "f"),
        ("class D:\n    def __init__(self): self.c = C()\n    def f(self): self.c.run()\n", "D.f"),
        ("class D:\n    def __init__(self): self.c = C()\ndef f():\n    d = D()\n    d.c.run()\n", "f"),
        ("def f(): C.run(x)\n", "f"),
    ],
)
def test_methods_and_instances(tmp_path: Path, text: str, also: str):
    assert reached(tmp_path, CLASS + text) == {"C.run", also}


@pytest.mark.parametrize(
    ("text", "also"),
    [
        ("def f():\n    m = M()\n    m(1)\n", "f"),
        ("def f(): M()(1)\n", "f"),
        (
            "class N(torch.nn.Module):\n    def __init__(self): self.m = M()\n    def f(self, x): self.m(x)\n",
            "N.f",
        ),
        (
            "class N(torch.nn.Module):\n    def __init__(self): self.m = torch.nn.ModuleList([M() for _ in '12'])\n"
            "    def f(self, x):\n        for m in self.m:\n            m(x)\n",
            "N.f",
        ),
        ("def f():\n    m = torch.nn.parallel.DistributedDataParallel(M())\n    m(1)\n", "f"),
        ("def f():\n    m = M()\n    m = torch.compile(m)\n    m(1)\n", "f"),
    ],
)
def test_modules_are_called_through_forward(tmp_path: Path, text: str, also: str):
    assert reached(tmp_path, MODULE + text) == {"M.forward", also}


def test_an_autograd_function_is_applied(tmp_path: Path):
    text = (
        "class F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x\n"
        "    @staticmethod\n    def backward(ctx, g): bad()\ndef f(x): return F.apply(x)\n"
    )
    assert reached(tmp_path, text) == {"F.backward", "f"}


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass\n",
        "def f(bad): bad()\n",  # a parameter
        "def f():\n    bad = 1\n    return bad\n",
        "class C:\n    def bad(self): pass\n    def f(self): self.bad()\n",
        "def f(): print(bad.__name__)\n",
        "bad()\n",  # no function
        "def f(x):\n    if x: bad()\n",  # may not run
        "def f(x):\n    if x: return 1\n    return bad()\n",
        "def f():\n    try: bad()\n    except RuntimeError: pass\n",
    ],
)
def test_functions_without_such_calls_are_not_reported(tmp_path: Path, text: str):
    assert reached(tmp_path, text) == set()


def test_recursion_and_circles_end(tmp_path: Path):
    text = (
        "def f(): g()\ndef g(): f(); bad()\n"
        "class A(A): pass\nclass B(D): pass\nclass D(B):\n    def run(self): self.none(); bad()\n"
        "def h():\n    a = b\n    b = a\n    a.run()\n"
    )
    assert reached(tmp_path, text) == {"f", "g", "D.run"}


def test_a_long_chain_is_cut_and_long_aliases_end(tmp_path: Path):
    text = "".join(f"def f{n}(): f{n + 1}()\n" for n in range(30)) + "def f30(): bad()\n"
    text += (
        "def g():\n    x0 = f0\n"
        + "".join(f"    x{n + 1} = x{n}\n" for n in range(3000))
        + "    x3000.run()\n"
    )
    (found,) = findings(tmp_path, {"a.py": BASE + text})
    chain, _, others = found.message.partition("; also ")
    assert chain.endswith(": f0 -> f1 -> f2 -> f3 -> ... -> f28 -> f29 -> f30 -> bad")
    assert others == "f1, f2, f3, f4, f5, f6, f7, f8 and 22 others"


def test_a_reason_in_a_branch_is_not_a_reason(tmp_path: Path):
    text = f"import torch\ndef maybe(x):\n    if x:\n    {GRAPH}def f(): maybe(0)\n"
    assert not findings(tmp_path, {"a.py": text})


@pytest.mark.parametrize(
    ("name", "imports", "call"),
    [
        ("pkg/use.py", "from .ops import bad", "bad()"),
        ("pkg/use.py", "from . import ops", "ops.bad()"),
        ("pkg/use.py", "import pkg.ops as o", "o.bad()"),
        ("use.py", "import pkg.ops", "pkg.ops.bad()"),
        ("use.py", "from pkg import bad as b", "b()"),  # pkg/__init__.py re-exports it
        ("use.py", "import pkg", "pkg.bad()"),
    ],
)
@pytest.mark.parametrize("folder", ["", "src/"])
def test_imports_between_modules(tmp_path: Path, folder: str, name: str, imports: str, call: str):
    files = {
        "pkg/__init__.py": "from pkg.ops import bad\n",
        "pkg/ops.py": BASE,
        name: f"{imports}\ndef f(): {call}\n",
    }
    found = findings(tmp_path, {folder + path: text for path, text in files.items()})
    assert [(each.path, each.line) for each in found] == [(folder + name, 2)]


def test_a_library_to_replace_by_hand_is_a_reason(tmp_path: Path):
    text = "import pynvml\ndef usage():\n    return pynvml.nvmlInit()\ndef log():\n    usage()\n"
    (found,) = findings(tmp_path, {"a.py": text})
    assert found.message.startswith("reaches pynvml.nvmlInit (IM301, a.py:2): log -> usage")


def test_an_optional_library_is_not_a_reason(tmp_path: Path):
    text = (
        "try:\n    import pynvml\nexcept ImportError:\n    pynvml = None\n"
        "def usage():\n    return pynvml.nvmlInit()\ndef log():\n    usage()\n"
    )
    assert not findings(tmp_path, {"a.py": text})


def test_a_call_of_a_native_operator_is_a_reason(tmp_path: Path):
    native = 'Tensor f(Tensor x) { k<<<1, 2>>>(x); } PYBIND11_MODULE(ext, m) { m.def("f", &f); }'
    (found,) = findings(
        tmp_path, {"k.cu": native, "a.py": "import ext\ndef f(x): return ext.f(x)\ndef g(): f(1)\n"}
    )
    assert found.message == "reaches ext.f (IM407, a.py:2): g -> f"
