"""Methods of tensors and storages that name CUDA: ``x.cuda()``, ``x.to("cuda")``, ``x.type()``, ``storage.cuda()``.

``torch.nn.Module.cuda()`` calls ``Tensor.cuda`` for each parameter, so it needs no patch of its own.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from isthmus.shim import rules
from isthmus.shim.accelerator import Accelerator
from isthmus.shim.devices import translate_first, translate_keyword
from isthmus_common.patches import Scope
from isthmus_common.tensor_types import TENSOR_TYPES


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Redirect the methods of tensors and storages from CUDA to the accelerator."""
    for name in rules.TENSOR_KEYWORD:
        scope.replace(
            f"torch.Tensor.{name}",
            functools.partial(translate_keyword, accelerator),
            f"{name}(device='cuda')",
        )
    for name in rules.TENSOR_FIRST:
        scope.replace(
            f"torch.Tensor.{name}",
            functools.partial(translate_first, accelerator, "device", 1),
            f"{name}('cuda')",
        )
    scope.replace(
        "torch.Tensor.cuda", lambda _: _tensor_cuda(accelerator), "x.cuda() moves to the accelerator"
    )
    scope.replace(
        "torch.Tensor.type",
        functools.partial(_tensor_type, accelerator),
        "x.type() reads and takes 'torch.cuda.FloatTensor'",
    )
    scope.replace(
        "torch.nn.parameter.UninitializedTensorMixin._allowed_methods",
        lambda allowed: [*allowed, torch.Tensor.to, torch.Tensor.cuda],
        "lazy modules move their parameters by the proxies",
    )
    scope.replace(
        "torch.set_default_tensor_type",
        functools.partial(_default_tensor_type, accelerator),
        "'torch.cuda.FloatTensor' sets the default dtype and device",
    )
    scope.record(
        "torch.Tensor.__new__", "torch.Tensor(...) makes tensors of the default type", _plain_constructor
    )
    _storage_methods(scope, accelerator)


def _tensor_cuda(accelerator: Accelerator) -> Callable[..., Any]:
    def cuda(
        self: torch.Tensor,
        device: Any = None,
        non_blocking: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        """Copy the tensor to the accelerator; the tensor itself if already there."""
        target = accelerator.type if device is None else accelerator_device(accelerator, device)
        return self.to(target, non_blocking=non_blocking, memory_format=memory_format)

    return cuda


def accelerator_device(accelerator: Accelerator, device: Any) -> torch.device:
    """The device of ``cuda(device)``; None is the current device."""
    if device is None:
        return torch.device(accelerator.type, accelerator.module.current_device())
    if isinstance(device, int):
        return torch.device(accelerator.type, device)
    return torch.device(accelerator.device(device))


def _tensor_type(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    ours, cuda = accelerator.tensor_types, "torch.cuda."

    @functools.wraps(original)
    def function(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if dtype is None:
            return original(self, **kwargs).replace(ours, cuda)
        if isinstance(dtype, str):
            dtype = dtype.replace(cuda, ours)
        elif is_tensor_type(dtype, accelerator):
            return self.to(device=accelerator_device(accelerator, None), dtype=dtype.dtype)
        return original(self, dtype, non_blocking, **kwargs)

    return function


def is_tensor_type(value: Any, accelerator: Accelerator) -> bool:
    """Whether value is a tensor type of the accelerator, such as ``torch.cuda.FloatTensor`` under the shim."""
    return isinstance(value, type) and any(
        value is getattr(accelerator.module, name, None) for name in TENSOR_TYPES
    )


def _default_tensor_type(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    by_name = {f"torch.cuda.{name}": getattr(torch, dtype) for name, dtype in TENSOR_TYPES.items()}

    @functools.wraps(original)
    def function(t: Any) -> None:
        dtype = by_name.get(t) if isinstance(t, str) else None
        if is_tensor_type(t, accelerator):
            dtype = t.dtype
        _plain_constructor()
        if dtype is None:
            original(t)
            torch.set_default_device(None)
        else:
            torch.set_default_dtype(dtype)
            torch.set_default_device(accelerator.type)
            torch.Tensor.__new__ = _constructor(accelerator)  # type: ignore[method-assign, assignment]

    return function


def _constructor(accelerator: Accelerator) -> Callable[..., torch.Tensor]:
    """``torch.Tensor(...)``, which does not ask for the default device but for the default tensor type.

    Its signature is that of PyTorch's, which torch._dynamo compares when it is first imported, as by an optimizer.
    """

    def new(*args: Any, **kwargs: Any) -> torch.Tensor:
        made: torch.Tensor = torch._C.TensorBase.__new__(*args, **kwargs)
        takes_device = "device" in kwargs or any(isinstance(each, torch.Tensor) for each in args)
        return made if takes_device else made.to(accelerator.type)

    return new


def _plain_constructor() -> None:
    """Restore the constructor of ``torch.Tensor``."""
    if "__new__" in vars(torch.Tensor):
        del torch.Tensor.__new__


def _storage_methods(scope: Scope, accelerator: Accelerator) -> None:
    for storage in ("UntypedStorage", "TypedStorage"):
        scope.replace(
            f"torch.{storage}.cuda",
            functools.partial(_storage_cuda, accelerator),
            "storage.cuda() moves to the accelerator",
        )
    scope.replace(
        "torch.UntypedStorage.__new__",
        functools.partial(_new_storage, accelerator),
        "UntypedStorage(8, device='cuda')",
    )


def _storage_cuda(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    def cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
        """Copy the storage to the accelerator."""
        return self.to(device=accelerator_device(accelerator, device), non_blocking=non_blocking)

    return cuda


def _new_storage(accelerator: Accelerator, original: Callable[..., Any]) -> Callable[..., Any]:
    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = accelerator.numbered_device(kwargs["device"])
        return original(cls, *args, **kwargs)

    return new
