"""Find where two runs of a job differ: dumps of every call, and their comparison.

    with isthmus_diagnostics.accuracy.dump("runs/a"):
        train()

``isthmus accuracy compare runs/a runs/b`` then names the first call that differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus_diagnostics.accuracy.errors import AccuracyError

if TYPE_CHECKING:
    from isthmus_diagnostics.accuracy.monitoring import Monitor
    from isthmus_diagnostics.accuracy.recorder import Recorder

__all__ = ["AccuracyError", "dump", "monitor"]


def dump(
    folder: str | Path,
    kind: str = "statistics",
    level: str = "both",
    steps: Iterable[int] | None = None,
    ranks: Iterable[int] | None = None,
    scope: str = "*",
) -> Recorder:
    """Record the calls of modules and operators, gradients, optimizer states and collectives.

    Args:
        folder: of the dump; each rank writes to a folder in it.
        kind: ``statistics``, ``hashes`` (statistics and a hash of the bits) or ``tensors`` (and the values).
        level: ``module``, ``operator``, ``both``, or ``all``: also the operators inside the optimizer's step.
        steps: numbers of steps to record, from 0; a step ends with the optimizer's. None: all.
        ranks: ranks that record. None: all.
        scope: names of modules or operators, such as ``*.layers.0.*`` or ``aten::mm``.

    Returns:
        A context manager, also with ``start()`` and ``stop()``, for the thread that it is entered in.

    Raises:
        AccuracyError: a value is unknown.
    """
    from isthmus_diagnostics.accuracy.recorder import Recorder, Selection

    chosen_steps, chosen_ranks = (None if each is None else frozenset(each) for each in (steps, ranks))
    return Recorder(Path(folder), Selection(kind, level, chosen_steps, chosen_ranks, scope))


def monitor(folder: str | Path, **settings: object) -> Monitor:
    """Watch gradients, weights, optimizer states and activations of every n-th step, with alerts.

    Args:
        folder: of ``monitor.json``, which may be edited while the job runs, and of the records of each rank.
        settings: ``enabled``, ``interval`` (100), ``what`` (of gradient, weight, state, activation), ``names``,
            ``turbulence`` (10: an alert when a gradient's norm is that many times its median), ``tensorboard``.

    Returns:
        A context manager, also with ``start()`` and ``stop()``.
    """
    from isthmus_diagnostics.accuracy.monitoring import Monitor

    return Monitor(Path(folder), **settings)
