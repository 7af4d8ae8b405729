"""Graphs: capture the work of a stream once, and replay it without Python.

A captured operator runs once during the capture, so that its outputs exist; what it wrote outside the graph's memory
is restored at the end. :meth:`Graph.replay` then runs the same kernels over the same addresses.

Code that has a list of calls to run again and again, such as a backend of ``torch.compile``, captures one run of it::

    graph = torch.chip.Graph()
    with torch.chip.graph(graph):
        outputs = run(inputs)  # any operators on chip tensors, by any route
    inputs[0].copy_(new)       # the addresses are fixed: fill the inputs in place
    graph.replay()             # outputs now hold the new results
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch._C._autograd import _unsafe_set_version_counter
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from isthmus import _C
from isthmus.chip.device import synchronize
from isthmus.chip.memory import empty_cache, empty_host_cache
from isthmus.chip.streams import Stream, StreamContext, current_stream

PoolHandle = tuple[int, int]
CallableT = TypeVar("CallableT", bound=Callable[..., Any])
CallablesT = TypeVar("CallablesT", bound=Callable[..., Any] | tuple[Callable[..., Any], ...])


class Graph(_C.Graph):
    """A graph of captured work, as ``torch.cuda.CUDAGraph``.

    Args:
        keep_graph: instantiate at the first :meth:`replay`, or by :meth:`instantiate`, rather than in
            :meth:`capture_end`.
    """

    def capture_begin(self, pool: PoolHandle | None = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream of the current device.

        Args:
            pool: memory shared with other graphs: of :func:`graph_pool_handle`, ``Graph.pool()`` or ``MemPool.id``.
                Graphs that share memory must be replayed in the order of their capture.
            capture_error_mode: "global"; or "thread_local" or "relaxed", which let other threads wait for the device.

        Raises:
            RuntimeError: the current stream is the default one or captured already, or an unknown mode.

        The thread that begins a capture has to end it.
        """
        super().capture_begin(pool, capture_error_mode)

    def capture_end(self) -> None:
        """End the capture; warns if it has captured nothing.

        Raises:
            RuntimeError: this graph is not capturing, or its capture failed.
        """
        super().capture_end()
        if len(self) == 0:
            warnings.warn(
                "The graph is empty. This usually means that the graph was attempted to be captured on wrong "
                "device or stream.",
                stacklevel=2,
            )

    def raw_cuda_graph(self) -> int:
        """Raise NotImplementedError: not supported on the chip."""
        raise NotImplementedError("raw_cuda_graph: the chip has no cudaGraph_t; use debug_dump()")

    def raw_cuda_graph_exec(self) -> int:
        """Raise NotImplementedError: not supported on the chip."""
        raise NotImplementedError("raw_cuda_graph_exec: the chip has no cudaGraphExec_t; use replay()")


