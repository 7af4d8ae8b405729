"""The registry of detectors. A new detector is a file in this folder and a line here."""

from collections.abc import Callable, Iterator, Mapping

from isthmus.migrate.analyse import (
    call_graph,
    commands,
    cuda_calls,
    device_names,
    distributed,
    dynamic_shapes,
    kernels,
    libraries,
    operator_calls,
    operators,
    performance,
    precision,
    requirements,
    shell,
    variables,
)
from isthmus.migrate.source.files import Kind, Source
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Detector, ProjectDetector

# Detectors of a Python module.
MODULE: tuple[Detector, ...] = (
    cuda_calls.detect,
    device_names.detect,
    distributed.detect,
    variables.detect,
    commands.detect,
    libraries.detect,
    requirements.detect_setup,
    kernels.detect,
    dynamic_shapes.detect,
    performance.detect,
    precision.detect,
)

# Detectors of a non-Python file.
TEXT: Mapping[Kind, tuple[Callable[[Source], Iterator[Finding]], ...]] = {
    Kind.REQUIREMENTS: (requirements.detect,),
    Kind.SHELL: (shell.detect,),
}

# Detectors of the project, in order: later ones use earlier findings.
PROJECT: tuple[ProjectDetector, ...] = (operator_calls.DETECTOR, operators.DETECTOR, call_graph.DETECTOR)
