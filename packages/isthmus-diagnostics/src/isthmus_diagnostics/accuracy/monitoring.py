"""A watch over a long run: gradients, weights, activations and optimizer states of every n-th step, by rank.

A folder holds what it does and what it saw: ``monitor.json``, which may be edited while the job runs; a CSV file for
each rank; and its alerts. Ranks do not communicate: replicas are compared by the hashes in their files.
"""

import csv
import io
import json
import math
import statistics
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim import optimizer as optimizers

from isthmus.opset.names import matches
from isthmus_common.files import make_file, make_folder, write_file
from isthmus_common.progress import say
from isthmus_common.ranks import rank
from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.modules import Modules
from isthmus_diagnostics.accuracy.recorder import gradient_of, state_of, tensors_in, unseen
from isthmus_diagnostics.accuracy.statistics import (
    COLUMNS,
    Statistics,
    elements,
    is_measurable,
    measure,
    read,
)

SETTINGS = "monitor.json"
_HEAD = ["step", "kind", "name", "min", "max", "mean", "norm", "nans", "infinities", "zeros", "hash"]
_HISTORY = 20
_DEFAULTS = {
    "enabled": True,
    "interval": 100,
    "what": ["gradient", "weight", "state"],
    "names": "*",
    "turbulence": 10.0,
    "tensorboard": False,
}


class Alert(NamedTuple):
    """Something wrong.

    Attributes:
        step, rank: where; rank is None if any of several ranks may be wrong.
        kind: ``nan``, ``turbulence`` or ``replicas``; of isthmus_diagnostics.health: ``nan``, ``loss``, ``gradient``,
            ``matmul`` or ``straggler``.
        name: of the tensor.
        text: one line.
    """

    step: int
    rank: int | None
    kind: str
    name: str
    text: str


def report(folder: Path, alert: Alert, tool: str) -> None:
    """Append an alert to the file of its rank, and print it."""
    path = folder / f"alerts-{alert.rank}.jsonl"
    make_file(path)
    with path.open("a") as file:
        file.write(json.dumps(alert._asdict()) + "\n")
    say(f"{tool}: step {alert.step}: {alert.text}")


class _Taken(NamedTuple):
    kind: str
    name: str
    tensor: torch.Tensor
    hashed: bool


