"""Save the arguments and results of calls, to replay them elsewhere.

Each call has a folder with ``call.json`` and ``tensors.safetensors``. A tensor is stored as all elements from its
first to its last in memory, which keeps its strides.
"""

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from isthmus_common.files import make_folder, write_file
from isthmus_diagnostics.debug import intercept, record
from isthmus_diagnostics.debug.call import Call
from isthmus_diagnostics.debug.call_origin import origin
from isthmus_diagnostics.debug.reference import is_random

FORMAT = 1
CALL, TENSORS = "call.json", "tensors.safetensors"


class Capture:
    """A probe that saves calls until a limit is reached.

    Args:
        folder: destination, created with mode 0750, files 0640; None: ``capture`` in ISTHMUS_DEBUG_FOLDER.
        calls: limit of calls per operator.
        nbytes: limit of bytes of all calls together.
    """

    name = "capture"
    nearest = False

    def __init__(self, folder: Path | None = None, calls: int = 16, nbytes: int = 1 << 30) -> None:
        self.folder = folder or record.folder_path() / "capture"
        self.limit_calls = calls
        self.limit_bytes = nbytes
        self.saved: dict[str, int] = {}
        self.nbytes = 0
        self.left_out = 0
        self._lock = threading.Lock()

    def around(self, call: Call, proceed: intercept.Proceed) -> Any:
        """Run one call and save it."""
        if self.saved.get(call.name, 0) >= self.limit_calls:
            self.left_out += 1
            return proceed()
        where = origin(any(tensor.requires_grad for _, tensor in call.inputs()))
        tensors: dict[str, torch.Tensor] = {}
        with intercept.hide_calls():
            if any(t.layout != torch.strided for _, t in call.inputs()):
                return proceed()
            arguments = {name: _store(name, value, tensors) for name, value in call.arguments.items()}
        returned = proceed()
        with intercept.hide_calls():
            results = [
                {"name": name, **_store(f"result{i}", tensor, tensors)}
                for i, (name, tensor) in enumerate(call.results(returned))
            ]
            document = {
                "format": FORMAT,
                "operator": call.name,
                "schema": str(call.op._schema),
                "line": str(where),
                "random": is_random(call),
                "arguments": arguments,
                "results": results,
            }
            self._save(call.name, document, tensors)
        return returned

    def _save(self, name: str, document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        size = sum(tensor.nbytes for tensor in tensors.values())
        with self._lock:
            if self.nbytes + size > self.limit_bytes:
                self.left_out += 1
                return
            self.nbytes += size
            number = sum(self.saved.values())
            self.saved[name] = self.saved.get(name, 0) + 1
        make_folder(self.folder)
        title = f"{os.getpid()}-{number:06d}-{name.replace('::', '.')}"
        beside = self.folder / f".{title}"
        make_folder(beside)
        try:
            write_file(beside / TENSORS, safetensors.torch.save(tensors))
            write_file(beside / CALL, json.dumps(document, indent=1).encode())
            beside.rename(self.folder / title)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def summary(self) -> str:
        """Return a summary in one line."""
        count = sum(self.saved.values())
        left = f"; {self.left_out} more not saved, beyond the limits" if self.left_out else ""
        return f"capture: {count} calls of {len(self.saved)} operators ({self.nbytes} bytes) in {self.folder}{left}"


def _store(key: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return a value as JSON; its tensors go to `tensors`."""
    if isinstance(value, torch.Tensor):
        return _store_tensor(key, value, tensors)
    if isinstance(value, (tuple, list)):
        return {"list": [_store(f"{key}.{i}", item, tensors) for i, item in enumerate(value)]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    for kind in (torch.dtype, torch.layout, torch.memory_format):
        if isinstance(value, kind):
            return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, float):
        return {"float": repr(value)}  # JSON has neither NaN nor infinity
    if value is None or isinstance(value, (bool, int, str)):
        return {"value": value}
    return {"omitted": type(value).__name__}


def _store_tensor(key: str, tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    host = tensor.detach().resolve_conj().resolve_neg()
    span = 1 + sum((n - 1) * s for n, s in zip(host.shape, host.stride(), strict=True)) if host.numel() else 0
    if span > 4 * host.numel() and span > 1024:  # a few elements of a large tensor
        host = host.contiguous()
        span = host.numel()
    row = host.as_strided((span,), (1,)).to("cpu", copy=True)
    name = str(row.dtype).removeprefix("torch.")
    tensors[key] = torch.view_as_real(row).contiguous() if row.is_complex() else row
    place = {"tensor": key, "dtype": name, "shape": list(host.shape), "strides": list(host.stride())}
    return {**place, "device": tensor.device.type}
