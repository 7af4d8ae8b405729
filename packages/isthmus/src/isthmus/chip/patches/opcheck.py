"""``torch.library.opcheck`` on chip tensors: its test of an operator's autograd admits the devices of one list."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from isthmus_common.patches import Scope

_MODULE = "torch.testing._internal.optests.generate_tests"
_KEYS = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
_scope = Scope("chip")


def install() -> None:
    """Let opcheck test the chip's autograd key, once PyTorch's module of it is imported."""
    if not _scope.patches:
        _scope.when_imported(_MODULE, _admit, "opcheck tests operators on chip tensors")


def uninstall() -> None:
    """Restore PyTorch's list of devices."""
    _scope.undo()


def _admit() -> None:
    _scope.replace(
        f"{_MODULE}.autograd_registration_check",
        _of_the_chip,
        "opcheck tests operators on chip tensors",
        expects=("op", "args", "kwargs"),
    )


def _of_the_chip(original: Callable[..., None]) -> Callable[..., None]:
    def check(op: Any, args: Any, kwargs: Any) -> None:
        given = [each for each in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(each, torch.Tensor)]
        on_chip = any(tensor.device.type == "chip" for tensor in given)
        if not on_chip or not any(tensor.requires_grad for tensor in given):
            original(op, args, kwargs)
        elif not any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in _KEYS):
            _check_results(op, args, kwargs, given)

    return check


def _check_results(op: Any, args: Any, kwargs: Any, given: list[torch.Tensor]) -> None:
    """Without an autograd kernel, a result with a gradient comes from operators inside the backend's kernel.

    Raises:
        AssertionError: there is such a result.
    """
    mode = torch._C._get_autograd_fallback_mode()
    torch._C._set_autograd_fallback_mode("nothing")
    try:
        results = pytree.tree_leaves(op(*args, **kwargs))
    finally:
        torch._C._set_autograd_fallback_mode(mode)
    inputs = set(map(id, given))
    if any(
        isinstance(each, torch.Tensor) and each.requires_grad and id(each) not in inputs for each in results
    ):
        raise AssertionError(
            f"{op.name()}: a result requires a gradient, but the operator has no kernel at an autograd key; "
            "register its autograd at Autograd, not at PrivateUse1, or the operator as CompositeImplicitAutograd"
        )
