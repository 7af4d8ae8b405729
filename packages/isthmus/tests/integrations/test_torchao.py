"""Models quantized by torchao's tensor subclasses: on the chip what they are on the CPU, bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch

quantization = pytest.importorskip("torchao.quantization")

# Int4WeightOnlyConfig and Float8DynamicActivationFloat8WeightConfig need libraries or devices of CUDA.
CONFIGURATIONS = {
    "int8 weights": "Int8WeightOnlyConfig",
    "int8 weights and activations": "Int8DynamicActivationInt8WeightConfig",
    "integer weights": "IntxWeightOnlyConfig",
    "int8 activations, integer weights": "Int8DynamicActivationIntxWeightConfig",
    "float8 weights": "Float8WeightOnlyConfig",
}


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_quantized_models(name, compiled):
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 64)).bfloat16()
    x, results = torch.randn(8, 64, dtype=torch.bfloat16), []
    for device in ("cpu", "chip"):
        quantized = copy.deepcopy(model).to(device)
        quantization.quantize_(quantized, getattr(quantization, CONFIGURATIONS[name])())
        assert type(quantized[0].weight) is not torch.nn.Parameter
        run = torch.compile(quantized) if compiled else quantized
        with torch.no_grad():
            results.append(run(x.to(device)).cpu())
    assert torch.equal(*results)
