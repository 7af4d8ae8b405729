"""Compilation of a graph of Dynamo's to functions that run it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from isthmus.chip.compile.backend import decompositions
from isthmus.chip.compile.backend.execute import Program
from isthmus.chip.compile.backend.lower import lower
from isthmus.chip.compile.backend.runs import fuse_pointwise
from isthmus.chip.compile.backend.settings import Settings
from isthmus_common import tools


def compile_graph(
    model: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph, and its gradient, for the chip's kernels: a backend of ``torch.compile``.

    Args:
        model: as Dynamo hands it to a backend.
        inputs: example inputs.
        options: of :class:`Settings`, by name.
    """
    settings = Settings.from_options(options)
    decompositions.trace_kernels()
    if settings.fuse:
        tools.find("graph_patterns", "isthmus")(model)
    backend = aot_autograd(
        fw_compiler=functools.partial(_compile, settings=settings),
        decompositions=decompositions.table(),
        keep_inference_input_mutations=True,
    )
    return backend(model, inputs)


def _compile(graph: GraphModule, inputs: Sequence[Any], *, settings: Settings) -> Program:
    """Compile one graph of AOTAutograd: forward, backward or inference."""
    lower(graph)
    if settings.fuse:
        fuse_pointwise(graph)
    return Program(graph, settings.capture)
