"""Autocast on the chip."""

from __future__ import annotations

import pytest
import torch

from tests.privateuse1.inventory import covers

LOW = [torch.float16, torch.bfloat16]


def pair(*dtypes: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = dtypes or (torch.float32, torch.float32)
    return torch.randn(2, 3, device="chip", dtype=first), torch.randn(3, 3, device="chip", dtype=second)


@covers("autocast", "test_autocast_with_unsupported_type", "test_openreg_autocast_error_message")
def test_an_unsupported_dtype_warns_and_disables():
    """Upstream's reference backend rejects float32 too; on the chip, as on CUDA, it is a valid target."""
    with (
        pytest.warns(UserWarning, match="In chip autocast, but the target dtype is not supported"),
        torch.autocast("chip", dtype=torch.int32),
    ):
        assert torch.mm(*pair()).dtype == torch.float32


@pytest.mark.parametrize("target", LOW)
@pytest.mark.parametrize(
    "given", [(torch.float32,) * 2, (torch.float32, torch.float16), (torch.bfloat16,) * 2]
)
@covers(
    "autocast",
    "test_autocast_low_precision",
    "test_autocast_bfloat16",
    "test_autocast_low_precision_bfloat16",
    "test_autocast_mixed_input_dtypes",
    "test_autocast_already_target_dtype",
    "test_openreg_autocast_float16_supported",
)
def test_products_are_of_the_target(target, given):
    with torch.autocast("chip", dtype=target):
        assert torch.mm(*pair(*given)).dtype == target


@pytest.mark.parametrize("target", LOW)
@pytest.mark.parametrize("given", [torch.float16, torch.bfloat16, torch.float32])
@covers(
    "autocast",
    "test_autocast_fp32",
    "test_autocast_fp32_with_bfloat16",
    "test_autocast_fp32_operation_with_float16_input",
    "test_autocast_fp32_operation_with_float32_input",
)
def test_functions_that_need_range_are_float32(target, given):
    with torch.autocast("chip", dtype=target):
        assert torch.asin(torch.zeros(2, device="chip", dtype=given)).dtype == torch.float32


@covers("autocast", "test_autocast_default_dtype", "test_autocast_fast_dtype", "test_autocast_set_dtype")
def test_default_dtype():
    before = torch.get_autocast_dtype("chip")
    assert before == torch.float16
    try:
        for dtype in LOW:
            torch.set_autocast_dtype("chip", dtype)
            assert torch.get_autocast_dtype("chip") == dtype
    finally:
        torch.set_autocast_dtype("chip", before)


@covers("autocast", "test_autocast_with_requires_grad", "test_autocast_cache_enabled")
@pytest.mark.parametrize("cache", [True, False])
def test_gradients_have_the_dtype_of_the_parameter(cache):
    x, y = (tensor.requires_grad_() for tensor in pair())
    with torch.autocast("chip", dtype=torch.float16, cache_enabled=cache):
        (torch.mm(x, y) + torch.mm(x, y)).sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32
    expected = 2 * y.detach().half().float().sum(1).expand(2, 3)
    torch.testing.assert_close(x.grad, expected, rtol=1e-3, atol=1e-3)
    assert y.grad is not None and y.grad.device == y.device
