"""Kernels and operators of a project's own: found in C++, CUDA and Python, and where Python calls them."""

import random
from pathlib import Path

import pytest

from isthmus_migrate.analyse import engine
from isthmus_migrate.analyse.cpp import Arity, read, schema_arity
from isthmus_migrate.analyse.cpp_tokens import Stream, TokenKind
from isthmus_migrate.analyse.stand_ins import STAND_INS, advise_port, stand_in
from isthmus_migrate.source.findings import Finding, Severity

KERNEL = r"""
#include <cuda_runtime.h>
#include <cub/cub.cuh>
// __global__ void commented_out();
template <typename T>
__global__ void __launch_bounds__(256) bias_gelu_kernel(const T* x, T* y, int n) {
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(n));
}
at::Tensor bias_gelu_cuda(at::Tensor x, std::map<int, int> options, double eps = 1e-5) {
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", [&] {
    bias_gelu_kernel<scalar_t><<<dim3(1, 2), 256, 0, stream>>>(x.data_ptr(), y.data_ptr(), 1'000);
  });
}
"""
BINDINGS = r"""
#include <torch/extension.h>
at::Tensor bias_gelu_cuda(at::Tensor x, std::map<int, int> options, double eps);
at::Tensor bias_gelu(at::Tensor x, std::map<int, int> options, double eps = 1e-5) {
  return bias_gelu_cuda(x, options, eps);
}
at::Tensor shift(at::Tensor x, int64_t by) { return x + by; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("bias_gelu", &ops::bias_gelu, "bias and GELU (CUDA)");
  m.def("shift", &shift, py::arg("x"), py::arg("by") = 1);
}
"""
SETUP = (
    'from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension("my.fused_ops", ["a.cpp", "k.cu"])\n'
)


def findings(root: Path, files: dict[str, str], code: str = "IM4") -> list[Finding]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = engine.analyse(root, target="chip", probe=False).findings
    return [each for each in found if each.code.startswith(code) and each.code != "IM412"]


def short(found: list[Finding]) -> list[tuple[str, str, int, str]]:
    return [(each.code, each.subject, each.line, each.severity.value) for each in found]


# ---- C++ -----------------------------------------------------------------------------------------------------
def test_comments_and_strings_are_not_code():
    text = '/* a */ b // c\n"d // e" R"x(f)" g)x" \'h\' 1\'000 #include <i.h>\nu8"j"'
    assert [(each.of, each.text, each.line) for each in Stream(text)] == [
        (TokenKind.NAME, "b", 1),
        (TokenKind.STRING, "d // e", 2),
        (TokenKind.STRING, 'f)" g', 2),
        (TokenKind.STRING, "h", 2),
        (TokenKind.NUMBER, "1'000", 2),
        (TokenKind.INCLUDE, "i.h", 2),
        (TokenKind.STRING, "j", 3),
    ]


@pytest.mark.parametrize(
    ("schema", "arity"),
    [
        ("f(Tensor x, int n=1, *, float eps) -> Tensor", Arity(2, 3)),
        ("f(Tensor(a!) x, int[2] n=[1, 2]) -> (Tensor, Tensor)", Arity(1, 2)),
        ("f() -> ()", Arity(0, 0)),
        ("f", Arity()),
    ],
)
def test_a_schema_says_how_many_arguments_an_operator_takes(schema: str, arity: Arity):
    assert schema_arity(schema) == arity


def test_kernels_launches_headers_and_assembly_are_found(tmp_path: Path):
    assert short(findings(tmp_path, {"k.cu": KERNEL})) == [
        ("IM403", "cuda_runtime.h, cub/cub.cuh", 2, "manual"),
        ("IM401", "bias_gelu_kernel", 6, "manual"),
        ("IM404", "asm", 7, "manual"),
        ("IM402", "bias_gelu_kernel", 11, "manual"),
    ]


def test_a_binding_is_of_cuda_if_its_function_reaches_a_kernel_in_another_file(tmp_path: Path):
    found = findings(tmp_path, {"a.cpp": BINDINGS, "k.cu": KERNEL}, "IM406")
    assert short(found) == [("IM406", "bias_gelu", 9, "manual"), ("IM406", "shift", 10, "review")]
    assert "torch.nn.functional.gelu may replace it" in found[0].advice


def test_cpp_without_cuda_and_tensors_is_not_a_finding(tmp_path: Path):
    native = '#include <vector>\nint f(int x) { return x; }\nPYBIND11_MODULE(ext, m) { m.def("f", &f); }\n'
    assert not findings(tmp_path, {"helpers.cpp": native, "use.py": "import ext\next.f(1)\n"})


