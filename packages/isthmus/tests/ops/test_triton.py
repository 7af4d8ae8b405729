"""The Triton kernels: interpreted, compiled for the chip by isthmus-triton and for a GPU; on a CUDA device."""

import json
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

from tests.helpers.children import output, output_fresh
from tests.helpers.triton_cases import CASES
from tools.repository import ROOT

CODE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.helpers import triton_cases; "


@pytest.fixture(scope="module")
def interpreted(request: pytest.FixtureRequest) -> dict[str, str]:
    """Errors of each operator, from one process, since most of the time is the import of PyTorch."""
    names = _names(request, test_interpreted_against_the_composite_in_float64)
    return json.loads(
        output(CODE + f"triton_cases.report(triton_cases.check, {names})", TRITON_INTERPRET="1")
    )


@pytest.fixture(scope="module")
def on_the_chip(request: pytest.FixtureRequest) -> dict[str, str]:
    names = _names(request, test_compiled_for_the_chip)
    code = CODE + f"triton_cases.report(lambda name: triton_cases.check(name, every=5), {names})"
    return json.loads(output(code, TRITON_INTERPRET=None))


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = str(tmp_path_factory.mktemp("triton"))
    names = _names(request, test_compiles_for_a_gpu)
    code = CODE + f"triton_cases.report(triton_cases.compile_for_hopper, {names})"
    return json.loads(output(code, TRITON_INTERPRET=None, TRITON_CACHE_DIR=cache))


def _names(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[str]:
    """Operators for which this run has that test."""
    items = [item for item in request.session.items if getattr(item, "function", None) is test]
    return [item.callspec.params["name"] for item in items]  # type: ignore[attr-defined]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_interpreted_against_the_composite_in_float64(name, interpreted):
    assert not interpreted[name]


@pytest.mark.host("its memory is the CPU's, which compiles the kernels")
@pytest.mark.skipif(not find_spec("isthmus_triton"), reason="no isthmus-triton")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_compiled_for_the_chip(name, on_the_chip):
    assert not on_the_chip[name]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device available")
def test_on_a_cuda_device():
    code = CODE + f"triton_cases.report(triton_cases.check, {list(CASES)})"
    failures = json.loads(output(code, TRITON_INTERPRET=None))
    assert not any(failures.values()), failures


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_compiles_for_a_gpu(name, compiled):
    assert not compiled[name]


@pytest.mark.full
def test_triton_is_imported_by_the_first_call_that_uses_it():
    code = "import sys; from isthmus import ops; print('triton' in sys.modules)"
    assert output_fresh(code, TRITON_INTERPRET="1") == "False"


@pytest.mark.full
def test_which_and_use_name_it():
    code = """
        import torch
        from isthmus import ops
        x = torch.randn(3, 8)
        print(ops.implementations()["rms_norm"])
        with ops.use("rms_norm", "triton"):
            print(ops.which("rms_norm", x).implementation)
            try:
                ops.rms_norm(x.to(torch.float8_e5m2))
            except ValueError as error:
                print(error)
    """
    names, which, error = output(code, TRITON_INTERPRET="1").splitlines()
    assert names == "['cpu', 'triton', 'composite']" and which == "triton"
    assert "is forced to 'triton', which does not support this call: no kernel for torch.float8_e5m2" in error


@pytest.mark.full
def test_attention_with_mask_and_dropout_of_wide_heads_is_refused():
    code = """
        import torch
        from isthmus import ops
        q = torch.randn(1, 8, 2, 64)
        mask = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
        for dropout in (0.0, 0.5):
            with ops.use("attention", "triton"):
                try:
                    given = {"atten_mask": mask, "keep_prob": 1 - dropout, "input_layout": "BSND"}
                    print(ops.which("fusion_attention", q, q, q, 2, **given).implementation)
                except ValueError as error:
                    print(error)
    """
    without, refused = output(code, TRITON_INTERPRET="1").splitlines()
    assert without == "triton"
    assert "the kernel for torch.float32 and head size 64 does not support a mask with dropout" in refused


@pytest.mark.host("its memory is the CPU's, which compiles the kernels")
@pytest.mark.skipif(not find_spec("isthmus_triton"), reason="no isthmus-triton")
@pytest.mark.full
def test_statistics_count_its_kernels():
    code = """
        import torch
        from isthmus import ops
        x = torch.randn(3, 8, device="chip")
        print(ops.which("rms_norm", x).implementation)
        with ops.use("rms_norm", "triton"):
            torch.chip.reset_dispatch_stats()
            ops.rms_norm(x)
        statistics = torch.chip.dispatch_stats()
        print(statistics["calls"]["kernel"], [name for name in statistics["operators"] if "triton" in name])
    """
    assert output(code, TRITON_INTERPRET=None).splitlines() == ["cpu", "1 ['triton::_forward']"]
