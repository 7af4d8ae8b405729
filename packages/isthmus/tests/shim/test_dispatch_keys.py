"""Dispatch keys of CUDA as objects, and operators with rules for autocast."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from isthmus import shim
from isthmus_common.patches import Scope

KEY = torch._C.DispatchKey
SET = torch._C.DispatchKeySet


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    held = torch.library.Library("dispatch_keys", "DEF")
    held.define("twice(Tensor x) -> Tensor")
    yield held
    held._destroy()


def excluding(keys: Callable[[], SET]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A kernel for autocast that calls its operator without the keys."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        with torch._C._ExcludeDispatchKeyGuard(keys()):
            return torch.ops.dispatch_keys.twice(x.float())

    return kernel


@pytest.mark.parametrize(
    "keys",
    [
        lambda: SET(KEY.AutocastCUDA),
        lambda: SET(KEY.AutocastCPU) | SET(KEY.AutocastCUDA) | SET(KEY.AutocastXPU),
        lambda: SET(KEY.AutocastCPU).add(KEY.AutocastCUDA),
        lambda: (SET(KEY.AutocastCUDA) | SET(KEY.AutocastCPU)) - SET(KEY.AutocastCPU),
        lambda: torch._C._dispatch_tls_local_exclude_set() | SET(getattr(KEY, "AutocastCUDA")),  # noqa: B009
    ],
    ids=["one", "union", "added", "difference", "of the thread"],
)
def test_a_kernel_for_autocast_excludes_its_own_key(
    cuda: Scope, library: torch.library.Library, keys: Callable[[], SET]
) -> None:
    library.impl("twice", lambda x: x * 2, "CUDA")
    library.impl("twice", excluding(keys), "AutocastCUDA")
    x = torch.ones((), device="cuda", dtype=torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.autocast("cuda", dtype=torch.float16):
        result = torch.ops.dispatch_keys.twice(x)
    assert result.item() == 2 and result.dtype == torch.float32
    assert torch.ops.dispatch_keys.twice(x).dtype == torch.bfloat16  # the rule is autocast's


def test_states_of_the_thread(cuda: Scope, library: torch.library.Library) -> None:
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    assert excluded(KEY.AutocastCUDA)
    with torch.autocast("cuda"):
        assert not excluded(KEY.AutocastCUDA)
        torch._C._dispatch_tls_set_dispatch_key_excluded(KEY.AutocastCUDA, True)
        assert excluded(KEY.AutocastCUDA) and not torch.is_autocast_enabled("cuda")
        torch._C._dispatch_tls_set_dispatch_key_excluded(KEY.AutocastCUDA, False)
    assert torch._C._dispatch_keys(torch.ones(1, device="cuda")).has(KEY.CUDA)
    assert not torch._C._dispatch_keys(torch.ones(1)).has(KEY.CUDA)


def test_a_kernel_with_keys_redispatches_below_its_own(cuda: Scope, library: torch.library.Library) -> None:
    def kernel(keys: SET, x: torch.Tensor) -> torch.Tensor:
        assert keys.has(KEY.AutocastCUDA) or keys.has(KEY.AutogradCUDA)
        return torch.ops.dispatch_keys.twice.default.redispatch(keys - SET(KEY.AutocastCUDA), x.double())

    library.impl("twice", lambda x: x * 2, "CUDA")
    library.impl("twice", kernel, "AutocastCUDA", with_keyset=True)
    with torch.autocast("cuda"):
        assert torch.ops.dispatch_keys.twice(torch.ones(1, device="cuda")).dtype == torch.float64


@pytest.mark.parametrize("types", ["cuda", ["cpu", "cuda"], None])
@pytest.mark.parametrize("by_function", [True, False])
def test_rules_of_custom_operators(cuda: Scope, types: str | list[str] | None, by_function: bool) -> None:
    named = types if isinstance(types, str) else "_".join(types or ["all"])
    name = f"dispatch_keys_of_{named}_{by_function}::twice"

    @torch.library.custom_op(name, mutates_args=(), device_types=types)
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def gradient(ctx: object, upstream: torch.Tensor) -> torch.Tensor:
        return upstream * 2

    if by_function:
        torch.library.register_autocast(name, "cuda", torch.float32)
        torch.library.register_autograd(name, gradient)
    else:
        twice.register_autograd(gradient)
        twice.register_autocast("cuda", torch.float32)
    x = torch.ones(1, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = twice(x)
        assert result.dtype == torch.float32 and result.item() == 2
        assert twice(x.double()).dtype == torch.float64
        with torch.autocast("cuda", enabled=False):
            assert twice(x).dtype == torch.bfloat16
    result.backward()
    assert x.grad is not None and x.grad.item() == 2 and x.grad.dtype == torch.bfloat16


def test_keys_are_pytorchs_after_the_scope() -> None:
    with shim.enter():
        assert SET(KEY.AutocastCUDA) == SET(KEY.AutocastPrivateUse1)
    assert SET(KEY.AutocastCUDA) != SET(KEY.AutocastPrivateUse1)


@pytest.mark.parametrize("order", [("AutocastCPU", "AutocastCUDA"), ("AutocastCUDA", "AutocastCPU")])
def test_the_cpus_own_kernels_are_kept_where_it_replaces_cuda(
    order: tuple[str, str], library: torch.library.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_DEVICE", "cpu")
    with shim.enter(), warnings.catch_warnings():
        warnings.simplefilter("error")
        library.impl("twice", lambda x: x * 2, "CUDA")
        assert torch.ops.dispatch_keys.twice(torch.ones(1, device="cuda")).item() == 2
        library.impl("twice", lambda x: x * 3, "CPU")
        library.impl("twice", lambda x: x * 4, "CUDA")
        assert torch.ops.dispatch_keys.twice(torch.ones(1, device="cuda")).item() == 3
        for key in order:
            library.impl("twice", excluding(lambda: SET(KEY.AutocastCUDA) | SET(KEY.AutocastCPU)), key)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert (
                torch.ops.dispatch_keys.twice(torch.ones(1, device="cuda").bfloat16()).dtype == torch.float32
            )


PACKAGES = {
    "cpu first": """