def test_what_a_macro_launches_counts_where_it_is_used(tmp_path: Path):
    native = """#define LAUNCH(T) \\
    kernel<T><<<1, 2>>>(x)
#define OTHER 3
Tensor f(Tensor x) { LAUNCH(float); }
at::Tensor g(at::Tensor x) { return x + OTHER; }
PYBIND11_MODULE(ext, m) { m.def("f", &f); m.def("g", &g); }
"""
    assert short(findings(tmp_path, {"k.cpp": native})) == [
        ("IM402", "kernel", 2, "manual"),
        ("IM406", "ext.f", 6, "manual"),
        ("IM406", "ext.g", 6, "review"),
    ]


@pytest.mark.parametrize(
    ("calls", "count"),
    [
        ("from pkg import _C\n_C.init(1)\n", 1),  # a compiled module of the project's package
        ("import fused_cuda\nfused_cuda.init(1)\n", 1),
        ("import wandb\nwandb.init(1)\n", 0),
        ("from pkg.model import Model\nModel.init(1)\n", 0),
    ],
)
def test_an_extension_without_a_build_is_recognised_by_its_name(tmp_path: Path, calls: str, count: int):
    native = (
        'void f(int x) { k<<<1, 2>>>(x); } PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("init", &f); }'
    )
    files = {"k.cu": native, "pkg/__init__.py": "", "pkg/model.py": "", "use.py": calls}
    assert len(findings(tmp_path, files, "IM407")) == count


def test_two_extensions_with_equal_function_names_are_distinguished(tmp_path: Path):
    bind = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &forward); }'
    files = {
        "cpu.cpp": f"at::Tensor forward(Tensor x) {{ return x; }} {bind}",
        "cuda.cu": f"Tensor forward(Tensor x) {{ k<<<1, 2>>>(x); }} {bind}",
    }
    found = findings(tmp_path, files, "IM406")
    assert [(each.path, each.severity) for each in found] == [
        ("cpu.cpp", Severity.REVIEW),
        ("cuda.cu", Severity.MANUAL),
    ]


def test_an_operator_of_torch_library_is_of_cuda_if_no_other_key_has_a_kernel(tmp_path: Path):
    native = """
TORCH_LIBRARY(myops, m) {
  m.def("fused(Tensor x, int n=1) -> Tensor");
  m.def("both(Tensor x) -> Tensor");
}
at::Tensor cpu(at::Tensor x) { return x; }
TORCH_LIBRARY_IMPL(myops, CUDA, m) { m.impl("fused", TORCH_FN(gpu)); m.impl("both", gpu); }
TORCH_LIBRARY_IMPL(myops, CPU, m) { m.impl("both", &cpu); }
"""
    calls = (
        "import torch\ntorch.ops.myops.fused(x)\ntorch.ops.myops.both.default(x)\ntorch.ops.other.fused(x)\n"
    )
    assert short(findings(tmp_path, {"ops.cc": native, "use.py": calls})) == [
        ("IM406", "myops.fused", 3, "manual"),
        ("IM406", "myops.both", 4, "review"),
        ("IM407", "torch.ops.myops.fused", 2, "manual"),
        ("IM407", "torch.ops.myops.both.default", 3, "review"),
    ]


@pytest.mark.parametrize(
    "text", ["f(" * 50_000, '"\\' * 50_000, 'R"(' * 50_000, "{" * 50_000, "k<<<" * 50_000]
)
def test_unclosed_text_is_read_to_its_end(text: str):
    read(text)


def test_any_text_is_read():
    numbers = random.Random(0)
    parts = [
        *"(){}<>\"'\\\n/*#,;",
        "<<<",
        'R"x(',
        "m.def(",
        "PYBIND11_MODULE(a, m) {",
        "__global__ void f(",
        "asm",
    ]
    for _ in range(300):
        read("".join(numbers.choices(parts, k=60)))


# ---- Python --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "calls",
    [
        "import fused_ops\nfused_ops.bias_gelu(x, o)\n",
        "from my import fused_ops as f\nf.bias_gelu(x, options=o)\n",
        "from my.fused_ops import bias_gelu\nbias_gelu(*a)\n",
        "import importlib\nops = importlib.import_module('my.fused_ops'); ops.bias_gelu(x, o, 1)\n",
    ],
)
def test_calls_of_a_bound_operator_are_found(tmp_path: Path, calls: str):
    found = findings(
        tmp_path, {"a.cpp": BINDINGS, "k.cu": KERNEL, "setup.py": SETUP, "use.py": calls}, "IM407"
    )
    assert [(each.path, each.line, each.severity) for each in found] == [("use.py", 2, Severity.MANUAL)]
    assert "a.cpp:9" in found[0].message


