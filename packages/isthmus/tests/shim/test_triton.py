"""Triton kernels of the user's own under ``isthmus run``: compiled by isthmus-triton on the host chip."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import command
from tests.helpers.children import output
from tests.helpers.reports import last_report

pytest.importorskip("triton")
SCRIPTS = Path(__file__).parents[1] / "scripts"


def job(script: str, *arguments: object, **environment: str) -> tuple[dict[str, Any], str]:
    """The last line of JSON and the messages of a script under ``isthmus run``."""
    done = command.run_forked(SCRIPTS / script, *arguments, **environment)
    return last_report(done), done.stderr


@pytest.mark.host("kernels read the chip's memory in place, as a strict host chip allows")
def test_kernels_agree_with_pytorch():
    found, _ = job("triton_kernels.py", ISTHMUS_HOST_STRICT="1")
    assert found["add"] == 0 and found["warm"] == 0 and found["bfloat16"] == 0
    assert found["softmax"] < 1e-4 and found["matmul"] < 1e-5 and found["library"] < 1e-6
    assert found["rounded"] == [0, -1, 3, 3e9, 0, 0, 2, 2.0**31]  # float2int_rn saturates
    assert found["minimum"] == 0.5  # a NaN is ignored
    assert found["hooks"] == [32]
    assembly, cpu = found["refused"]
    assert "inline assembly" in assembly and "Pointer argument (at 0)" in cpu
    assert found["replayed"] < 1e-5
    assert found["target"] == ["cuda", 80] and found["device"] == "cuda:0"


@pytest.mark.full
@pytest.mark.skipif(not find_spec("liger_kernel"), reason="no liger-kernel")
def test_liger_trains_as_transformers_does():
    found, _ = job("shim_liger.py")
    for (name, losses), (_, expected), tolerance in zip(
        found["liger"], found["torch"], (1e-5, 2e-3), strict=True
    ):
        assert name == "LigerRMSNorm"
        assert losses == pytest.approx(expected, rel=tolerance)


@pytest.mark.full
@pytest.mark.skipif(not find_spec("fla"), reason="no flash-linear-attention")
@pytest.mark.parametrize("length", (24, 72))  # its recurrent kernels; those of chunks of 64
def test_flash_linear_attention_trains_as_pytorch_does(length):
    found, _ = job("shim_flash_linear_attention.py", length)
    assert found["triton"] == pytest.approx(found["torch"], rel=1e-5)


@pytest.mark.full
def test_compiled_functions_launch_kernels():
    found, _ = job("triton_compiled.py")
    assert max(found.values()) < 1e-6, found


@pytest.mark.parametrize(
    ("patched", "remedy"),
    [
        ("torch.chip.is_host_addressable", "call a PyTorch operator, or register"),
        ("isthmus_triton.driver.Driver.is_active", "run `pip install isthmus-triton`"),
    ],
)
def test_a_device_without_a_backend_refuses_at_launch(patched, remedy):
    code = f"""
        from unittest.mock import patch
        import torch
        from isthmus import shim
        with patch("{patched}", lambda: False), shim.enter():
            from triton.language.standard import cdiv
            try:
                cdiv[(1,)](1, 2)
            except NotImplementedError as error:
                print(error)
    """
    expected = "Triton kernel 'cdiv' cannot run on chip: no Triton backend for it is installed; "
    assert output(code).startswith(expected + remedy)


@pytest.mark.full
def test_tritons_interpreter_is_left_to_those_who_ask_for_it():
    found = command.run_forked(SCRIPTS / "triton_interpreted.py", TRITON_INTERPRET="1")
    assert last_report(found) == {"error": 0}


def test_the_backend_of_the_chips_maker_is_used():
    code = """
        from types import SimpleNamespace
        import torch
        from isthmus import shim
        with shim.enter():
            import triton.backends as of_triton
        class Driver:
            is_active = staticmethod(lambda: True)
            get_current_target = staticmethod(lambda: SimpleNamespace(backend="maker"))
        class Compiler:
            supports_target = staticmethod(lambda target: target.backend == "maker")
        of_triton.backends["maker"] = SimpleNamespace(driver=Driver, compiler=Compiler)
        from triton.runtime import JITFunction, driver
        run = JITFunction.run
        with shim.enter():
            print(driver.active.get_current_target().backend, JITFunction.run is run)
    """
    assert output(code) == "maker True"