class graph:
    """Context manager that captures the work of its block.

    Args:
        cuda_graph: the graph that receives the work.
        pool: see :meth:`Graph.capture_begin`.
        stream: the stream to capture; one that all contexts share by default.
        capture_error_mode: see :meth:`Graph.capture_begin`.
        enable_annotations: must be False.
        check_input_liveness: must be False.

    Raises:
        NotImplementedError: an option that is not supported.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        cuda_graph: Graph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations or check_input_liveness:
            raise NotImplementedError("graph: enable_annotations and check_input_liveness are not supported")
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self._stream = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        empty_host_cache()
        self._stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(self, *exception: object) -> None:
        try:
            self.cuda_graph.capture_end()
        finally:
            self._stream.__exit__(None, None, None)


def graph_pool_handle() -> PoolHandle:
    """A new pool of memory that graphs can share."""
    return _C.graph_pool()


def is_current_stream_capturing() -> bool:
    """Whether the current stream is captured."""
    stream = current_stream()
    return _C.is_capturing(stream.stream_id, stream.device_index)


class GraphedCall:
    """Graphs of a callable's forward and backward pass, over fixed inputs and outputs.

    A call overwrites the outputs and the saved activations of the call before. Gradients are copies: they may become
    the ``.grad`` of a leaf, or be kept by a hook, and the next backward pass overwrites the graph's own. A backward
    pass reuses the memory of the saved activations, and restores it if it may be run again (``retain_graph``).

    Args:
        function: the callable, a module or function of tensors.
        args: its sample arguments.
        kwargs: its sample keyword arguments.
        allow_unused: whether an input may have no gradient.
        retain_graph: whether the autograd graph remains after the capture of the backward pass.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        allow_unused: bool = False,
        retain_graph: bool = False,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs or {}
        self.allow_unused = allow_unused
        self.retain_graph = retain_graph
        self.user_inputs = self._leaves(args, self.kwargs)
        self.parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        self.inputs = self.user_inputs + self.parameters
        self.forward_graph, self.backward_graph = Graph(), Graph()
        self.outputs: tuple[Any, ...] = ()
        self.output_spec: pytree.TreeSpec
        self.output_grads: tuple[torch.Tensor | None, ...] = ()
        self.input_grads: tuple[torch.Tensor | None, ...] = ()
        self.saved: tuple[torch.Tensor, ...] = ()  # for the backward pass, and within reach of the script
        self.calls = 0  # forward passes so far

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(pytree.tree_leaves((args, [kwargs[name] for name in self.kwargs])))

    def check(self) -> None:
        """Raise AssertionError for arguments that are no tensors, hooks, and buffers that require gradients."""
        if not all(isinstance(leaf, torch.Tensor) for leaf in self.user_inputs):
            raise AssertionError("make_graphed_callables: sample_args must contain only tensors")
        if not isinstance(self.function, torch.nn.Module):
            return
        module = self.function
        if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
            raise AssertionError(
                "make_graphed_callables: a module must have no hooks; register them on the result"
            )
        if any(buffer.requires_grad for buffer in module.buffers()):
            raise AssertionError("make_graphed_callables: only parameters may require gradients, not buffers")

    def _gradients(self, outputs: Sequence[Any], grads: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        return torch.autograd.grad(
            outputs=[output for output in outputs if output.requires_grad],
            inputs=[leaf for leaf in self.inputs if leaf.requires_grad],
            grad_outputs=grads,
            retain_graph=self.retain_graph,
            allow_unused=self.allow_unused,
        )

    def warm_up(self, iterations: int) -> None:
        """Run forward and backward pass a number of times."""
        for _ in range(iterations):
            outputs = pytree.tree_leaves(self.function(*self.args, **self.kwargs))
            grads = [torch.empty_like(output) for output in outputs if output.requires_grad]
            if grads:
                self._gradients(outputs, grads)

    def capture_forward(self, pool: PoolHandle, mode: str = "global") -> None:
        """Capture the forward pass."""
        outside: list[torch.Tensor] = []  # tensors from outside the capture: parameters, inputs, buffers
        inside: set[int] = set()  # addresses

        def note(tensor: torch.Tensor) -> torch.Tensor:
            if self.forward_graph.has_allocated(tensor):
                inside.add(tensor.untyped_storage().data_ptr())
            else:
                outside.append(tensor)
            return tensor

        try:
            with (
                graph(self.forward_graph, pool, capture_error_mode=mode),
                saved_tensors_hooks(note, lambda tensor: tensor),
            ):
                outputs = self.function(*self.args, **self.kwargs)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            # The function uses torch.func, which permits no hooks: any input may be saved.
            self.forward_graph, outside = Graph(), list(self.inputs)
            with graph(self.forward_graph, pool, capture_error_mode=mode):
                outputs = self.function(*self.args, **self.kwargs)
        leaves, self.output_spec = pytree.tree_flatten(outputs)
        self.outputs = tuple(leaves)
        self.saved = (
            *outside,
            *(output for output in self.outputs if output.untyped_storage().data_ptr() in inside),
        )

    def capture_backward(self, pool: PoolHandle, mode: str = "global") -> None:
        """Capture the backward pass, after :meth:`capture_forward`."""
        self.output_grads = tuple(
            torch.empty_like(output) if output.requires_grad else None for output in self.outputs
        )
        grads = [grad for grad in self.output_grads if grad is not None]
        found: list[torch.Tensor | None] = []
        if grads:
            with graph(self.backward_graph, pool, capture_error_mode=mode):
                found = list(self._gradients(self.outputs, grads))
        given = iter(found)
        self.input_grads = tuple(next(given, None) if leaf.requires_grad else None for leaf in self.inputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay; keyword arguments that the sample lacks are ignored."""
        leaves = self._leaves(args, kwargs)
        for fixed, given in zip(self.user_inputs, leaves, strict=True):
            if given.shape != fixed.shape:
                raise ValueError(
                    f"make_graphed_callables: an argument has the shape {tuple(given.shape)}, but its sample "
                    f"{tuple(fixed.shape)}; graph the callable with samples of the new shape"
                )
        return pytree.tree_unflatten(_Replay.apply(self, *leaves, *self.parameters), self.output_spec)

    def forward(self) -> Callable[..., Any]:
        """Return the replay; of a module a forward that runs the module's own in the other mode than now."""
        module = self.function
        if not isinstance(module, torch.nn.Module):
            return self
        original, training = module.forward, module.training

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs) if module.training == training else original(*args, **kwargs)

        return forward


class _Replay(torch.autograd.Function):
    """Replay of the graphs of a :class:`GraphedCall`."""

    @staticmethod
    def forward(ctx: Any, captured: GraphedCall, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        captured.calls += 1
        ctx.captured, ctx.call = captured, captured.calls
        for fixed, given in zip(captured.user_inputs, inputs, strict=False):
            if fixed.data_ptr() != given.data_ptr():
                version = fixed._version
                fixed.copy_(given)
                if not fixed.requires_grad:  # calls may share it, such as a mask that is the same for all
                    _unsafe_set_version_counter((fixed,), (version,))
        captured.forward_graph.replay()
        ctx.versions = [tensor._version for tensor in captured.saved]
        ctx.released = False
        return tuple(output.detach() for output in captured.outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        captured: GraphedCall = ctx.captured
        if ctx.call != captured.calls:
            raise RuntimeError(
                "make_graphed_callables: backward of a call whose activations a later call has overwritten; run each "
                "backward before the next call, or graph one callable for each call"
            )
        if ctx.released:
            raise RuntimeError(
                "make_graphed_callables: trying to backward through the graph a second time: the first backward has "
                "reused the memory of the saved activations; specify retain_graph=True in the first one"
            )
        for tensor, version in zip(captured.saved, ctx.versions, strict=True):
            if tensor._version != version:
                raise RuntimeError(
                    "make_graphed_callables: one of the variables needed for gradient computation has been modified "
                    f"by an inplace operation: a tensor of shape {tuple(tensor.shape)} is at version "
                    f"{tensor._version}; expected version {version} instead; run the backward before it is written, "
                    "and give each callable samples of its own"
                )
        retained = torch._C._autograd._get_current_graph_task_keep_graph()
        memory = captured.backward_graph.memory() if retained else []
        contents = [block.clone() for block in memory]
        ctx.released = not retained
        for fixed, given in zip(captured.output_grads, grads, strict=True):
            if fixed is not None and fixed.data_ptr() != given.data_ptr():
                fixed.copy_(given)
        captured.backward_graph.replay()
        gradients = [None if grad is None else grad.clone() for grad in captured.input_grads]
        for block, content in zip(memory, contents, strict=True):
            block.copy_(content)
        return (None, *gradients)


def make_graphed_callables(
    callables: CallablesT,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
) -> CallablesT:
    """Callables whose forward and backward passes are replays of graphs.

    Args:
        callables: a module or function of tensors, or a tuple of them in the order in which they will run. A module
            is changed in place; in the other mode (training or evaluation) than now it runs as before.
        sample_args: arguments of the callable, or a tuple of those of each. Shapes, dtypes and ``requires_grad`` are
            those of every later call.
        num_warmup_iters: runs before the capture.
        allow_unused_input: whether inputs may have no gradient.
        pool: see :meth:`Graph.capture_begin`.
        capture_error_mode: see :meth:`Graph.capture_begin`.
        enable_annotations: must be False.

    Raises:
        NotImplementedError: annotations are asked for.
        RuntimeError: autocast is active with its cache, or the capture fails.
        AssertionError: an argument that is no tensor, a module with hooks, a buffer that requires gradients.

    The result raises ValueError for arguments of other shapes than the samples. Its outputs are overwritten by its
    next call, so that their backward pass must have run before: RuntimeError is raised otherwise, also where a tensor
    that the backward pass needs has been written since the call. Each backward pass copies the gradients once; one
    with ``retain_graph=True`` also saves and restores the memory that it uses.
    """
    if torch.is_autocast_enabled("chip") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables does not support the autocast cache; set cache_enabled=False"
        )
    if enable_annotations:
        raise NotImplementedError("make_graphed_callables: enable_annotations is not supported")
    one = not isinstance(callables, tuple)
    functions = cast(tuple[Callable[..., Any], ...], (callables,) if one else callables)
    samples = (sample_args,) if one else sample_args
    captured = [
        GraphedCall(function, args, allow_unused=allow_unused_input)
        for function, args in zip(functions, samples, strict=True)
    ]
    for each in captured:
        each.check()
    synchronize()
    with StreamContext(Stream()):
        for each in captured:
            each.warm_up(num_warmup_iters)
    synchronize()
    # The order is that in which they will run, because they share memory.
    shared = graph_pool_handle() if pool is None else pool
    for each in captured:
        each.capture_forward(shared, capture_error_mode)
    for each in reversed(captured):
        each.capture_backward(shared, capture_error_mode)
    graphed = tuple(_in_place(each) for each in captured)
    return cast(CallablesT, graphed[0] if one else graphed)


def _in_place(captured: GraphedCall) -> Callable[..., Any]:
    """The replay; for a module the module itself, with another forward."""
    if isinstance(captured.function, torch.nn.Module):
        captured.function.forward = captured.forward()
        return captured.function
    return captured