@pytest.mark.parametrize(
    "calls",
    [
        "import fused_ops\nfused_ops.bias_gelu(x)\n",  # too few arguments
        "import fused_ops\nfused_ops.bias_gelu(x, o, 1, 2)\n",
        "import other\nother.bias_gelu(x, o)\n",  # no extension that is built here
        "def bias_gelu(x, o): pass\nbias_gelu(x, o)\n",
    ],
)
def test_other_calls_are_not(tmp_path: Path, calls: str):
    files = {"a.cpp": BINDINGS, "k.cu": KERNEL, "setup.py": SETUP, "use.py": calls}
    assert not findings(tmp_path, files, "IM407")


def test_an_extension_built_at_run_time_is_followed_through_its_variable(tmp_path: Path):
    builds = (
        "from torch.utils import cpp_extension\n"
        "ext = cpp_extension.load_inline('e', cpp_sources=[c], cuda_sources=[k], functions=['f'])\n"
        "ext.f(x)\n"
    )
    assert short(findings(tmp_path, {"jit.py": builds, "use.py": "from jit import ext\next.f(y)\n"})) == [
        ("IM411", "torch.utils.cpp_extension.load_inline", 2, "manual"),
        ("IM407", "jit.ext.f", 3, "manual"),
        ("IM407", "jit.ext.f", 2, "manual"),
    ]


def test_triton_kernels_and_their_launches_are_for_review(tmp_path: Path):
    kernel = (
        "import triton\nfrom triton import jit\n"
        "@triton.autotune(configs=[], key=['n'])\n@jit\ndef rms_norm_kernel(x, n):\n    pass\n"
    )
    files = {
        "src/pkg/k.py": kernel,
        "src/pkg/use.py": "from pkg.k import rms_norm_kernel\nrms_norm_kernel[(1,)](x)\n",
    }
    found = findings(tmp_path, files)
    assert short(found) == [
        ("IM408", "rms_norm_kernel", 5, "review"),
        ("IM408", "pkg.k.rms_norm_kernel", 2, "review"),
    ]
    assert all("isthmus.ops.rms_norm" in each.advice for each in found)


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("from numba import cuda\n@cuda.jit\ndef k(x): pass\n", "IM409", 3),
        ("import cupy as cp\nk = cp.RawKernel('...', 'k')\n", "IM409", 2),
        ("from torch import library\n@library.custom_op('a::b', device_types='cuda')\ndef b(x): ...\n", "IM410", 2),
        ("import torch\nlib = torch.library.Library('a', 'IMPL')\nlib.impl('b', f, 'CUDA')\n", "IM410", 3),
        ("import torch\n@torch.library.register_kernel('a::b', ('cuda',))\ndef b(x): ...\n", "IM410", 2),
        ("from torch.utils.cpp_extension import load\nload('e', ['a.cpp', 'b.cu'])\n", "IM411", 2),
        ("import torch\ng = torch.cuda.CUDAGraph()\n", "IM405", 2),
    ],
)  # fmt: skip
def test_kernels_of_other_kinds_are_found(tmp_path: Path, text: str, code: str, line: int):
    assert [(each.code, each.line) for each in findings(tmp_path, {"a.py": text})] == [(code, line)]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n@torch.library.custom_op('a::b', mutates_args=())\ndef b(x): ...\n",
        "import torch\n@torch.library.register_kernel('a::b', ('cpu', 'cuda'))\ndef b(x): ...\n",
        "def jit(f): return f\n@jit\ndef k(x): pass\nk(1)\n",
    ],
)
def test_operators_for_every_device_are_not_findings(tmp_path: Path, text: str):
    assert not findings(tmp_path, {"a.py": text})


# ---- stand-ins -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", [function for _, function in STAND_INS])
def test_every_stand_in_exists(function: str):
    import torch

    import isthmus.ops

    value = torch if function.startswith("torch.") else isthmus
    for part in function.split(".")[1:]:
        value = getattr(value, part)
    assert callable(value)


def test_a_stand_in_is_suggested_by_name():
    assert stand_in("fused_rms_norm_fwd") == "isthmus.ops.rms_norm"
    assert stand_in("my_special_thing") == ""
    assert advise_port("my_special_thing").startswith("write it")
