"""The watch over this process: hooks on optimizers and on backward, and a thread that reports what it is doing."""

import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from isthmus_common.files import make_folder
from isthmus_common.patches import Scope
from isthmus_common.ranks import rank
from isthmus_diagnostics.accuracy.modules import Modules
from isthmus_diagnostics.accuracy.monitoring import Alert, report
from isthmus_diagnostics.accuracy.recorder import gradient_of, unseen
from isthmus_diagnostics.health import reports, status
from isthmus_diagnostics.health.bounds import Bound
from isthmus_diagnostics.health.checksum import Checksums, Mismatch
from isthmus_diagnostics.health.last_checkpoint import LastCheckpoint
from isthmus_diagnostics.health.watch_errors import Guard

_PERIOD = 0.25  # seconds
_INTERVAL = 40  # periods between two looks at the step times of all ranks
_MOST = 10_000  # values, in a program whose optimizer never steps
_SUSPICION = 10  # steps after an alert in which all products are checked
_MEMORY = 64  # steps after which an alert counts as a new one
# Deviations, and least distance in units of the median. A gradient scaler may double the loss; sound gradients rise
# to 14 times when a model has converged, all elements together: their largest over their root mean square to 3 times.
_BOUNDS = {"loss": (10.0, 1.5), "gradient": (20.0, 99.0), "peak": (20.0, 3.0)}
_TEXTS = {
    "loss": "loss",
    "gradient": "largest gradient of {}",
    "peak": "largest over mean square gradient of {}",
}