class Monitor:
    """Watches the models and optimizers of this process. A context manager, also with ``start()`` and ``stop()``.

    Args:
        folder: of the settings and the records.
        settings: written to ``monitor.json`` if there is none.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.step = 0
        self._given = {**_DEFAULTS, **settings}
        self._modules = Modules(lambda module, args: None, self._leave_module)
        self._handle: Any = None
        self._pending: dict[torch.device, list[_Taken]] = {}
        self._history: dict[str, deque[float]] = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._settings = self._given
        self._board: Any = None

    def start(self) -> "Monitor":
        """Start to watch."""
        make_folder(self.folder)
        if not (self.folder / SETTINGS).exists():
            write_file(self.folder / SETTINGS, json.dumps(self._given, indent=1).encode())
        self._reload()
        self._modules.start()
        self._handle = optimizers.register_optimizer_step_post_hook(self._after_step)
        return self

    def stop(self) -> None:
        """Stop to watch."""
        self._modules.stop()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> "Monitor":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_due(self) -> bool:
        return bool(self._settings["enabled"]) and self.step % int(self._settings["interval"]) == 0

    def _reload(self) -> None:
        """Read the settings if the file has changed; an invalid file changes nothing."""
        path = self.folder / SETTINGS
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._settings = {**_DEFAULTS, **json.loads(path.read_text())}
                self._stamp = stamp
        except (OSError, ValueError):
            return

    def _leave_module(self, module: torch.nn.Module, result: Any) -> None:
        if self._is_due() and "activation" in self._settings["what"] and not torch.compiler.is_compiling():
            name = self._modules.current.rpartition("@")[0]
            with unseen():
                for key, tensor in tensors_in({"output": result}):
                    self._take("activation", f"{name}.{key}", tensor)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_due():
            with unseen():
                for group in optimizer.param_groups:
                    for index, parameter in enumerate(group["params"]):
                        self._take_parameter(optimizer, parameter, index)
                self._write()
        self.step += 1
        self._modules.next_step()
        self._reload()

    def _take_parameter(self, optimizer: Any, parameter: torch.Tensor, index: int) -> None:
        name = self._modules.tensors.get(id(parameter), f"parameter{index}")
        what = self._settings["what"]
        if "weight" in what:
            self._take("weight", name, parameter)
        gradient = gradient_of(parameter)
        if "gradient" in what and gradient is not None:
            self._take("gradient", name, gradient)
        if "state" in what:
            for key, tensor in tensors_in(state_of(optimizer, parameter)):
                self._take("state", f"{name}.{key}", tensor)

    def _take(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        local = getattr(tensor, "_local_tensor", tensor)
        if is_measurable(local) and matches(name, self._settings["names"]):
            # Weights that every rank holds in full have hashes, to compare replicas.
            is_whole = local is tensor and not getattr(tensor, "tensor_model_parallel", False)
            taken = _Taken(kind, name, local.detach(), kind == "weight" and is_whole)
            self._pending.setdefault(local.device, []).append(taken)

    def _write(self) -> None:
        rows = list(self._measure())
        path = self.folder / f"rank-{rank()}.csv"
        text = io.StringIO()
        writer = csv.writer(text)
        if not path.exists():
            make_file(path)
            writer.writerow(_HEAD)
        for kind, name, found in rows:
            writer.writerow([self.step, kind, name, *found])
        with path.open("a") as file:
            file.write(text.getvalue())
        self._report_alerts(rows)
        self._show(rows)

    def _measure(self) -> Iterator[tuple[str, str, Statistics]]:
        pending, self._pending = self._pending, {}
        for device, taken in pending.items():
            rows = torch.empty(len(taken), COLUMNS, dtype=torch.float64, device=device)
            for index, each in enumerate(taken):
                measure(each.tensor, rows, index, each.hashed)
            counts = [elements(each.tensor) for each in taken]
            for each, found in zip(taken, read(rows, counts, True), strict=True):
                yield each.kind, each.name, found if each.hashed else found._replace(hash="")

    def _report_alerts(self, rows: list[tuple[str, str, Statistics]]) -> None:
        alerts = []
        for kind, name, found in rows:
            if found.nans or found.infinities:
                text = f"{found.nans} NaN, {found.infinities} infinite in {kind} {name}"
                alerts.append(Alert(self.step, rank(), "nan", name, text))
            elif kind == "gradient" and (text := self._turbulence(name, found.norm)):
                alerts.append(Alert(self.step, rank(), "turbulence", name, text))
        for alert in alerts:
            report(self.folder, alert, "monitor")

    def _turbulence(self, name: str, norm: float) -> str:
        """Return a text if a norm is far from those before it."""
        history = self._history.setdefault(name, deque(maxlen=_HISTORY))
        usual = statistics.median(history) if len(history) >= 3 else math.nan
        history.append(norm)
        times = float(self._settings["turbulence"])
        return f"norm of gradient {name} is {norm:.3g}, usually {usual:.3g}" if norm > times * usual else ""

    def _show(self, rows: list[tuple[str, str, Statistics]]) -> None:
        if not self._settings["tensorboard"]:
            return
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(self.folder / "tensorboard" / f"rank-{rank()}"))
        for kind, name, found in rows:
            self._board.add_scalar(f"{kind}/{name}/norm", found.norm, self.step)


def alerts(folder: Path) -> list[Alert]:
    """Return the alerts of a monitored job, and the weights of which ranks disagree.

    Raises:
        AccuracyError: the folder has no records.
    """
    files = sorted(folder.glob("rank-*.csv"))
    if not files and not any(folder.glob("alerts-*.jsonl")):
        raise AccuracyError(f"{folder}: no records of a monitor (rank-0.csv); start one with --monitor")
    found = [
        Alert(**json.loads(line))
        for path in sorted(folder.glob("alerts-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return sorted(
        [*found, *_replicas(files)], key=lambda alert: (alert.step, -1 if alert.rank is None else alert.rank)
    )


def _replicas(files: list[Path]) -> Iterator[Alert]:
    """Yield the first step at which the replicas of a weight differ, by the hashes of the ranks.

    Ranks outside of the majority are wrong; without a majority, no rank is accused.
    """
    hashes: dict[tuple[int, str], dict[int, str]] = {}
    for path in files:
        rank = int(path.stem.removeprefix("rank-"))
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["hash"]:
                    hashes.setdefault((int(row["step"]), row["name"]), {})[rank] = row["hash"]
    reported: set[str] = set()
    for (step, name), of_rank in sorted(hashes.items()):
        groups: dict[str, list[int]] = {}
        for rank, bits in sorted(of_rank.items()):
            groups.setdefault(bits, []).append(rank)
        if len(groups) == 1 or name in reported:
            continue
        reported.add(name)
        largest = max(groups.values(), key=len)
        if 2 * len(largest) > len(of_rank):
            others = [rank for rank in sorted(of_rank) if rank not in largest]
            yield Alert(step, others[0], "replicas", name, f"ranks {others} differ from the others in {name}")
        else:
            *first, last = (str(each if len(each) > 1 else each[0]) for each in groups.values())
            text = f"ranks {', '.join(first)} and {last} differ in {name}; no majority"
            yield Alert(step, None, "replicas", name, text)
