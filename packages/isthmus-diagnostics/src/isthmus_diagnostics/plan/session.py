"""A plan in a process of a job: applied at the model's first forward, measured if ``isthmus plan`` runs the job.

``isthmus run --plan`` sets ISTHMUS_PLAN, a plan to apply. ``isthmus plan`` sets ISTHMUS_PLAN_RUN, a folder to which
each rank writes rank0.json and so on; then the job ends after a few steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook

from isthmus import options
from isthmus_common.files import write_file
from isthmus_common.progress import say
from isthmus_common.ranks import rank
from isthmus_diagnostics.options import TABLE
from isthmus_diagnostics.plan import layers as models
from isthmus_diagnostics.plan import offload, states
from isthmus_diagnostics.plan.actions import OFFLOAD, apply, recompute_all
from isthmus_diagnostics.plan.choices import WHOLE
from isthmus_diagnostics.plan.files import PlanError, read
from isthmus_diagnostics.plan.layers import Layer
from isthmus_diagnostics.plan.measure import Probe, Timeline, Undo
from isthmus_diagnostics.plan.summary import summary

_USABLE = 0.85  # share of the memory, by allocated bytes: the rest is for fragments

_session: Session | None = None


def start() -> None:
    """Start the session that the environment asks for."""
    global _session
    folder, plan = TABLE.text("plan_run"), TABLE.text("plan")
    if plan:
        _session = _Planned(Path(plan), Path(folder) if folder else None)
    elif folder:
        _session = Measuring(Path(folder))
    elif TABLE.switch("swap"):
        _session = _Swapping()


def stage() -> int:
    """Pipeline stage of this process, known for Megatron only."""
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is None or not megatron.model_parallel_is_initialized():
        return 0
    return int(megatron.get_pipeline_model_parallel_rank())


class Session:
    """Follows the training in this process: finds models, counts steps.

    A step begins with the first forward of a model after an optimizer's step.

    Attributes:
        layers: repeated layers of the models that have run forward, in the order of their first forward.
        steps: complete steps.
        optimizers: that have made a step.
    """

    last = sys.maxsize

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.steps = 0
        self._depth = 0
        self.optimizers: set[torch.optim.Optimizer] = set()
        self._models: list[nn.Module] = []
        self._has_stepped = False
        self._handles: list[Any] = [
            hooks.register_module_forward_pre_hook(self._before_any),
            hooks.register_module_forward_hook(self._after_any, always_call=True),
        ]
        self._optimizer = register_optimizer_step_post_hook(self._after_step)

    def on_layers(self, layers: list[Layer]) -> None:
        """Handle the layers of a model before its first forward."""

    def step_begins(self) -> None:
        """Handle the begin of step number `steps`."""

    def finish(self) -> None:
        """Handle the end of the last step."""

    def _before_any(self, module: nn.Module, args: Any) -> None:
        self._depth += 1
        if self._depth > 1 or not module.training or not torch.is_grad_enabled() or module in self._models:
            return
        if layers := models.find(module, len(self._models)):
            self._models.append(module)
            self.layers += layers
            module.register_forward_pre_hook(self._before_model, prepend=True)
            self.on_layers(layers)

    def _after_any(self, module: nn.Module, args: Any, output: Any) -> None:
        self._depth -= 1

    def _before_model(self, module: nn.Module, args: Any) -> None:
        if not self._has_stepped:
            return
        self._has_stepped = False
        self.steps += 1
        for handle in self._handles:  # models have been found
            handle.remove()
        self._handles = []
        self.step_begins()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.optimizers.add(optimizer)
        self._has_stepped = bool(self._models)
        if self.steps == self.last:  # here every rank has done its part of the step
            self._optimizer.remove()
            self.finish()
            sys.exit(0)


class _Clock:
    """Times of whole steps."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._begin: float | None = None

    def tick(self, counts: bool) -> None:
        """Mark the begin of a step; the one that ends counts or not."""
        torch.accelerator.synchronize()
        now = time.perf_counter()
        if counts and self._begin is not None:
            self.times.append(now - self._begin)
        self._begin = now


class _Planned(Session):
    """Applies a plan; with a folder, runs a few steps within the plan's memory and writes their peak and times."""

    def __init__(self, path: Path, folder: Path | None) -> None:
        try:
            self._plan = read(path)
            stage = self._plan.stage(rank())
        except PlanError as error:
            sys.exit(f"isthmus: {error}")
        super().__init__()
        self._path, self._folder = path, folder
        self._clock, self._all_clock = _Clock(), _Clock()
        self._actions = stage.actions
        self._left = set(self._actions)
        if stage.optimizer:
            states.offload()
        self._undo: Undo = lambda: None
        if folder:
            self.last = 8

    def on_layers(self, layers: list[Layer]) -> None:
        """Apply the plan to the layers of a model."""
        try:
            self._undo = apply(layers, self._actions)
        except AttributeError as error:
            sys.exit(f"isthmus: {self._path}: {error}; the model has changed, plan again")
        self._left -= {layer.name for layer in layers}
        if self._folder:
            _limit(self._plan.memory)
        elif not rank() and not options.switch("quiet"):
            count = sum(bool(self._actions.get(layer.name)) for layer in layers)
            say(f"{self._path}: applied to {count} of {len(layers)} layers")

    def step_begins(self) -> None:
        """Check that the whole plan was applied; time the step."""
        if self._left:
            sys.exit(f"isthmus: {self._path}: no layer {sorted(self._left)[0]} in the model; plan again")
        if not self._folder:
            self._optimizer.remove()
            return
        self._clock.tick(2 < self.steps <= 5)
        self._all_clock.tick(self.steps > 6)
        if self.steps == 5:  # for comparison, with everything recomputed
            self._undo()
            apply(self.layers, recompute_all(self.layers))
            self._peak = torch.accelerator.max_memory_allocated()
            _limit(sys.maxsize)

    def finish(self) -> None:
        """Write the peak and the times of a step, with the plan and with everything recomputed."""
        assert self._folder
        step, all_step = min(self._clock.times), min(self._all_clock.times)
        _write(self._folder, {"allocated": self._peak, "step": step, "all": all_step})


