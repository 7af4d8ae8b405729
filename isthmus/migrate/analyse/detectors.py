"""The registry of detectors. A new detector is a file in this folder and a line here."""

from collections.abc import Callable, Iterator, Mapping

from isthmus.migrate.analyse import (
    call_graph,
    cuda_api,
    cuda_calls,
    device_names,
    dynamic_shapes,
    error_texts,
    kernels,
    libraries,
    operator_calls,
    operators,
    performance,
    precision,
    profiler,
)
from isthmus.migrate.rules.requirements import examine_requirements
from isthmus.migrate.rules.shell import examine_shell
from isthmus.migrate.source.files import Kind, Source
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Detector, ProjectDetector

# Detectors of a Python module.
MODULE: tuple[Detector, ...] = (
    cuda_api.detect,
    cuda_calls.detect,
    device_names.detect,
    profiler.detect,
    error_texts.detect,
    libraries.detect,
    kernels.detect,
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
