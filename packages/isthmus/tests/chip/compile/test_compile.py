"""torch.compile on the chip: what is compiled and what is not."""

from __future__ import annotations

import pytest
import torch

from isthmus.chip import compile as graph
from isthmus_common import patches
from tests.helpers.children import run_fresh


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_model(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2)).to(device)


@pytest.mark.full
def test_graph_without_inputs_on_the_chip():
    @torch.compile
    def make():
        return torch.ones(4, device="chip") * 3

    assert make().tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_are_untouched(backend, caplog: pytest.LogCaptureFixture):
    model = make_model("chip")
    x = torch.ones(3, 8, device="chip")
    assert torch.equal(torch.compile(model, backend=backend)(x).cpu(), model(x).cpu())
    assert not [record for record in caplog.records if record.name == "isthmus"]


def test_cpu_graphs_still_go_to_inductor(monkeypatch: pytest.MonkeyPatch):
    seen = []
    from torch._inductor import compile_fx

    def spy(model, inputs, **_):
        seen.append(inputs)
        return model.forward

    monkeypatch.setattr(compile_fx, "compile_fx", spy)
    assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    assert len(seen) == 1


def test_module_compile_in_place():
    model, cpus = make_model("chip"), make_model("cpu")
    model.compile()
    cpus.compile()
    assert torch.equal(model(torch.ones(1, 8, device="chip")).cpu(), cpus(torch.ones(1, 8)))


def test_streams_inside_a_graph_do_not_fail():
    stream = torch.chip.Stream()

    @torch.compile
    def function(x):
        with torch.chip.stream(stream):
            y = x * 2
        torch.chip.current_stream().wait_stream(stream)
        return y + 1

    assert function(torch.ones(2, device="chip")).tolist() == [3, 3]


def test_the_patch_is_listed_and_undone():
    assert any("_TorchCompileInductorWrapper" in patch.target for patch in patches.active("graph"))
    ours = torch._TorchCompileInductorWrapper.__call__
    graph.uninstall()
    try:
        assert not patches.active("graph")
        assert torch._TorchCompileInductorWrapper.__call__ is not ours
    finally:
        graph.install()


@pytest.mark.full
def test_dynamo_interface_is_registered_when_dynamo_is_imported():
    result = run_fresh(
        """
        import sys, torch
        assert "torch._dynamo" not in sys.modules
        from torch._dynamo.device_interface import get_interface_for_device
        interface = get_interface_for_device("chip")
        assert interface is get_interface_for_device("chip:1")
        print(interface.__name__, interface.device_count(), interface.is_available(), interface.current_device())
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["ChipInterface", "2", "True", "0"]
