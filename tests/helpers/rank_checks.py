"""Helpers for checks run by two ranks, each on its own chip."""

from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor

TIMEOUT = timedelta(seconds=20)
CHECKS: dict[str, Callable[[int, torch.device], None]] = {}
Check = Callable[[int, torch.device], None]


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def equal(result: Tensor, expected: object) -> None:
    assert result.device.type == "chip", result.device
    torch.testing.assert_close(result.cpu(), torch.as_tensor(expected, dtype=result.dtype), rtol=0, atol=0)


def raises(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"did not raise {kind.__name__}")


def numbers(rank: int, device: torch.device, count: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    """0, 1, 2, ... on rank 0 and 10, 11, 12, ... on rank 1."""
    return (torch.arange(count, device=device) + 10 * rank).to(dtype)
