"""Leaving the shim restores every attribute of every PyTorch module and leaves no proxy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.children import output
from tests.helpers.reports import report

SCRIPT = Path(__file__).parents[1] / "scripts" / "shim_undone.py"

# These copy functions of PyTorch into their own names and tables.
COPY = [
    "torch._dynamo.variables.torch",
    "torch._inductor.compile_fx",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint",
    "torch.distributed.tensor",
    "torch.distributed._shard.sharded_tensor",
    "torch.utils.cpp_extension",
]
LIBRARIES = [
    name
    for name in ("transformers.modeling_utils", "accelerate", "deepspeed")
    if find_spec(name.partition(".")[0])
]


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("modules", [COPY, COPY + LIBRARIES], ids=["pytorch", "libraries"])
def test_every_attribute_of_pytorch_is_restored(modules):
    """After imports inside the scope, only the imports' own changes remain."""
    plain = report(SCRIPT, "plain", *modules)
    shimmed = report(SCRIPT, "shim", *modules)
    assert plain["inside"] == plain["left"] == shimmed["left"] == []
    assert len(shimmed["inside"]) > 300
    assert set(shimmed["after"]) - set(plain["after"]) == set()


def test_a_copy_of_the_users_is_the_original_again(tmp_path):
    (tmp_path / "copies.py").write_text(
        "from torch import zeros\n"
        "from torch.cuda import is_available\n"
        "TABLE = {'make': zeros, zeros: 1}\n"
        "class Maker:\n"
        "    make = zeros\n"
    )
    code = """
        import sys
        import torch
        from isthmus import shim

        sys.path.insert(0, FOLDER)
        with shim.enter():
            import copies

            assert copies.zeros(1, device="cuda").device == copies.TABLE["make"](1, device="cuda").device
            assert copies.is_available()
        assert copies.zeros is copies.TABLE["make"] is copies.Maker.make is torch.zeros
        assert set(copies.TABLE) == {"make", torch.zeros}
        assert copies.is_available is torch.cuda.is_available
        print("restored")
    """
    assert output(code.replace("FOLDER", repr(str(tmp_path)))) == "restored"


@pytest.mark.full
def test_dynamo_does_not_cache_the_proxies():
    code = """
        import torch._dynamo
        from isthmus import shim

        allowed = torch._dynamo.trace_rules._allowed_callable_ids
        before = set(allowed())
        with shim.enter():
            assert id(torch.zeros) in allowed
        assert allowed() == before
        print("forgotten")
    """
    assert output(code) == "forgotten"
