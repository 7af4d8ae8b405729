"""The inputs of a detector of the project as a whole.

It has two steps: ``gather(module)`` runs in the worker and returns a small picklable value, so that no tree outlives
it; ``judge(project)`` runs at the end on all of them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from isthmus_migrate.flow.solve import Solution
from isthmus_migrate.source.files import Source
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module


class Project(NamedTuple):
    """A project as a whole.

    Attributes:
        target: device type to run on.
        facts: what the detector's own ``gather`` returned, one per module, without None.
        natives: C++ and CUDA sources.
        findings: findings of the module detectors so far.
        flow: the data flow of its modules.
    """

    target: str
    facts: list[Any]
    natives: list[Source]
    findings: list[Finding]
    flow: Solution


class ProjectDetector(NamedTuple):
    """A detector of the project as a whole.

    Attributes:
        gather: returns a small picklable value for a module, or None.
        judge: yields findings from the project's facts.
        probes: whether it queries PyTorch and the target, which takes seconds; `--no-probe` skips it.
    """

    gather: Callable[[Module], Any]
    judge: Callable[[Project], Iterator[Finding]]
    probes: bool = False
