"""Runs an ONNX model on any PyTorch device: its operators are PyTorch's.

What depends on the inputs' shapes alone (shape arithmetic, masks) is computed on the CPU, once for each shape.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
from onnx import version_converter
from torch import Tensor, nn

from isthmus.infer import onnx_values
from isthmus.infer.model import InferError, Model
from isthmus.infer.onnx_layers import LAYERS
from isthmus.infer.onnx_operators import DATA_DEPENDENT, FUNCTIONS, HOST, Attributes, Function

OPSET = 18  # the oldest whose operators the tables have; older models are converted
_SMALL = 64  # elements of a constant vector that may be part of shape arithmetic
_SHAPE_ONLY = frozenset({"Shape", "Size"})
_TABLE = {**FUNCTIONS, **LAYERS}


def load(path: Path, device: torch.device) -> Model:
    """Load an ONNX model to a device.

    Args:
        path: the model; its external data is beside it.
        device: where it runs.

    Raises:
        InferError: malformed, or it has operators that are not in the tables.
    """
    try:
        proto = onnx.load(path)
        opset = next((each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")), 0)
        proto = onnx_values.inline_functions(proto, opset, _TABLE)
        if opset < OPSET:
            proto = version_converter.convert_version(proto, OPSET)
        module = OnnxModule(proto.graph, max(opset, OPSET), device)
        inputs = [
            onnx_values.declared_input(each, device)
            for each in proto.graph.input
            if each.name in module.inputs
        ]
    except InferError as error:
        raise InferError(f"{path}: {error}") from None
    except Exception as error:  # protobuf, onnx and its C++ converter raise various errors
        raise InferError.from_error(f"{path}: not a valid ONNX model", error) from None
    return Model("ONNX model", device, inputs, module.outputs, module)


class _Node(NamedTuple):
    """A node of the graph.

    Attributes:
        label: operator and name, for messages.
        function: of the attributes and the inputs.
        attributes: by name.
        inputs: names; "" for an absent one.
        outputs: names.
        numbers: positions of the inputs that are numbers.
        on_host: whether it depends on shapes and constants alone.
        data_dependent: whether the shape of its results depends on values.
        last: names of values that no later node reads.
    """

    label: str
    function: Function
    attributes: Attributes
    inputs: list[str]
    outputs: list[str]
    numbers: tuple[int, ...]
    on_host: bool
    data_dependent: bool
    last: list[str]


class OnnxModule(nn.Module):
    """The graph of an ONNX model; called with a list of tensors.

    Args:
        graph: without functions.
        opset: its version, 18 or later.
        device: for constants and inputs.

    Attributes:
        inputs: names.
        outputs: names.

    Raises:
        InferError: an operator is not in the tables, or a constant has an unknown dtype.
    """

    def __init__(self, graph: onnx.GraphProto, opset: int, device: torch.device) -> None:
        super().__init__()
        _refuse_unknown(graph)
        _refuse_disorder(graph)
        self.device = device
        constants = {each.name: onnx_values.tensor(each) for each in graph.initializer}
        nodes = []
        for node in graph.node:
            if node.op_type == "Constant":
                constants[node.output[0]] = onnx_values.constant(node)
            else:
                nodes.append(node)
        self.inputs = [each.name for each in graph.input if each.name not in constants]
        self.outputs = [each.name for each in graph.output]
        self._buffer_names = {name: f"constant_{i}" for i, name in enumerate(constants)}
        for name, buffer in self._buffer_names.items():
            self.register_buffer(buffer, constants[name].to(device))
        self._host = {name: t for name, t in constants.items() if t.dim() <= 1 and t.numel() <= _SMALL}
        self._nodes = _prepare(nodes, opset, set(self._host), self.outputs)
        self._known: tuple[Any, dict[str, Tensor], dict[str, Tensor]] = ((), {}, {})

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        """Compute the outputs.

        Raises:
            InferError: an operator fails; the message names it.
        """
        shapes = tuple(each.shape for each in inputs)
        known, host, moved = self._known
        if known != shapes:
            host, moved = dict(self._host), {}
        run = _Run(self, dict(zip(self.inputs, inputs, strict=True)), host, moved)
        for node in self._nodes:
            try:
                run.compute(node)
            except NotImplementedError as error:
                raise InferError(f"{node.label}: not supported: {error}") from error
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise InferError.from_error(node.label, error) from error
        if run.repeatable:
            self._known = (shapes, host, moved)  # results for the latest shapes
        return [run.output(name) for name in self.outputs]

    def constant(self, name: str) -> Tensor | None:
        """Return a constant, on the device."""
        buffer = self._buffer_names.get(name)
        return None if buffer is None else self.get_buffer(buffer)


class _Run:
    """One computation of a graph.

    Args:
        module: of the graph.
        values: of the inputs, on the device; those of the nodes are added.
        host: values that depend on shapes alone, on the CPU; computed where they are missing.
        moved: copies of them on the device, likewise.
    """

    def __init__(
        self, module: OnnxModule, values: dict[str, Tensor], host: dict[str, Tensor], moved: dict[str, Tensor]
    ) -> None:
        self.module = module
        self.values = values
        self.host = host
        self.moved = moved
        self.repeatable = True  # for inputs of the same shapes, the values on the host are the same

    def compute(self, node: _Node) -> None:
        """Compute the outputs of a node, unless they are known, and free what no later node reads."""
        values = self.host if node.on_host else self.values
        if node.outputs[0] in values:
            return
        self.repeatable &= not node.data_dependent or node.on_host
        arguments = [
            self._number(name) if i in node.numbers else self.tensor(name, node.on_host)
            for i, name in enumerate(node.inputs)
        ]
        results = node.function(node.attributes, *arguments)
        results = results if isinstance(results, tuple) else (results,)
        if node.attributes.unread or any(node.outputs[len(results) :]):
            what = [*sorted(node.attributes.unread), *filter(None, node.outputs[len(results) :])]
            raise NotImplementedError(what[0])
        values.update((name, result) for name, result in zip(node.outputs, results, strict=False) if name)
        for name in node.last:
            self.values.pop(name, None)

    def _number(self, name: str) -> Any:
        if not name:
            return None
        if name not in self.host:
            self.repeatable = False
            return self.value(name).tolist()
        return self.host[name].tolist()

    def tensor(self, name: str, on_host: bool) -> Tensor | None:
        if not name:
            return None
        return self.host[name] if on_host and name in self.host else self.value(name)

    def value(self, name: str) -> Tensor:
        """Return a value on the device."""
        if name in self.values:
            return self.values[name]
        constant = self.module.constant(name)
        if constant is not None:
            return constant
        if name not in self.moved:
            self.moved[name] = self.host[name].to(self.module.device)
        return self.moved[name]

    def output(self, name: str) -> Tensor:
        """Return a value on the device that the caller may write to."""
        return self.values[name] if name in self.values else self.value(name).clone()


def _refuse_unknown(graph: onnx.GraphProto) -> None:
    known = {*_TABLE, "Constant"}
    names = {
        f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for node in graph.node
    }
    if unknown := sorted(names - known):
        raise InferError(
            f"operators that are not supported: {', '.join(unknown)}; export the model by torch.export (.pt2) instead"
        )


def _refuse_disorder(graph: onnx.GraphProto) -> None:
    known = {"", *(each.name for each in graph.input), *(each.name for each in graph.initializer)}
    for node in graph.node:
        label = f"{node.op_type} {node.name or ' '.join(node.output)}"
        if unknown := sorted(set(node.input) - known):
            raise InferError(f"{label}: no value {unknown[0]!r} before it")
        for name in filter(None, node.output):
            if name in known:
                raise InferError(f"{label}: a value {name!r} exists before it")
            known.add(name)
    if unknown := sorted({each.name for each in graph.output} - known):
        raise InferError(f"no value {unknown[0]!r}, which is an output")


def _prepare(nodes: list[onnx.NodeProto], opset: int, host: set[str], outputs: list[str]) -> list[_Node]:
    """Decide where each node runs.

    Args:
        nodes: in the order of the graph, which is topological.
        opset: their version.
        host: names of the constants that may be on the CPU; extended by the outputs of nodes there.
        outputs: of the graph.
    """
    last: dict[str, int] = {name: i for i, node in enumerate(nodes) for name in node.input}
    prepared = []
    for i, node in enumerate(nodes):
        named = [name for name in node.input if name]
        on_host = node.op_type in _SHAPE_ONLY or (bool(named) and host.issuperset(named))
        if on_host:
            host.update(node.output)
        prepared.append(
            _Node(
                f"{node.op_type} {node.name}".strip(),
                _TABLE[node.op_type],
                Attributes(onnx_values.values(node.attribute), onnx_values.defaults(node.op_type, opset)),
                list(node.input),
                list(node.output),
                HOST.get(node.op_type, ()),
                on_host,
                node.op_type in DATA_DEPENDENT,
                [name for name in {*named} if last[name] == i and name not in outputs],
            )
        )
    return prepared