class _Swapping(Session):
    """Offloads the activations of all layers in two steps, then of those that do not fit beside their peak.

    When an allocation of the chip fails, more activations move to the host.
    """

    def on_layers(self, layers: list[Layer]) -> None:
        """Offload the layers of a model."""
        apply(layers, {layer.name: {WHOLE: OFFLOAD} for layer in layers})
        if set_callback := getattr(_memory().memory, "_set_failure_callback", None):
            set_callback(offload.move)

    def step_begins(self) -> None:
        """Measure the peak of the second step, the first with all optimizer states."""
        if self.steps == 1:
            torch.accelerator.reset_peak_memory_stats()
            return
        self._optimizer.remove()
        memory = _memory().mem_get_info()[1] * _memory().get_per_process_memory_fraction()
        room = int(_USABLE * memory) - torch.accelerator.max_memory_allocated()
        offload.set_room(max(0, room))
        if not rank() and not options.switch("quiet"):
            say(f"swap: {max(0, room) >> 20} MiB for activations that stay on the device")


class Measuring(Session):
    """Measures the layers: one of each kind keeps its activations, the others are recomputed.

    Attributes:
        probes: the measured layers.
    """

    last = 10

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._clock = _Clock()
        self._shapes: dict[str, tuple[object, ...]] = {}
        self._undo: list[Undo] = []
        self._applied: Undo = lambda: None

    def on_layers(self, layers: list[Layer]) -> None:
        """Recompute all layers but one of each kind; note the shapes of the inputs."""
        for layer in layers:
            handle = layer.module.register_forward_pre_hook(self._note(layer.name), with_kwargs=True)
            self._undo.append(handle.remove)
        self._apply()

    def _note(self, name: str) -> Callable[..., None]:
        def note(module: Any, args: Any, kwargs: Any) -> None:
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            self._shapes[name] = tuple(tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor))

        return note

    def _apply(self, *, keeps_probes: bool = True) -> None:
        self._applied()
        kinds: dict[object, int] = {}
        self._kinds = [
            kinds.setdefault((layer.kind(), self._shapes.get(layer.name)), len(kinds))
            for layer in self.layers
        ]
        self._probes = [self._kinds.index(kind) for kind in kinds.values()]
        kept = [self.layers[index].name for index in self._probes] if keeps_probes else []
        actions = {name: each for name, each in recompute_all(self.layers).items() if name not in kept}
        self._applied = apply(self.layers, actions)

    def step_begins(self) -> None:
        """Measure memory in step 2, times of modules in steps 3 to 6, the step with all recomputed in 8 and 9."""
        for undo in self._undo:
            undo()
        self._undo = []
        match self.steps:
            case 1:
                self._apply()
            case 2:
                self.probes = [Probe(self.layers[index]) for index in self._probes]
                self._undo = [probe.record_saved() for probe in self.probes]
                self._timeline = Timeline(self.layers)
            case 3:
                self._timeline.close()
                self._undo = [probe.measure_time() for probe in self.probes]
            case 4 | 5 | 6:
                self._undo = [probe.measure_time() for probe in self.probes]
            case 7:
                self._apply(keeps_probes=False)
                self._bandwidth = offload.bandwidth()
                torch.accelerator.reset_peak_memory_stats()
        self._clock.tick(self.steps > 8)

    def stop(self) -> None:
        """Undo what was applied to the layers."""
        self._applied()

    def finish(self) -> None:
        """Write the measurement."""
        result = summary(self._timeline, self.probes, self._probes, self._kinds, self._bandwidth)
        found = {
            "layers": [layer.name for layer in self.layers],
            "all": {"allocated": torch.accelerator.max_memory_allocated(), "step": min(self._clock.times)},
            "bandwidth": self._bandwidth,
            "states": sum(map(states.size, self.optimizers)),
            "total": _memory().mem_get_info()[1],
        }
        _write(self._folder, {**found, **result})


def _limit(memory: int) -> None:
    """Let this process reserve no more memory than the plan is for."""
    total = _memory().mem_get_info()[1]
    _memory().set_per_process_memory_fraction(min(1.0, memory / total))


def _memory() -> Any:
    """Return the module of the accelerator, with the names of torch.cuda."""
    return torch.get_device_module(torch.accelerator.current_accelerator())


def _write(folder: Path, found: dict[str, Any]) -> None:
    text = json.dumps({"rank": rank(), "stage": stage(), **found})
    write_file(folder / f"rank{rank()}.json", text.encode())
