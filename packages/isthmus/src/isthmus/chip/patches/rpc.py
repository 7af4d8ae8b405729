"""``torch.distributed.rpc`` with chip tensors: device maps are honoured, and the data is moved through the CPU.

TensorPipe transports memory of the CPU and of CUDA. So a request has CPU tensors, and the devices to which the
caller's map takes them. A reply has CPU tensors and their devices; the caller applies the inverse, as for CUDA.
"""

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

import torch

from isthmus_common.patches import Scope

_RPC = "torch.distributed.rpc"
_REASON = "device maps may name chips, whose tensors are moved through the CPU"
_logger = logging.getLogger("isthmus")
_scope = Scope("chip")
_request = (
    threading.local()
)  # its destination: the name of the worker that the calling thread's request goes to

DeviceMap = dict[torch.device, torch.device]
_maps: dict[str, DeviceMap] = {}  # device maps of this process's agent, by name of the other worker


def install() -> None:
    """Let RPC take chip tensors, once PyTorch's package of it is imported."""
    if not _scope.patches:
        _scope.when_imported(_RPC, _patch, _REASON)


def uninstall() -> None:
    """Restore PyTorch's functions."""
    _scope.undo()


def _patch() -> None:
    from torch.distributed.rpc.internal import _internal_rpc_pickler, _InternalRPCPickler

    options = f"{_RPC}.options.TensorPipeRpcBackendOptions"
    _scope.replace(f"{options}.__init__", _options, _REASON, expects=("self",))
    _scope.replace(f"{options}.set_device_map", _set_map, _REASON, expects=("self", "to", "device_map"))
    _scope.replace(f"{options}.set_devices", _set_devices, _REASON, expects=("self", "devices"))
    _scope.replace(f"{_RPC}.backend_registry.init_backend", _start, _REASON, expects=("backend",))
    _scope.replace(f"{_RPC}.api._invoke_rpc", _to_destination, _REASON, expects=("to", "func", "rpc_type"))
    for module in (f"{_RPC}.api", _RPC):
        _scope.replace(f"{module}.remote", _to_destination, _REASON, expects=("to", "func"))
    _scope.replace(
        f"{_RPC}.internal._InternalRPCPickler._tensor_reducer", _reduce, _REASON, expects=("self", "tensor")
    )
    _scope.replace(
        f"{_RPC}.internal._InternalRPCPickler.serialize", _serialize, _REASON, expects=("self", "obj")
    )
    table = _internal_rpc_pickler._dispatch_table  # made before, with the original
    original = table[torch.Tensor]
    table[torch.Tensor] = functools.partial(_InternalRPCPickler._tensor_reducer, _internal_rpc_pickler)
    _scope.record(f"{_RPC}.internal: dispatch_table", _REASON, lambda: table.update({torch.Tensor: original}))


# ---- device maps ---------------------------------------------------------------------------------------------
def _options(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *, device_maps: Any = None, devices: Any = None, **options: Any) -> None:
        self._chip_maps = {}
        original(self, devices=_not_chips(devices), **options)
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)

    return init


