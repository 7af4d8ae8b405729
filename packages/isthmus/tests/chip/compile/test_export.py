"""torch.export and AOTInductor on the chip: the plain functions of PyTorch, with chip tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass

from isthmus.chip.compile import package
from tests.helpers.children import output_fresh, run_fresh

_FAST = {"aot_inductor.compile_wrapper_opt_level": "O0", "aot_inductor.precompile_headers": False}


class Small(nn.Module):
    """Returns on the chip, on the CPU, and an input; counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.calls.add_(1)
        mask = torch.arange(64, device=x.device) > 2
        return self.linear(x).relu() * mask + self.calls, x.amax().cpu(), x


def make(device: str) -> Small:
    torch.manual_seed(0)
    return Small().to(device).eval()


def export(device: str, strict: bool = False) -> Any:
    shapes = {"x": {0: torch.export.Dim("batch", max=64)}}
    return torch.export.export(
        make(device), (torch.ones(3, 64, device=device),), dynamic_shapes=shapes, strict=strict
    )


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.full)])
def test_exported_programs_are_saved_loaded_and_moved(strict: bool, tmp_path: Path) -> None:
    torch.export.save(export("chip", strict), tmp_path / "model.pt2")
    program, other = (torch.export.load(tmp_path / "model.pt2") for _ in range(2))
    x = torch.randn(5, 64)
    with torch.no_grad():
        expected = make("chip")(x.to("chip"))
        loaded = program.module()(x.to("chip"))
        moved = move_to_device_pass(other, "cpu").module()(x)
    assert [each.device.type for each in loaded] == ["chip", "cpu", "chip"]
    for one, two, three in zip(expected, loaded, moved, strict=True):
        assert torch.equal(one.cpu(), two.cpu())
        assert torch.equal(one.cpu(), three)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("make_layer", [nn.LSTM, pytest.param(nn.GRU, marks=pytest.mark.full)])
def test_the_batch_of_a_recurrent_layer_is_dynamic(make_layer: Any) -> None:
    layer = make_layer(4, 5).to("chip")
    dynamic = {"input": {1: torch.export.Dim("batch", min=2, max=64)}}
    program = torch.export.export(layer, (torch.ones(3, 2, 4, device="chip"),), dynamic_shapes=dynamic)
    x = torch.randn(3, 6, 4, device="chip")
    assert torch.equal(program.module()(x)[0], layer(x)[0])


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("package") / "model.pt2"
    torch._inductor.aoti_compile_and_package(export("chip"), package_path=str(path), inductor_configs=_FAST)
    return str(path)


@pytest.mark.full
def test_a_package_takes_and_returns_chip_tensors(packaged: str) -> None:
    model = torch._inductor.aoti_load_package(packaged)
    eager = make("chip")
    for batch in (3, 5):
        x = torch.randn(batch, 64, device="chip")
        results = model(x)
        with torch.no_grad():
            expected = eager(x)
        assert [each.device.type for each in results] == ["chip", "cpu", "chip"]
        assert results[2] is x
        torch.testing.assert_close(results, expected)


@pytest.mark.full
def test_weights_are_in_the_chips_memory_once(packaged: str) -> None:
    before = torch.chip.memory_allocated()
    model = torch._inductor.aoti_load_package(packaged)
    weights = (64 * 64 + 64) * 4
    assert weights <= torch.chip.memory_allocated() - before < 1.5 * weights
    assert model.get_constant_fqns()
    model(torch.ones(3, 64, device="chip"))
    del model
    assert torch.chip.memory_allocated() == before


@pytest.mark.full
def test_weights_can_be_replaced(packaged: str) -> None:
    model = torch._inductor.aoti_load_package(packaged)
    state = {name: torch.zeros_like(tensor) for name, tensor in make("chip").state_dict().items()}
    model.load_constants({name: state[name] for name in model.get_constant_fqns()}, check_full_update=True)
    assert model(torch.randn(2, 64, device="chip"))[0].cpu().unique().tolist() == [1.0]
    with pytest.raises(ValueError, match=r"constant calls is on cpu; the package has it on chip:0"):
        model.load_constants({"calls": torch.zeros(())}, check_full_update=False)


@pytest.mark.full
def test_wrong_inputs_are_refused(packaged: str) -> None:
    model = torch._inductor.aoti_load_package(packaged)
    with pytest.raises(ValueError, match="input x is on cpu; the package takes it on chip:0"):
        model(torch.ones(2, 64))
    for wrong in (torch.ones(65, 64), torch.ones(2, 65), torch.ones(64), torch.ones(2, 64).double()):
        with pytest.raises(
            ValueError, match=r"input x is float\d\d \[.*\]; the package takes float32 \[s\d+ <= 64, 64\]"
        ):
            model(wrong.to("chip"))
    with pytest.raises(ValueError, match="no device chip:7; 2 devices available"):
        torch._inductor.aoti_load_package(packaged, device_index=7)


@pytest.mark.full
def test_a_package_runs_on_another_chip_and_on_the_cpu(packaged: str) -> None:
    x = torch.randn(4, 64)
    second = torch._inductor.aoti_load_package(packaged, device_index=1)
    on_chip = second(x.to("chip:1"))
    on_cpu = package.open_package(packaged, "model", torch.device("cpu")).run([x])
    assert on_chip[0].device == torch.device("chip:1")
    for one, two in zip(on_chip, on_cpu, strict=True):
        assert torch.equal(one.cpu(), two)


@pytest.mark.full
def test_a_process_without_the_chip_refuses_the_package(packaged: str) -> None:
    result = run_fresh(
        f"import torch; torch._inductor.aoti_load_package({packaged!r})", ISTHMUS_DRIVER="none"
    )
    assert result.returncode == 1
    assert "Unsupported device key found: chip" in result.stderr


@pytest.mark.full
def test_random_operators_are_refused() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand_like(x)

    program = torch.export.export(Noise(), (torch.ones(2, device="chip"),))
    with pytest.raises(Exception, match="draws random numbers"):
        torch._inductor.aoti_compile_and_package(program, inductor_configs=_FAST)


class Logits(nn.Module):
    """A model of Hugging Face as a function of a tensor that returns one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids).logits
        return logits


def tiny_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, use_cache=False)
    model: nn.Module = LlamaForCausalLM(config)
    return model


@pytest.mark.full
def test_a_llama_equals_the_cpus_package_and_loads_without_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Logits(tiny_llama()).eval()
    ids = torch.arange(30).reshape(3, 10)
    shapes = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=64)}}
    logits = {}
    for device in ("cpu", "chip"):
        program = torch.export.export(model.to(device), (ids[:2].to(device),), dynamic_shapes=shapes)
        path = str(tmp_path / f"{device}.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=_FAST)
        logits[device] = torch._inductor.aoti_load_package(path)(ids.to(device)).cpu()
    assert torch.equal(logits["chip"], logits["cpu"])
    with torch.no_grad():
        torch.testing.assert_close(logits["chip"], model(ids.to("chip")).cpu())
    torch.save(logits["chip"], tmp_path / "logits.pt")
    printed = output_fresh(
        f"""
        import sys, torch
        sys.modules["transformers"] = None
        model = torch._inductor.aoti_load_package({str(tmp_path / "chip.pt2")!r})
        logits = model(torch.arange(30, device="chip").reshape(3, 10))
        print(logits.device, torch.equal(logits.cpu(), torch.load({str(tmp_path / "logits.pt")!r})))
        """
    )
    assert printed.split() == ["chip:0", "True"]
