"""Record the calls of a job: operators by a dispatch mode, modules and optimizers by their hooks."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizers
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from isthmus.opset.names import matches
from isthmus_common.ranks import rank
from isthmus_diagnostics.accuracy import collectives
from isthmus_diagnostics.accuracy.errors import AccuracyError
from isthmus_diagnostics.accuracy.generators import Draws
from isthmus_diagnostics.accuracy.modules import Modules
from isthmus_diagnostics.accuracy.tensors import Tensors
from isthmus_diagnostics.accuracy.writer import FORMAT, Writer
from isthmus_diagnostics.debug import intercept
from isthmus_diagnostics.debug.call import Call, tensors_of
from isthmus_diagnostics.debug.call_origin import Origin, forget, origin

KINDS = ("statistics", "tensors", "hashes")
LEVELS = ("module", "operator", "both", "all")
_MARKERS = ("profiler::", "prims::", "debugprims::")
_ALLOCATIONS = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())
_COPIES = frozenset(("_to_copy", "clone"))  # into new memory, whatever they find
# Operators whose first argument is written without being read, though their schemas do not say so.
_OVERWRITING = frozenset(
    """bernoulli_ cauchy_ copy_ exponential_ fill_ geometric_ log_normal_ normal_ random_ uniform_ zero_""".split()
)


class Selection(NamedTuple):
    """The selection of what is dumped.

    Attributes:
        kind: one of :data:`KINDS`.
        level: one of :data:`LEVELS`.
        steps: numbers of steps; None: all.
        ranks: numbers of ranks; None: all.
        scope: pattern of names of modules or operators.
    """

    kind: str = "statistics"
    level: str = "both"
    steps: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    scope: str = "*"

    def check(self) -> None:
        """Raise AccuracyError if a value is unknown."""
        if self.kind not in KINDS:
            raise AccuracyError(f"--dump {self.kind}: expected one of {', '.join(KINDS)}")
        if self.level not in LEVELS:
            raise AccuracyError(f"--dump-level {self.level}: expected one of {', '.join(LEVELS)}")

    def includes(self, module: str, operator: str) -> bool:
        """Return whether a call is in the scope."""
        if self.scope == "*":
            return True
        return fnmatchcase(module, self.scope) or (bool(operator) and matches(operator, self.scope))


class Recorder(TorchDispatchMode):
    """Dump of this process. A context manager, also with ``start()`` and ``stop()``.

    Args:
        folder: of the dump; the rank gets a folder in it.
        selection: what is dumped.
    """

    def __init__(self, folder: Path, selection: Selection) -> None:
        super().__init__()
        selection.check()
        self.folder = folder
        self.selection = selection
        self.step = 0
        self._process = os.getpid()
        self._writer: Writer | None = None
        self._modules = Modules(self._enter_module, self._leave_module)
        self._calls = 0
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._inputs: list[dict[str, int]] = []
        self._collectives = collectives.Pending()
        self._first_optimizer: Any = None
        self._draws: Draws | None = None
        self._in_optimizer = False
        self._handles: list[Any] = []
        self._is_entered = False

    # ---- start and stop

    def start(self) -> "Recorder":
        """Start to record this thread and what it runs in backward."""
        self._modules.start()
        self._draws = Draws()
        self._handles = [
            optimizers.register_optimizer_step_pre_hook(self._before_optimizer),
            optimizers.register_optimizer_step_post_hook(self._after_optimizer),
        ]
        super().__enter__()
        self._is_entered = True
        return self

    def stop(self) -> None:
        """Stop, and write what is left."""
        if not self._is_entered:
            return
        self._is_entered = False
        super().__exit__(None, None, None)
        self._modules.stop()
        for handle in self._handles:
            handle.remove()
        forget()
        if self._writer is not None and os.getpid() == self._process:
            self._complete_all()
            self._note_draws()
            self._writer.close()

    def __enter__(self) -> "Recorder":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def next_step(self) -> None:
        """End a step; called after each step of the first optimizer."""
        if self._writer is not None:
            with unseen():
                self._complete_all()
                self._note_draws()
                self._writer.flush()
                self._tensors.forget()
        self.step += 1
        if self._writer is not None and not self._is_on():  # its writes will not be seen
            self._tensors.forget(all_of_them=True)
        self._counts.clear()
        self._modules.next_step()

    def _is_on(self) -> bool:
        chosen = self.selection
        if chosen.steps is not None and self.step not in chosen.steps:
            return False
        return (chosen.ranks is None or rank() in chosen.ranks) and os.getpid() == self._process

    @property
    def writer(self) -> Writer:
        """The writer of this rank, which the first call creates."""
        if self._writer is None:
            self._open()
        assert self._writer is not None
        return self._writer

    def _open(self) -> None:
        from isthmus_diagnostics.accuracy.configuration import describe

        number, kind = rank(), self.selection.kind
        self._writer = Writer(self.folder / f"rank-{number}", kind == "hashes", kind == "tensors")
        self._tensors = Tensors(self._writer, self._modules.tensors, self._collectives.has)
        with intercept.hide_calls():
            self._about = {"format": FORMAT, "rank": number, **self.selection._asdict(), "job": describe()}
            self._writer.start(self._about)

    def _note_draws(self) -> None:
        if self._draws is not None and self._draws.update():
            self.writer.write_facts({**self._about, "drawn": self._draws.drawn})

    # ---- operators

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a call and record it."""
        kwargs = kwargs or {}
        name = op.name()
        if _is_allocation(op) and self._is_on() and not _is_fake(types):
            return self._allocate(op, args, kwargs)
        if _is_left_out(op) or not self._is_on() or _is_fake(types):
            return op(*args, **kwargs)
        if self._in_optimizer and self.selection.level != "all":
            return op(*args, **kwargs)
        call = Call(name, op, args, kwargs)
        if name.startswith("c10d::"):
            return self._run_collective(call)
        if self._collectives and not _is_view(op):  # a view may be made before the job waits
            self._complete(tensor for _, tensor in tensors_in(call.arguments))
        if name.startswith(collectives.WAIT):
            return op(*args, **kwargs)
        if name.startswith(collectives.FUNCTIONAL):
            return self._run_collective(call)
        if self.selection.level == "module":
            return self._run_unrecorded(call)
        return self._run(call)

    def _allocate(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Note memory without values, which differs between equal jobs."""
        found = op(*args, **kwargs)
        if self._writer is None:
            self._open()
        self._tensors.note_allocation(found)
        return found

    def _run_unrecorded(self, call: Call) -> Any:
        origin(any(t.requires_grad for _, t in call.inputs()), self._modules.current)
        returned = call.op(*call.args, **call.kwargs)
        self._forget_written(call)
        return returned

    def _run(self, call: Call) -> Any:
        inputs = call.inputs()
        recorded = [name for name, tensor in inputs if tensor.requires_grad]
        where = origin(bool(recorded), self._modules.current)
        module, phase = self._place(where)
        if not self.selection.includes(module.rpartition("@")[0], call.name):
            returned = call.op(*call.args, **call.kwargs)
            self._forget_written(call)
            return returned
        line = self._line(call.name, module, phase, where)
        line["arguments"] = _plain_arguments(call)
        line["inputs"] = self._numbers(_read_inputs(call, inputs))
        if recorded:
            line["gradients"] = recorded
        returned = call.op(*call.args, **call.kwargs)
        self._forget_written(call, line["call"])
        if _base(call.name) in _COPIES and self._tensors.is_unwritten(inputs[0][1]):
            self._tensors.note_allocation(returned)
        line["outputs"] = self._numbers(call.results(returned))
        self.writer.add_line(line)
        return returned

    def _forget_written(self, call: Call, number: int | None = None) -> None:
        if call.written and self._writer is not None:
            for name in call.written:
                for _, tensor in tensors_of(name, call.arguments[name]):
                    self._tensors.forget_written(tensor, number)

    def _place(self, where: Origin) -> tuple[str, str]:
        """Return the module of a call, and its phase."""
        current = self._modules.current
        if self._in_optimizer:
            return current, "optimizer"
        if not where.backward:
            return current, "forward"
        # A module that runs in backward is computed again (torch.utils.checkpoint).
        return (current, "recompute") if current else (where.module, "backward")

    def _line(self, name: str, module: str, phase: str, where: Origin | None = None) -> dict[str, Any]:
        path, _, visit = module.rpartition("@")
        key = (phase, module, name)
        line: dict[str, Any] = {
            "call": self._calls, "step": self.step, "phase": phase, "module": path, "visit": int(visit or 0),
            "operator": name, "occurrence": self._counts[key],
        }  # fmt: skip
        self._calls += 1
        self._counts[key] += 1
        if where is not None:
            line["line"] = where.line
            line |= {"library": where.library} if where.library else {}
        return line

    def _numbers(self, named: list[tuple[str, torch.Tensor]]) -> dict[str, int]:
        if self._writer is None:
            self._open()
        return {name: self._tensors.number(tensor) for name, tensor in named}

    # ---- collectives

    def _run_collective(self, call: Call) -> Any:
        read = collectives.read(call)
        where = origin(False, self._modules.current)
        module, phase = self._place(where)
        taken = self.selection.includes(module.rpartition("@")[0], call.name)
        line = self._line(call.name, module, phase, where)
        if taken:
            self._complete(tensor for _, tensor in read)
            line["group"] = collectives.group(call)
            line["arguments"] = collectives.plain_arguments(call)
            line["inputs"] = self._numbers(read)
            self.writer.add_line(line)
        returned = call.op(*call.args, **call.kwargs)
        written = collectives.written_tensors(call, returned)
        if self._writer is not None:
            for _, tensor in written:
                self._tensors.forget_written(tensor, line["call"])
        if taken:
            self._collectives.add(line["call"], written)
        return returned

    def _complete(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record results of collectives that are about to be used, so that the job has waited for them."""
        for number, outputs in self._collectives.take_used(tensors):
            for _, tensor in outputs:  # views of it were made meanwhile
                self._tensors.forget_written(tensor, number)
            self.writer.add_line({"completes": number, "outputs": self._numbers(outputs)})

    def _complete_all(self) -> None:
        for number, outputs in self._collectives.take_rest():
            self.writer.add_line({"completes": number, "outputs": self._numbers(outputs)})

    # ---- modules

    def _records_module(self, name: str) -> bool:
        level = self.selection.level
        return level != "operator" and self._is_on() and self.selection.includes(name, "")

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        name = self._modules.current.rpartition("@")[0]
        inputs: dict[str, int] = {}
        if self._records_module(name) and not _is_traced(args):
            with unseen():
                inputs = self._numbers(list(tensors_in({"input": args})))
        self._inputs.append(inputs)

    def _leave_module(self, module: torch.nn.Module, result: Any) -> None:
        inputs = self._inputs.pop() if self._inputs else {}
        current = self._modules.current
        if not self._records_module(current.rpartition("@")[0]) or _is_traced(result):
            return
        with unseen():
            where = origin(False, current)
            line = self._line("module", current, self._place(where)[1], where)
            line["class"] = type(module).__name__
            line["inputs"] = inputs
            line["outputs"] = self._numbers(list(tensors_in({"output": result})))
            self.writer.add_line(line)

    # ---- optimizers

    def _before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._in_optimizer = True
        self._optimizer_inputs: dict[int, dict[str, int]] = {}
        if not self._is_on():
            return
        with unseen():
            self._complete_all()
            for _, parameter, _, _ in _parameters(optimizer):
                tensors = {"parameter": parameter, "gradient": gradient_of(parameter)}
                tensors |= state_of(optimizer, parameter)
                self._optimizer_inputs[id(parameter)] = self._numbers(list(tensors_in(tensors)))

    def _after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._in_optimizer = False
        if self._is_on():
            with unseen():
                for default, parameter, hyper, kind in _parameters(optimizer):
                    self._record_update(optimizer, default, parameter, hyper, kind)
        if self._first_optimizer in (None, id(optimizer)):
            self._first_optimizer = id(optimizer)
            self.next_step()

    def _record_update(self, optimizer: Any, default: str, parameter: Any, hyper: Any, kind: str) -> None:
        name = self._modules.tensors.get(id(parameter), default)
        if not self.selection.includes(name, "optimizer"):
            return
        line = self._line(f"optimizer::{kind}", f"{name}@0", "optimizer")
        if gradient_of(parameter) is not None:
            self._tensors.forget_written(parameter, line["call"])
            for _, state in tensors_in(state_of(optimizer, parameter)):
                self._tensors.forget_written(state, line["call"])
        line["arguments"] = hyper
        line["inputs"] = self._optimizer_inputs.get(id(parameter), {})
        after = {"parameter": parameter, **state_of(optimizer, parameter)}
        line["outputs"] = self._numbers(list(tensors_in(after)))
        self.writer.add_line(line)


class unseen:
    """The tool's own work: not recorded, outside of autograd."""

    def __init__(self) -> None:
        self._quiet = intercept.hide_calls()

    def __enter__(self) -> None:
        self._disabled = torch._C._DisableTorchDispatch()
        self._quiet.__enter__()

    def __exit__(self, *reason: Any) -> None:
        self._quiet.__exit__(*reason)
        del self._disabled


def _base(name: str) -> str:
    return name.partition("::")[2].partition(".")[0]


@cache
def _is_left_out(op: OpOverload) -> bool:
    """Return whether an overload computes nothing."""
    name = op.name()
    return _base(name) in intercept.MEMORY or name.startswith(_MARKERS)


@cache
def _is_view(op: OpOverload) -> bool:
    """Return whether an overload returns views of its arguments, and reads no element."""
    aliases = [returned.alias_info for returned in op._schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)


@cache
def _is_allocation(op: OpOverload) -> bool:
    """Return whether an overload returns new memory without values."""
    return _base(op.name()) in _ALLOCATIONS and not op._schema.is_mutable


def _is_fake(types: Any) -> bool:
    return any(issubclass(kind, FakeTensor) for kind in types)


def _is_traced(values: Any) -> bool:
    return torch.compiler.is_compiling() or any(
        isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves(values)
    )


def tensors_in(named: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of values at any depth, with names."""
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif value is not None and not isinstance(value, (bool, int, float, str)):
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, torch.Tensor):
                    yield name + pytree.keystr(path), leaf


def _read_inputs(call: Call, inputs: list[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Return the inputs whose values matter."""
    base = _base(call.name)
    return [pair for pair in inputs if pair[0] != "self"] if base in _OVERWRITING else inputs


def _plain_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments that are no tensors."""
    found: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if isinstance(value, (bool, int, float, str)):
            found[name] = value
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (bool, int, float)):
            found[name] = list(value)
        elif isinstance(value, torch.dtype):
            found[name] = str(value)[6:]
    return found


def _parameters(optimizer: Any) -> Iterator[tuple[str, torch.Tensor, dict[str, Any], str]]:
    kind = type(optimizer).__name__
    for index, group in enumerate(optimizer.param_groups):
        hyper = {
            key: value for key, value in group.items() if isinstance(value, (bool, int, float, str, tuple))
        }
        for number, parameter in enumerate(group["params"]):
            yield f"{kind}.{index}.{number}", parameter, hyper, kind


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a parameter, wherever it is accumulated."""
    main = getattr(parameter, "main_grad", None)  # Megatron accumulates there
    return parameter.grad if main is None else main


def state_of(optimizer: Any, parameter: torch.Tensor) -> dict[str, Any]:
    """Return the tensors that an optimizer keeps for a parameter."""
    return {key: value for key, value in optimizer.state.get(parameter, {}).items() if key != "step"}
