"""PyTorch's own generic test machinery finds the chip: device type tests and operator samples."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests,
    onlyCPU,
    onlyCUDA,
    onlyNativeDeviceTypes,
    onlyOn,
    onlyPRIVATEUSE1,
    ops,
    skipCPUIf,
    skipCUDAIf,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, first_sample, noncontiguous_like

from tests.privateuse1.inventory import covers

SAMPLED = [
    op for op in op_db if op.name in {"add", "mul", "empty", "zeros", "ones", "softmax", "nn.functional.gelu"}
]


class DeviceDecorators(TestCase):
    ran: ClassVar[set[str]] = set()

    @onlyCPU
    @covers("device_type", "test_cpu_only_feature")
    def test_only_cpu(self, device: str) -> None:
        self.ran.add("cpu")

    @onlyCUDA
    @covers("device_type", "test_cuda_only_feature")
    def test_only_cuda(self, device: str) -> None:
        self.ran.add("cuda")

    @skipCPUIf(True, "not of the chip")
    @skipCUDAIf(True, "not of the chip")
    @covers("device_type", "test_skip_on_cpu", "test_skip_on_cuda", "test_runtime_skip_pattern")
    def test_elsewhere(self, device: str) -> None:
        self.ran.add("elsewhere")

    @onlyNativeDeviceTypes
    @covers("device_type", "test_native_device_only")
    def test_native(self, device: str) -> None:
        self.ran.add("native")

    @onlyPRIVATEUSE1
    @covers("device_type", "test_privateuse1_only")
    def test_private(self, device: str) -> None:
        assert make_tensor((2, 2), device=device, dtype=torch.float32).device.type == "chip"
        self.ran.add("private")


class Bypass(TestCase):
    """A backend may run tests marked for CUDA only."""

    ran: ClassVar[set[str]] = set()

    def setUp(self) -> None:
        self.bypass_device_restrictions = True
        super().setUp()

    @onlyCUDA
    @covers("testing", "test_bypass_only_cuda")
    def test_cuda(self, device: str) -> None:
        self.ran.add(torch.device(device).type + " only")

    @onlyOn(["cuda"])
    @covers("testing", "test_bypass_only_on")
    def test_on(self, device: str) -> None:
        self.ran.add(torch.device(device).type + " on")


class OperatorSamples(TestCase):
    @ops(SAMPLED, allowed_dtypes=(torch.float32, torch.float16))
    @covers("opinfo", "test_op_basic_functionality")
    def test_device(self, device: str, dtype: torch.dtype, op: Any) -> None:
        sample = first_sample(self, op.sample_inputs(device, dtype))
        assert op(sample.input, *sample.args, **sample.kwargs).device.type == "chip"

    @ops([op for op in SAMPLED if op.supports_out], allowed_dtypes=(torch.float32,))
    @covers("opinfo", "test_out_argument")
    def test_out(self, device: str, dtype: torch.dtype, op: Any) -> None:
        sample = first_sample(self, op.sample_inputs(device, dtype))
        expected = op(sample.input, *sample.args, **sample.kwargs)
        out = torch.empty_like(expected)
        pointer = out.data_ptr()
        assert op(sample.input, *sample.args, **sample.kwargs, out=out) is out
        assert out.data_ptr() == pointer
        if op.name != "empty":
            assert torch.equal(out.cpu(), expected.cpu())

    @ops(
        [op for op in SAMPLED if not op.is_factory_function and op.name != "empty"],
        allowed_dtypes=(torch.float32,),
    )
    @covers("opinfo", "test_noncontiguous_samples")
    def test_strided(self, device: str, dtype: torch.dtype, op: Any) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            other = sample.noncontiguous()
            results = [op(one.input, *one.args, **one.kwargs) for one in (sample, other)]
            self.assertEqual(results[1], results[0])
            gradient = torch.randn_like(results[0])
            gradients = [
                torch.autograd.grad(result, one.input, given, allow_unused=True)
                for one, result, given in zip(
                    (sample, other), results, (gradient, noncontiguous_like(gradient)), strict=True
                )
            ]
            self.assertEqual(gradients[1], gradients[0])


instances: dict[str, Any] = {}
for template in (DeviceDecorators, Bypass, OperatorSamples):
    instances[template.__name__] = template
    template.__module__ = __name__
    instantiate_device_type_tests(template, instances, only_for=("chip",))
del DeviceDecorators, Bypass, OperatorSamples, template


def instance(name: str) -> Any:
    """Return the class that PyTorch created from a template; it is named after the key until one is set up."""
    return next(kind for made, kind in instances.items() if made.startswith(name) and made != name)


TestOperatorSamplesChip = instance("OperatorSamples")


def run(name: str) -> tuple[Any, unittest.TestResult]:
    """Run an instance as unittest does, once per test method."""
    kind = instance(name)
    kind.ran.clear()
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    assert result.errors == result.failures == []
    return kind, result


def test_decorators_select_the_chip():
    kind, result = run("DeviceDecorators")
    assert kind.ran == {"elsewhere", "native", "private"}
    assert len(result.skipped) == 2


@covers("testing", "test_vaildate_bypass_execution")
def test_restrictions_are_bypassed_on_request():
    assert run("Bypass")[0].ran == {"chip only", "chip on"}
