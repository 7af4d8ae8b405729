"""Show programs the accelerator's devices, tensors and storages under the names of CUDA.

The type and text of a device, and ``is_cuda``, answer by who asks: PyTorch and Isthmus read the accelerator's real
name, all other code reads ``cuda``. So an installed library that compares ``device.type`` with ``"cuda"`` takes the
path of CUDA, as the user's own code, a notebook's cell and generated source do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from isthmus import _C
from isthmus.shim import rules
from isthmus.shim.accelerator import CPU, CUDA, Accelerator
from isthmus_common.patches import Scope
from isthmus_common.tensor_types import TENSOR_TYPES

_WITH_IS_CUDA = ("torch.UntypedStorage", "torch.TypedStorage", "torch.nn.utils.rnn.PackedSequence")


def install(scope: Scope, accelerator: Accelerator) -> None:
    """Show the accelerator's devices as CUDA's."""
    _C.show_as_cuda(accelerator.type)
    scope.record(
        "torch.device: type, str, repr; torch.Tensor.is_cuda",
        "programs check device.type == 'cuda' and x.is_cuda",
        lambda: _C.show_as_cuda(""),
    )
    for target in _WITH_IS_CUDA:
        scope.replace(f"{target}.is_cuda", functools.partial(_is_cuda, accelerator), "programs check is_cuda")
    for name in TENSOR_TYPES if accelerator.type != CPU else ():  # the CPU's are written in C
        kind = getattr(accelerator.module, name, None)
        if kind is not None:
            target = f"torch.cuda.{name}.is_cuda"
            scope.set(kind, "is_cuda", True, target, "programs check the type of a tensor")
    scope.replace(
        "torch._tensor_str._str",
        functools.partial(_shown, accelerator),
        "a tensor's text has its device, as CUDA's",
        expects=("self",),
    )
    scope.when_imported(
        "torch.distributed.device_mesh",
        lambda: scope.replace(
            "torch.distributed.device_mesh.DeviceMesh.device_type",
            functools.partial(_device_type, accelerator),
            "programs check mesh.device_type == 'cuda'",
        ),
        "programs check mesh.device_type == 'cuda'",
    )
    owner = torch.nn.parallel.DistributedDataParallel
    named = _NamedType(accelerator)
    scope.set(
        owner,
        "device_type",
        named,
        "torch.nn.parallel.DistributedDataParallel.device_type",
        "programs check it too",
    )
    _set_version(scope)
    scope.when_imported(
        "torch._dynamo.symbolic_convert",
        functools.partial(_install_in_graphs, scope),
        "compiled programs read the same",
    )


def is_read_by_program(depth: int = 2) -> bool:
    """Whether the caller's caller is neither PyTorch nor Isthmus."""
    return not _C.reads_real_names(sys._getframe(depth).f_globals.get("__name__"))


def _is_cuda(accelerator: Accelerator, original: property) -> property:
    def is_cuda(self: Any) -> bool:
        """Whether it is on the accelerator, for programs."""
        if not is_read_by_program():
            return bool(original.__get__(self))
        if accelerator.type == CPU and torch.utils.data.get_worker_info() is not None:
            return False
        value = self.data if isinstance(self, torch.nn.utils.rnn.PackedSequence) else self
        return bool(value.device.type == accelerator.type)

    return property(is_cuda)


def _shown(accelerator: Accelerator, original: Callable[..., str]) -> Callable[..., str]:
    real, cuda = f"device='{accelerator.type}", f"device='{CUDA}"

    @functools.wraps(original)
    def text(self: torch.Tensor, *args: Any, **kwargs: Any) -> str:
        return original(self, *args, **kwargs).replace(real, cuda)

    return text


def _device_type(accelerator: Accelerator, original: property) -> property:
    def device_type(self: Any) -> str:
        """The device type of the mesh."""
        found: str = original.__get__(self)
        return CUDA if found == accelerator.type and is_read_by_program() else found

    return property(device_type)


class _NamedType:
    """The attribute ``device_type`` of instances."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._real = accelerator.type

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        try:
            found = vars(instance)["device_type"]
        except KeyError:
            raise AttributeError(f"{owner.__name__!r} object has no attribute 'device_type'") from None
        return CUDA if found == self._real and is_read_by_program() else found

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["device_type"] = value


def _set_version(scope: Scope) -> None:
    class Version(ModuleType):
        """The module torch.version, with CUDA's version for programs."""

        @property
        def cuda(self) -> Any:
            """The version of CUDA."""
            return rules.CUDA_VERSION if is_read_by_program() else vars(self)["cuda"]

        @cuda.setter
        def cuda(self, value: Any) -> None:
            vars(self)["cuda"] = value

    torch.version.__class__ = Version
    scope.record("torch.version.cuda", "programs compare it", _restore_version)


def _restore_version() -> None:
    torch.version.__class__ = ModuleType


# ---- torch.compile -------------------------------------------------------------------------------------------
def _install_in_graphs(scope: Scope) -> None:
    scope.replace(
        "torch._dynamo.symbolic_convert.InstructionTranslatorBase.step",
        _with_who_asks,
        "a compiled program reads what it reads uncompiled",
        expects=("self",),
    )


def _with_who_asks(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(original)
    def step(self: Any) -> bool:
        before = _C.trace_program(not _C.reads_real_names(self.f_globals.get("__name__")))
        try:
            return original(self)
        finally:
            _C.trace_program(before)

    return step