class Health:
    """Watches this rank. A context manager, also with ``start()`` and ``stop()``.

    Args:
        folder: of the reports; shared by all ranks, on a shared file system if there are several nodes.
        timeout: seconds in a collective until the hang report.
        checksum_interval: steps between two in which all matrix products are checked; 0: none.
        save: returns what to save when the process is about to die, by :func:`torch.save`, to ``last-<rank>.pt``.
            Default: the states of the optimizers, and the parameters in their order, after the first step of one.
    """

    def __init__(
        self,
        folder: Path | str,
        timeout: float = 60.0,
        checksum_interval: int = 100,
        save: Callable[[], Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.step = 0
        self.alerts: list[Alert] = []
        self._timeout = timeout
        self._checksum_interval = checksum_interval
        self._save = save
        self._modules = Modules(lambda module, args: None, lambda module, result: None)
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._first: weakref.ref[Any] | None = None
        self._bounds: dict[tuple[str, str], Bound] = {}
        self._losses: list[tuple[int, str, torch.Tensor]] = []  # with the name of the series
        # Names, roots of the numbers of elements, and the largest absolute values and norms: [2, names].
        self._gradients: list[tuple[int, list[str], list[float], torch.Tensor]] = []
        self._guard = Guard()
        self.checksums = Checksums(self._mismatch, self._guard)
        self._is_checking = False
        self._is_in_backward = False
        self._has_closure_run = False  # that of the optimizer's step in progress
        self._scope = Scope("health")
        self._handles: list[Any] = []
        self._slow: set[int] = set()
        self._seen: dict[int, float] = {}  # times of the statuses at the last look, by rank
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers, in this step
        self._counts: dict[str, tuple[int, int]] = {}  # number of alerts, and the step of the last one
        self._suspicious_until = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = 0

    # ---- start and stop

    def start(self) -> "Health":
        """Start to watch."""
        make_folder(self.folder)
        self._process = os.getpid()
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")  # gloo's and NCCL's record of collectives
        self._last_checkpoint = LastCheckpoint(
            self.folder, self._save or self._state, saves_early=self._save is not None
        )
        self._last_checkpoint.listen()
        self._modules.start()
        self._handles = [
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        ]
        self._scope.replace(
            "torch.autograd.backward", self._with_loss, "the loss is what backward starts from", ("tensors",)
        )
        scaler = "after a step that a scaler has skipped, its values are dropped"
        self._scope.replace("torch.amp.GradScaler.update", self._with_skip, scaler, ("self", "new_scale"))
        sharded = "torch.distributed.fsdp.sharded_grad_scaler"
        self._scope.when_imported(
            sharded,
            lambda: self._scope.replace(f"{sharded}.ShardedGradScaler.update", self._with_skip, scaler),
            scaler,
        )
        self._scope.replace("sys.excepthook", self._with_checkpoint, "a checkpoint after an error")
        self._switch_checksums()
        _started.add(self)
        self._thread = threading.Thread(target=self._run, name="isthmus health", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop to watch; does nothing in a forked child, where nothing is watched."""
        if os.getpid() != self._process:
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._is_checking:
            self.checksums.__exit__(None, None, None)
            self._is_checking = False
        with self._guard, unseen():
            self._judge_values()
        self.leave()
        status.path(self.folder, rank()).unlink(
            missing_ok=True
        )  # it is missing for good: no rank waits for it

    def leave(self) -> None:
        """Undo the patches, hooks and handlers."""
        self._scope.undo()
        self._modules.stop()
        for handle in self._handles:
            handle.remove()
        self._last_checkpoint.forget()
        _started.discard(self)

    def __enter__(self) -> "Health":
        return self.start()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is not None:
            self._last_checkpoint.save(kind.__name__)
        self.stop()

    # ---- steps

    def _with_loss(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            # A call of a checkpointed layer, or of a closure, which a line search calls again and again in one step.
            if self._is_in_backward or (self._last_checkpoint.is_stepping and self._has_closure_run):
                return original(tensors, *args, **kwargs)
            self._has_closure_run = self._last_checkpoint.is_stepping
            with self._guard:
                self._take_loss(tensors)
            self._is_in_backward = True
            try:
                result = original(tensors, *args, **kwargs)
            finally:
                self._is_in_backward = False
            with self._guard:
                self._measure(self._optimizers)  # before they are clipped
            return result

        return backward

    def _take_loss(self, tensors: Any) -> None:
        is_loss = isinstance(tensors, torch.Tensor) and tensors.numel() == 1 and tensors.is_floating_point()
        if is_loss and not tensors.is_meta and len(self._losses) < _MOST:
            series = f"{status.call_site()} {tensors.grad_fn and tensors.grad_fn.name()}"
            self._losses.append((self.step, series, tensors.detach().clone()))

    def _with_skip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update(*args: Any, **kwargs: Any) -> Any:
            self._losses, self._gradients = [], []  # those of a step that was made have been judged
            return original(*args, **kwargs)

        return update

    def _with_checkpoint(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def hook(kind: Any, error: Any, traceback: Any) -> None:
            original(kind, error, traceback)
            if issubclass(kind, Exception):
                self._last_checkpoint.save(kind.__name__)

        return hook

    def _measure(self, optimizers: Iterable[Any]) -> None:
        """Take the largest absolute value and the norm of each gradient, in place of those taken in this step."""
        with unseen():
            by_device: dict[torch.device, list[tuple[str, torch.Tensor]]] = {}
            for index, parameter in enumerate(chain.from_iterable(map(_parameters, optimizers))):
                gradient = gradient_of(parameter)
                local = getattr(gradient, "_local_tensor", gradient)
                if (
                    local is not None
                    and local.layout == torch.strided
                    and local.numel()
                    and not local.is_meta
                ):
                    name = self._modules.tensors.get(id(parameter), f"parameter{index}")
                    by_device.setdefault(local.device, []).append((name, local))
            self._gradients = []
            for gradients in by_device.values():
                tensors = [each for _, each in gradients]
                norms = [*_largest_magnitudes(tensors), *torch._foreach_norm(tensors)]
                values = torch.stack([each.float() for each in norms]).view(2, -1)
                roots = [math.sqrt(each.numel()) for each in tensors]
                self._gradients.append((self.step, [name for name, _ in gradients], roots, values))

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_first(optimizer):  # a step in which another optimizer was left out is complete now
            self._stepped.clear()
            self._last_checkpoint.is_between = False
            self._last_checkpoint.end_if_asked()
        if not self._gradients:  # backward was run without torch.autograd.backward
            with self._guard:
                self._measure([optimizer])
        self._last_checkpoint.is_stepping, self._has_closure_run = True, False

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._last_checkpoint.has_stepped = True
        self._optimizers.add(optimizer)
        self._stepped.add(optimizer)
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
        self._last_checkpoint.is_between = len(self._stepped) < len(self._optimizers)
        self._last_checkpoint.is_stepping = False
        if _is_skipped(optimizer):
            self._losses, self._gradients = [], []
        elif self._is_first(optimizer):
            with self._guard, unseen():
                self._judge_values()
            self.step += 1
            self._modules.next_step()
            self._switch_checksums()
        self._last_checkpoint.end_if_asked()

    def _is_first(self, optimizer: Any) -> bool:
        """Return whether an optimizer is the one whose steps are counted."""
        return self._first is not None and self._first() is optimizer

    def _switch_checksums(self) -> None:
        """Enter the mode for a step in which products are checked, and leave it for others."""
        interval = self._checksum_interval
        is_due = interval > 0 and (self.step % interval == interval - 1 or self.step < self._suspicious_until)
        if is_due and not self._is_checking:
            self.checksums.__enter__()
        elif self._is_checking and not is_due:
            self.checksums.__exit__(None, None, None)
        self._is_checking = is_due

    # ---- alerts

    def _judge_values(self) -> None:
        """Compare the values that were taken with their bounds; waits for the device."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        for step, kind, name, value in self._values():
            if text := self._describe_abnormal(kind, name, value):
                alert = "nan" if not math.isfinite(value) else "loss" if kind == "loss" else "gradient"
                found.setdefault(alert, []).append((step, "loss" if kind == "loss" else name, text))
        self._losses, self._gradients = [], []
        for alert, each in found.items():
            step, name, text = each[0]
            self._report_alert(step, alert, name, f"{text}, and {len(each) - 1} others" if each[1:] else text)

    def _values(self) -> Iterator[tuple[int, str, str, float]]:
        """Yield step, kind, name and value of what was taken."""
        for step, series, loss in self._losses:
            yield step, "loss", series, loss.item()
        for step, names, roots, values in self._gradients:
            for name, root, largest, norm in zip(names, roots, *values.tolist(), strict=True):
                yield step, "gradient", name, largest
                if 0 < norm < math.inf:
                    yield step, "peak", name, largest * root / norm

    def _describe_abnormal(self, kind: str, name: str, value: float) -> str:
        what = _TEXTS[kind].format(name)
        if not math.isfinite(value):
            return f"{what} is {value}"
        if (kind, name) not in self._bounds:
            self._bounds[kind, name] = Bound(*_BOUNDS[kind])
        bound = self._bounds[kind, name]
        usual = bound.median()
        return f"{what} is {value:.3g}, usually {usual:.3g}" if bound.is_exceeded(value) else ""

    def _mismatch(self, found: Mismatch) -> None:
        where = self._modules.current.rpartition("@")[0]
        self._report_alert(self.step, "matmul", where, f"{found}{f', in {where}' if where else ''}")

    def _report_alert(self, step: int, kind: str, name: str, text: str) -> None:
        """Report an alert; of those that repeat, the second, fourth, eighth and so on."""
        key = name if kind == "straggler" else kind
        count, last = self._counts.get(key, (0, step))
        count = count + 1 if step - last <= _MEMORY else 1
        self._counts[key] = count, step
        if count & (count - 1):
            return
        alert = Alert(
            step, rank(), kind, name, text if count == 1 else f"{text} (alert {count} of this kind)"
        )
        self.alerts.append(alert)
        report(self.folder, alert, "health")
        if kind != "straggler":
            self._suspicious_until = step + 1 + _SUSPICION

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "optimizers": [each.state_dict() for each in self._optimizers],
            "parameters": [[each.detach() for each in _parameters(one)] for one in self._optimizers],
        }

    # ---- the thread

    def _run(self) -> None:
        began, at, samples, waits, step_time, waiting = time.time(), 0, 0, 0, 0.0, 0.0
        last, last_step, moved = began, 0, 0.0
        reporter: threading.Thread | None = None
        while not self._stop.wait(_PERIOD):
            with self._guard:  # such as a full disk
                own = status.take(self.step, step_time, waiting)
                # Progress, or this process was stopped, and perhaps all of the job. Recorders may lag behind a step.
                if own.step != last_step or own.time - last > reports.SILENT:
                    moved = own.time
                last, last_step = own.time, own.step
                samples, waits = samples + 1, waits + bool(own.collective)
                if samples >= _INTERVAL:
                    steps = self.step - at
                    step_time = (time.time() - began) / steps if steps else 0.0
                    waiting = waits / samples
                    began, at, samples, waits = time.time(), self.step, 0, 0
                    self._look_for_stragglers(own.ranks)
                status.write(self.folder, own)
                patience = max(0.0, self._timeout - reports.SILENT)  # the report takes that time
                is_hanging = bool(own.since) and own.time - max(own.since, moved) > patience
                if is_hanging and not (reporter and reporter.is_alive()):
                    reporter = threading.Thread(target=self._report_hang, args=(own,), daemon=True)
                    reporter.start()
            self._last_checkpoint.check()

    def _report_hang(self, own: status.Status) -> None:
        with self._guard:
            reports.report_hang(self.folder, own)

    def _look_for_stragglers(self, ranks: int) -> None:
        """Report newly slow ranks, on rank 0 alone."""
        if rank() != 0:
            return
        statuses = [each for each in status.read(self.folder) if each.rank < ranks]
        seen, self._seen = self._seen, {each.rank: each.time for each in statuses}
        # Skips silent ranks, such as those of an earlier job.
        found = reports.stragglers([each for each in statuses if seen.get(each.rank, each.time) != each.time])
        for number in found.keys() - self._slow:
            text = f"rank {number} takes {found[number]:.2f} times as long as the others between collectives"
            self._report_alert(self.step, "straggler", f"rank {number}", text)
        self._slow = set(found)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def _is_skipped(optimizer: Any) -> bool:
    """Return whether a gradient scaler has told a fused optimizer to change nothing; waits for the device."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _largest_magnitudes(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the largest absolute value of each tensor of a device."""
    if tensors[0].device.type == "cpu" and not any(map(torch.is_complex, tensors)):  # eight times as fast
        ends = [each.aminmax() for each in tensors]
        return [torch.maximum(each.max, -each.min) for each in ends]
    return list(torch._foreach_norm(tensors, math.inf))


# A forked child, such as a worker of a data loader, is not the rank, and would write to its pipe of signals. SIGTERM
# waits from before the fork until the child has the default handler again.
_started: weakref.WeakSet[Health] = weakref.WeakSet()
_forking = threading.local()


def _before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM} if _started else ())


def _after_fork_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_fork_in_child() -> None:
    for each in list(_started):
        each.leave()
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
