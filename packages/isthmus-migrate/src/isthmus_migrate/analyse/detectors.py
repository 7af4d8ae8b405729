"""The registry of detectors, which find what no rule converts. A new detector is a file here and a line below."""

from collections.abc import Callable, Iterator, Mapping

from isthmus_migrate.analyse import (
    call_graph,
    dynamic_shapes,
    extensions,
    kernels,
    libraries,
    magics,
    operator_calls,
    operators,
    performance,
    precision,
)
from isthmus_migrate.analyse.detector import ProjectDetector
from isthmus_migrate.rules.requirements import examine_requirements
from isthmus_migrate.rules.shell import examine_shell
from isthmus_migrate.source.files import Kind, Source
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

# Detectors of a Python module.
MODULE: tuple[Callable[[Module], Iterator[Finding]], ...] = (
    libraries.detect,
    kernels.detect,
    extensions.detect,
    magics.detect,
    dynamic_shapes.detect,
    performance.detect,
    precision.detect,
)

# Detectors of a non-Python file.
TEXT: Mapping[Kind, tuple[Callable[[Source], Iterator[Finding]], ...]] = {
    Kind.REQUIREMENTS: (examine_requirements,),
    Kind.SHELL: (examine_shell,),
}

# Detectors of the project, in order: later ones use earlier findings.
PROJECT: tuple[ProjectDetector, ...] = (operator_calls.DETECTOR, operators.DETECTOR, call_graph.DETECTOR)
