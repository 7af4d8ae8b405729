"""torch.nn modules on the chip: PyTorch's own inputs, and the recurrent layers in all their forms."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.rnn import pack_padded_sequence

import isthmus._C as core
from tools.opinfo.modules import difference_on, judge_module


@functools.cache
def module_infos() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def judged_groups() -> list[int]:
    return list(range(8))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("group", judged_groups())
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_module_db(group: int, training: bool) -> None:
    infos = list(module_infos().values())[group :: len(judged_groups())]
    if core.driver()["name"] != "host":  # lazy modules draw their parameters on the chip
        infos = [info for info in infos if not issubclass(info.module_cls, LazyModuleMixin)]
    differences = {info.name: found for info in infos if (found := judge_module(info, training))}
    assert not differences


def recurrent_inputs(module: nn.RNNBase, packed: bool) -> tuple[Any, ...]:
    torch.manual_seed(1)
    steps, batch = 5, 4
    data = (
        torch.randn(batch, steps, module.input_size) if module.batch_first else torch.randn(steps, batch, 3)
    )
    data = data.to("chip").requires_grad_()
    if packed:
        return (pack_padded_sequence(data, torch.tensor([5, 4, 4, 1]), batch_first=module.batch_first),)
    return (data,)


RECURRENT: dict[str, dict[str, Any]] = {
    "plain": {},
    "two layers": {"num_layers": 2},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False, "bidirectional": True},
}
DROPOUT = pytest.param(
    {"num_layers": 3, "dropout": 0.4}, id="dropout", marks=pytest.mark.host("its random numbers")
)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    "options", [*(pytest.param(each, id=name) for name, each in RECURRENT.items()), DROPOUT]
)
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layer(kind: type[nn.RNNBase], options: dict[str, Any], packed: bool) -> None:
    torch.manual_seed(0)
    module = kind(3, 6, **options)
    assert difference_on(module, (recurrent_inputs(module, packed), {})) == ""


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_lstm_with_projection(packed: bool) -> None:
    module = nn.LSTM(3, 6, num_layers=2, proj_size=2, bidirectional=True)
    assert difference_on(module, (recurrent_inputs(module, packed), {})) == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layer_in_other_dtypes(kind: type[nn.RNNBase], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = kind(3, 6, num_layers=2).to(dtype)
    data = torch.randn(5, 4, 3, dtype=dtype, device="chip", requires_grad=True)
    # oneDNN's layers exist for the CPU and host-addressable chips only; it has bfloat16 on some processors.
    with torch.backends.mkldnn.flags(enabled=torch.chip.is_host_addressable()):
        assert difference_on(module, ((data,), {})) == ""


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layer_without_gradient(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    module = kind(3, 6).eval()
    data = torch.randn(5, 4, 3)
    with torch.inference_mode():
        expected = module(data)[0]
        found = module.to("chip")(data.to("chip"))[0].cpu()
    exact = (
        {"rtol": 0, "atol": 0} if torch.chip.is_host_addressable() else {}
    )  # elsewhere no layer of oneDNN's
    torch.testing.assert_close(found, expected, **exact)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layer_under_autocast(kind: type[nn.RNNBase]) -> None:
    module = kind(3, 6, num_layers=2, device="chip")
    data = torch.randn(5, 4, 3, device="chip", requires_grad=True)
    with torch.autocast("chip", torch.bfloat16):
        output = module(data)[0]
    assert output.dtype == torch.bfloat16
    output.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layer_refuses_two_devices(kind: type[nn.RNNBase]) -> None:
    with pytest.raises(RuntimeError, match="not at the same device"):
        kind(3, 6)(torch.randn(5, 4, 3, device="chip"), *_states(kind))


def _states(kind: type[nn.RNNBase]) -> tuple[Any, ...]:
    state = torch.zeros(1, 4, 6, device="chip")
    return ((state, state),) if kind is nn.LSTM else (state,)


def test_transformer_fast_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    data = torch.randn(2, 7, 16)
    with torch.no_grad():
        expected = layer(data)
        assert torch.equal(layer.to("chip")(data.to("chip")).cpu(), expected)
    assert torch.chip.dispatch_stats()["operators"]["aten::_transformer_encoder_layer_fwd"]["calls"] > 0


def test_lazy_module_moves_before_it_has_a_shape() -> None:
    module: Any = nn.LazyLinear(3)
    assert nn.parameter.is_lazy(module.chip().weight)
    assert module(torch.ones(2, 5, device="chip")).shape == (2, 3)
    assert module.weight.device.type == "chip"
