"""Running a compiled graph."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import _BoxedCodeGen


class Program:
    """A graph of operators of the chip as a function of a list of inputs, which it empties.

    Args:
        graph: of AOTAutograd.
    """

    def __init__(self, graph: GraphModule) -> None:
        self._boxed_call = True  # of the instance: wrappers copy its attributes, not the class's
        graph.graph.set_codegen(_BoxedCodeGen())  # drops each value after its last use
        graph.recompile()
        self._run = graph.forward

    def __call__(self, inputs: list[Any]) -> Any:
        """Run the graph on the inputs; returns its outputs."""
        return self._run(inputs)