def _set_map(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_device_map(self: Any, to: str, device_map: dict[Any, Any]) -> None:
        from torch.distributed.rpc.options import _to_device_map

        given = _to_device_map(device_map)
        chips = {source: target for source, target in given.items() if "chip" in (source.type, target.type)}
        if mixed := {str(s): str(t) for s, t in chips.items() if s.type != t.type}:
            raise ValueError(
                f"set_device_map: a chip is mapped to a chip, got {mixed}; send tensor.cpu() instead"
            )
        known = self._chip_maps.setdefault(to, {})
        for source, target in chips.items():
            if known.get(source, target) != target:
                raise ValueError(f"set_device_map: {source} is mapped to {known[source]} of {to!r} already")
        known.update(chips)
        _to_device_map(known)  # raises if two map to one
        if rest := {source: target for source, target in given.items() if source not in chips}:
            original(self, to, rest)

    return set_device_map


def _set_devices(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def set_devices(self: Any, devices: list[Any]) -> None:
        original(self, _not_chips(devices))

    return set_devices


def _not_chips(devices: list[Any] | None) -> list[Any] | None:
    """The devices whose streams TensorPipe must order; tensors of chips are complete before they are sent."""
    return devices and [each for each in devices if torch.device(each).type != "chip"]


def _start(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_backend(backend: Any, *args: Any, **options: Any) -> Any:
        _maps.clear()
        _maps.update(getattr(options.get("rpc_backend_options"), "_chip_maps", {}))
        if _maps:
            _logger.warning("isthmus: RPC moves chip tensors through the CPU")
        return original(backend, *args, **options)

    return init_backend


# ---- tensors -------------------------------------------------------------------------------------------------
def _to_destination(original: Callable[..., Any]) -> Callable[..., Any]:
    """Note where a request goes while it is pickled; an operator is pickled too, if its tensors move to a chip."""

    @functools.wraps(original)
    def invoke(to: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        from torch.distributed.rpc.api import _to_worker_info

        name = _to_worker_info(to).name
        if name in _maps and torch.jit._builtins._find_builtin(func) is not None:
            func = functools.partial(func)
        former = getattr(_request, "destination", None)
        _request.destination = name
        try:
            return original(to, func, *args, **kwargs)
        finally:
            _request.destination = former

    return invoke


def _serialize(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def serialize(self: Any, obj: Any) -> Any:
        binary, tensors = original(self, obj)
        destination = getattr(_request, "destination", None)
        if destination is None:
            return binary, tensors
        from torch.distributed.rpc.internal import PythonUDF

        targets = [_target(tensor.device, destination) for tensor in tensors]
        if all(tensor.device == target for tensor, target in zip(tensors, targets, strict=True)):
            return binary, tensors
        return original(self, PythonUDF(_run, (binary, [tensor.cpu() for tensor in tensors], targets), {}))

    return serialize


def _target(device: torch.device, destination: str) -> torch.device:
    target = _maps.get(destination, {}).get(device)
    if target is None and device.type == "chip":
        raise RuntimeError(
            f"RPC has no device map from {device} to worker {destination!r}; call "
            f"set_device_map({destination!r}, {{{str(device)!r}: ...}}) on TensorPipeRpcBackendOptions before "
            "init_rpc, or send tensor.cpu()"
        )
    return target or device


def _run(binary: bytes, tensors: list[torch.Tensor], targets: list[torch.device]) -> Any:
    """Call the function of a request, unpickled here: distributed autograd has attached its tensors by now."""
    from torch.distributed.rpc import internal

    moved = [tensor.to(target) for tensor, target in zip(tensors, targets, strict=True)]
    return internal._run_function(internal.deserialize(binary, moved))


def _reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pickle a tensor of a reply with this worker's name and its device."""

    @functools.wraps(original)
    def reducer(self: Any, tensor: torch.Tensor) -> Any:
        if tensor.device.type != "chip" or getattr(_request, "destination", None) is not None:
            return original(self, tensor)
        receive, index = original(self, tensor.cpu())
        return _receive_reply, (receive, index, _worker(), tensor.device)

    return reducer


def _worker() -> str:
    from torch._C._distributed_rpc import _get_current_rpc_agent

    return str(_get_current_rpc_agent().get_worker_info().name)


def _receive_reply(
    receive: Callable[..., torch.Tensor], index: Any, worker: str, device: torch.device
) -> torch.Tensor:
    """A tensor of another worker's chip, on the chip of this one that is mapped to it.

    Raises:
        RuntimeError: no chip is mapped to it.
    """
    inverse = {target: source for source, target in _maps.get(worker, {}).items()}
    if device not in inverse:
        raise RuntimeError(
            f"RPC has no device map for a reply on {device} of worker {worker!r}; map one of this worker's devices "
            f"to it by set_device_map({worker!r}, ...) before init_rpc, or return tensor.cpu()"
        )
    return receive(*index).to(inverse[device])
