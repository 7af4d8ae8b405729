"""Lossless compression of floats by their exponents."""

import pytest
import torch

from tests.runtime.opapi import named

COUNT = 32768
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32 if tensor.itemsize == 4 else torch.int16)


def encoded(x: torch.Tensor, fixed: int, var: int, reshuff: bool = False) -> dict[str, torch.Tensor]:
    """Return what decodes x, with so many bytes of fixed and var."""
    parts = {"mantissa": x.numel() * (x.itemsize - 1), "fixed": fixed, "var": var}
    made = {name: torch.zeros(size // x.itemsize, dtype=x.dtype) for name, size in parts.items()}
    made["pdf"] = torch.zeros(256, dtype=torch.int32)
    named("HansEncode", input=x, statistic=True, reshuff=reshuff, **made)
    return made


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("fixed", "var", "reshuff"), [(COUNT, 512, True), (COUNT // 2, COUNT, False)])
def test_a_tensor_is_decoded_bit_by_bit(dtype: torch.dtype, fixed: int, var: int, reshuff: bool) -> None:
    size = torch.finfo(dtype).bits
    limit = 1 << (size - 1)
    integer = torch.int32 if size == 32 else torch.int16
    x = torch.randint(-limit, limit, (64, COUNT // 64)).to(integer).view(dtype)  # NaN and infinities too
    made, out = encoded(x, fixed, var, reshuff), torch.zeros_like(x)
    named("HansDecode", **made, reshuff=reshuff, out=out)
    assert torch.equal(bits(out), bits(x))
    if dtype != torch.float16:
        exponents = bits(x).long() >> (size - 9) & 255
        assert torch.equal(made["pdf"], torch.bincount(exponents.view(-1), minlength=256).int())


def test_memory_that_is_too_small_is_refused() -> None:
    x = torch.randn(COUNT)
    with pytest.raises(ValueError, match="fixed and var have 16896 bytes, expected at least 32768"):
        encoded(x, 512, COUNT // 2)
    with pytest.raises(ValueError, match="fixed has 16384 bytes, expected at least 32768"):
        encoded(x, COUNT // 2, COUNT, reshuff=True)
    with pytest.raises(ValueError, match="32 elements, expected a multiple of 64"):
        encoded(x[:32], COUNT, COUNT)