library.impl("twice", lambda x: x * 3, "CPU")
library.impl("twice", lambda x: x * 4, "CUDA")
""",
    "cuda first": """
library.impl("twice", lambda x: x * 4, "CUDA")
library.impl("twice", lambda x: x * 3, "CPU")
""",
    "a library for each": """
held = [torch.library.Library("dispatch_keys", "IMPL", key) for key in ("CUDA", "CPU")]
for each, factor in zip(held, (4, 3)):
    each.impl("twice", lambda x, factor=factor: x * factor)
""",
    "register_kernel": """
torch.library.register_kernel("dispatch_keys::twice", "cpu", lambda x: x * 3, lib=library)
torch.library.register_kernel("dispatch_keys::twice", "cuda", lambda x: x * 4, lib=library)
""",
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_with_kernels_for_both_devices_says_nothing(
    name: str,
    library: torch.library.Library,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """PyTorch's warning of an overridden kernel, of Python and of C++, would be of the shim's making."""
    monkeypatch.setenv("ISTHMUS_DEVICE", "cpu")
    with shim.enter(), warnings.catch_warnings():
        warnings.simplefilter("error")
        names: dict[str, Any] = {"torch": torch, "library": library, "held": []}
        exec(PACKAGES[name], names)
        assert torch.ops.dispatch_keys.twice(torch.ones(1, device="cuda")).item() == 3
        for each in names["held"]:
            each._destroy()
    assert "Overriding" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("SparseCUDA", lambda x: x.to_sparse()),
        ("SparseCsrCUDA", lambda x: x.to_sparse_csr()),
        ("QuantizedCUDA", lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)),
    ],
)
def test_kernels_for_cudas_other_layouts_serve_the_accelerators(
    cuda: Scope, library: torch.library.Library, key: str, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    library.impl("twice", lambda x: torch.full((), 2.0), key)
    assert torch.ops.dispatch_keys.twice(make(torch.eye(2, device="cuda"))).item() == 2
