"""Running a compiled graph: by its operators, and from then on as captured kernels where they can be captured."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.graph import _BoxedCodeGen

from isthmus import _C, chip

_INPUTS = (torch.Tensor, int, float, torch.SymInt, torch.SymFloat, torch.SymBool, type(None))
MOST_SIZES = 64  # limit for one graph: values of its symbolic sizes, and streams
MOST_CAPTURES = 8  # limit for each of them: inputs with other strides, or that share memory otherwise
MOST_FAILURES = 4  # to capture a graph

_logger = logging.getLogger("isthmus.chip.compile")


class Program:
    """A graph of operators of the chip as a function of a list of inputs, which it empties.

    Args:
        graph: of AOTAutograd.
        capture: whether to capture its kernels.
    """

    def __init__(self, graph: GraphModule, capture: bool) -> None:
        self._boxed_call = True  # an attribute of the instance: wrappers copy those, not the class's
        graph.graph.set_codegen(_BoxedCodeGen())  # drops each value after its last use
        graph.recompile()
        self._run = graph.forward
        self._captures = _Captures(graph) if capture and _is_on_chip(graph) else None

    def __call__(self, inputs: list[Any]) -> Any:
        """Run the graph on the inputs; returns its outputs."""
        results = self._captures(inputs) if self._captures else None
        if results is None:
            return self._run(inputs)
        inputs.clear()
        return results


def _is_on_chip(graph: GraphModule) -> bool:
    """Whether the graph has kernels, and all its input tensors are on one chip, whose kernels take addresses."""
    if not any(map(_computes, graph.graph.nodes)):
        return False
    values = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    if not all(isinstance(value, _INPUTS) for value in values):
        return False
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    return len(devices) == 1 and devices.pop().type != "cpu" and not chip.is_host_addressable()


def _computes(node: Node) -> bool:
    """Whether a call makes tensors rather than views."""
    if not isinstance(node.target, OpOverload):
        return False
    return any(result.alias_info is None for result in node.target._schema.returns)


class _Pool:
    """Memory that the graphs of a stream share: nothing in it outlives a call.

    It grows to what the largest of them needs: blocks that one capture frees serve the next on the same stream.
    """

    def __init__(self, device: int) -> None:
        self.handle, self.mutex, self.stream = _C.graph_pool(), _C.Mutex(), chip.Stream(device)


_capturing = threading.Lock()  # one graph at a time
_pools = weakref.WeakValueDictionary[tuple[int, int], _Pool]()  # keyed by device and stream


class _Capture(NamedTuple):
    """One captured run.

    Attributes:
        graph: its kernels.
        outputs: for each output of the run: position among the graph's results, or among the inputs as -1 - position,
            or a value that is no tensor.
        pool: held while a graph uses it.
    """

    graph: _C.MovingGraph
    outputs: list[Any]
    pool: _Pool


class _Captures:
    """The captured runs of a graph, one for each geometry of its inputs; those not used for longest are dropped.

    Symbolic sizes are captured when they come for the second time: a capture costs as much as it saves.
    """

    def __init__(self, graph: GraphModule) -> None:
        self._run: Callable[[list[Any]], Any] = graph.forward
        values = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
        self._tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        self._numbers = [i for i, value in enumerate(values) if not isinstance(value, torch.Tensor)]
        constants = (*graph.buffers(), *graph.parameters(), *vars(graph).values())
        self._constants = {c.untyped_storage().data_ptr() for c in constants if isinstance(c, torch.Tensor)}
        # Keyed by stream and symbolic sizes, the last used at the end.
        self._found = OrderedDict[Any, list[_Capture]]()
        self._failures = 0
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> list[Any] | None:
        """The outputs; None if the run has to be made by its operators."""
        tensors = [inputs[i] for i in self._tensors]
        stream = chip.current_stream(tensors[0].device)
        if _C.is_capturing(stream.stream_id, stream.device_index):
            return None
        key = (stream.device_index, stream.stream_id, *(inputs[i] for i in self._numbers))
        with self._lock:
            known, is_new = self._known_captures(key)
        for captured in known:
            results = captured.graph(tensors)
            if results is not None:
                return [_output(output, results, inputs) for output in captured.outputs]
        if self._failures >= MOST_FAILURES or (is_new and self._numbers) or len(known) >= MOST_CAPTURES:
            return None
        if _C.capturing():  # another thread captures: the device cannot be synchronized
            return None
        with _capturing:
            made = self._capture(inputs, tensors, key[:2])
            self._failures += made is None
        if made is None:
            return None
        known.append(made)
        results = made.graph(tensors)
        assert results is not None
        return [_output(output, results, inputs) for output in made.outputs]

    def _known_captures(self, key: Any) -> tuple[list[_Capture], bool]:
        """The captures for sizes, and whether the sizes are new."""
        is_new = key not in self._found
        known = self._found.setdefault(key, [])
        self._found.move_to_end(key)
        if len(self._found) > MOST_SIZES:
            self._found.popitem(last=False)
        return known, is_new

    def _capture(
        self, inputs: list[Any], tensors: list[torch.Tensor], place: tuple[int, int]
    ) -> _Capture | None:
        pool, graph = _pools.setdefault(place, _Pool(place[0])), _C.Graph()
        try:
            chip.synchronize()  # kernels may check values
            with pool.mutex, chip.stream(pool.stream):
                graph.capture_begin(pool.handle, "thread_local")
                try:
                    outputs = self._run(list(inputs))
                finally:
                    graph.capture_end()
            return self._capture_moving(graph, tensors, inputs, outputs, pool)
        except RuntimeError as error:  # an operator that cannot be captured
            _logger.info("a graph is run by its operators: %s", error)
            return None

    def _capture_moving(
        self,
        graph: _C.Graph,
        tensors: list[torch.Tensor],
        inputs: list[Any],
        outputs: Sequence[Any],
        pool: _Pool,
    ) -> _Capture:
        positions = {id(value): i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
        fresh: list[torch.Tensor] = []
        kinds: list[Any] = []
        for output in outputs:
            if not isinstance(output, torch.Tensor):
                kinds.append((output,))
            elif id(output) in positions:
                kinds.append(-1 - positions[id(output)])
            else:
                kinds.append(len(fresh))
                fresh.append(output)
        if any(output.untyped_storage().data_ptr() in self._constants for output in fresh):
            raise RuntimeError("an output is a constant")
        return _Capture(_C.MovingGraph(graph, tensors, fresh, pool.mutex), kinds, pool)


def _output(kind: Any, results: list[torch.Tensor], inputs: list[Any]) -> Any:
    if isinstance(kind, tuple):
        return kind[0]
    return results[kind] if kind >= 0 else inputs[-1 - kind]
