"""Recorder inside a process of a verified run; it stops the process after the requested steps.

It patches PyTorch right after its import, before the shim.
"""

import atexit
import functools
import hashlib
import os
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus import options
from isthmus_common.after_import import when_imported
from isthmus_common.ranks import rank
from isthmus_migrate.verify.record import VARIABLE, Record, Request

# Seconds. A process group's thread that frees the last reference to a Python tensor needs the interpreter's lock; it
# aborts the process if the interpreter has already finalized.
_LET_GO = 0.2
_UNSCALED = "_isthmus_unscaled"
_SYNC = (
    "outside this command it fails: SyncBatchNorm on the CPU, which PyTorch itself refuses with several ranks"
)


def start() -> None:
    """Record this process once it imports PyTorch, if it belongs to a verified run."""
    folder = os.environ.get(VARIABLE, "")
    if folder:
        random.seed(Request.read(Path(folder)).seed)
        when_imported("torch", functools.partial(_record, Path(folder)))


def _record(folder: Path) -> None:
    Recorder(folder, Request.read(folder)).start()


class Recorder:
    """Records one process.

    Args:
        folder: destination of the record.
        request: the request.
    """

    def __init__(self, folder: Path, request: Request) -> None:
        from isthmus_migrate.verify.line_tracer import LineTracer

        self._folder = folder
        self._request = request
        self._record = Record()
        self._lines = LineTracer(request.watched)
        self._optimizers: list[Any] = []
        self._moments: list[float] = []
        self._process = os.getpid()

    def start(self) -> None:
        """Seed all generators and install the hooks."""
        import numpy as np
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        from isthmus.shim import sync_batch_norm
        from isthmus_common.patches import Scope
        from isthmus_migrate.verify.draws import share_generator

        share_generator()
        if self._request.noise:
            from isthmus_migrate.verify.noise import Noise

            Noise(self._request.noise, self._request.seed).__enter__()
        if self._request.in_order:
            from isthmus_migrate.verify.shares import share

            share(self._request.seed, self._note)
        torch.manual_seed(self._request.seed)
        np.random.seed(self._request.seed)
        register_optimizer_step_post_hook(self._on_step)
        torch.autograd.backward = self._recording(torch.autograd.backward)
        torch.amp.GradScaler.scale = _scaling(torch.amp.GradScaler.scale)  # type: ignore[method-assign]
        if not options.switch("shim") and torch.accelerator.current_accelerator(check_available=True) is None:
            sync_batch_norm.install(Scope("verify"), self._note_sync)
        atexit.register(self._finish_at_exit)
        self._lines.start()

    def _note(self, what: str) -> None:
        if what not in self._record.stand_ins:
            self._record.stand_ins.append(what)

    def _note_sync(self) -> None:
        if not self._record.stand_ins:  # else it stands in for BatchNorm
            self._note(_SYNC)

    def _recording(self, backward: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(backward)
        def recorded(tensors: Any, *args: Any, **kwargs: Any) -> None:
            for tensor in tensors if isinstance(tensors, (list, tuple)) else [tensors]:
                loss: Any = getattr(tensor, _UNSCALED, tensor)
                value = loss.detach().cpu()
                value = value.abs() if value.is_complex() else value.double()
                self._record.losses.append(value.item() if value.numel() == 1 else value.norm().item())
            backward(tensors, *args, **kwargs)

        return recorded

    def _on_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if all(each is not optimizer for each in self._optimizers):
            self._optimizers.append(optimizer)
        self._moments.append(time.perf_counter())
        self._record.steps += 1
        if self._record.steps == self._request.steps:
            self._record.ended = True
            self._finish()
        if self._record.ended:
            raise SystemExit(0)  # through the program's own clean-up

    def _finish_at_exit(self) -> None:
        """Finish at exit; a process that was stopped early has not destroyed its process group."""
        torch = sys.modules.get("torch")
        if torch is None:  # its import failed
            return
        self._finish()
        if self._record.ended and torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        if "RANK" in os.environ:
            time.sleep(_LET_GO)

    def _finish(self) -> None:
        """Write the record once, only in this process, and only if it is not empty."""
        if self._process != os.getpid():
            return
        self._process = 0
        sys.settrace(None)
        record = self._record
        record.executed = dict(self._lines.executed)
        record.files = _files(self._request.root)
        record.rank = rank()
        record.device = _answers()
        if record.trained:
            self._add_facts()
        if record.trained or record.files:
            record.write(self._folder)

    def _add_facts(self) -> None:
        record = self._record
        record.random = _generators()
        between = [after - before for before, after in zip(self._moments, self._moments[1:], strict=False)]
        record.step_seconds = statistics.median(between) if between else 0.0
        record.host_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        record.device_peak, record.fallbacks = _device_facts()
        record.parameters = self._parameters()

    def _parameters(self) -> dict[str, Any]:
        found = {}
        for number, optimizer in enumerate(self._optimizers):
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            for index, parameter in enumerate(parameters):
                found[f"{type(optimizer).__name__} {number}, parameter {index}"] = _array(parameter)
        return found


def _scaling(scale: Callable[..., Any]) -> Callable[..., Any]:
    """Let a scaled loss remember the loss; the scale is another where a GradScaler is disabled."""

    @functools.wraps(scale)
    def scaled(scaler: Any, outputs: Any) -> Any:
        result = scale(scaler, outputs)
        if result is not outputs and hasattr(result, "detach"):
            setattr(result, _UNSCALED, outputs)
        return result

    return scaled


def _array(parameter: Any) -> Any:
    import torch

    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    value = torch.view_as_real(local.detach()) if local.is_complex() else local.detach()
    return value.cpu().double().numpy() if value.dtype == torch.float64 else value.cpu().float().numpy()


def _files(root: str) -> list[str]:
    """Return the imported or run files of a folder."""
    found = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(file for file in found if isinstance(file, str) and file.startswith(root + os.sep))


def _generators() -> dict[str, str]:
    import numpy as np
    import torch

    states = {
        "torch": torch.default_generator.get_state().numpy().tobytes(),
        "python": repr(random.getstate()).encode(),
        "numpy": repr(tuple(np.random.get_state())).encode(),
    }
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def _device_facts() -> tuple[int | None, dict[str, int] | None]:
    """Return the peak memory of the device, and the operators that fell back."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return None, None
    peak = torch.accelerator.max_memory_allocated()
    counted = getattr(torch.get_device_module(device), "dispatch_stats", None)
    if counted is None:
        return peak, None
    operators = counted()["operators"]
    return peak, {name: each["calls"] for name, each in operators.items() if each["route"] == "fallback"}


def _answers() -> dict[str, str]:
    """Return what this device answers to a program: CUDA's answers under the shim, else those of converted code."""
    import torch

    device = torch.accelerator.current_accelerator(check_available=True)
    if options.switch("shim"):
        cuda, kind = torch.cuda, device.type if device else "cpu"
        capability, count = cuda.get_device_capability(), cuda.device_count()
        name, index = cuda.get_device_name(), str(cuda.current_device())
    elif device is None:
        kind = name = index = "cpu"
        capability, count = (0, 0), 0
    else:
        module, kind = torch.get_device_module(device), device.type
        name = module.get_device_name() if hasattr(module, "get_device_name") else kind
        capability = (0, 0)
        index, count = str(torch.accelerator.current_device_index()), torch.accelerator.device_count()
    return {
        "type": kind,
        "name": name,
        "capability": str(capability),
        "index": index,
        "count": str(count),
        "available": str(kind != "cpu" or options.switch("shim")),
    }
