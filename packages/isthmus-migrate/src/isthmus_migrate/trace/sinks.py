"""Functions that receive a device, and library functions that need exact strings or would lose the origins."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType, FunctionType, MethodType
from typing import Any

from isthmus.shim import rules
from isthmus_common.patches import Scope
from isthmus_migrate.trace.places import (
    BACKEND,
    DEVICE,
    DEVICE_TYPE,
    DISPATCH_KEY,
    REGISTRY,
    TENSOR_TYPE,
    Place,
    Span,
    add_count,
    add_shortened,
)
from isthmus_migrate.trace.text import DEVICE_TEXT, Traced, to_exact_str, traced

# Text that is the name of a device, a backend or a type of tensors, and not a path or another argument.
_NAME = re.compile(
    r"(?:cuda|gpu|cpu|mps|xpu|meta)(?::\d+)?|(?:(?:cuda|cpu):)?(?:nccl|gloo|mpi|ucc)(?:,(?:cuda|cpu):\w+)*"
    r"|torch\.(?:cuda\.)?\w+Tensor|(?:Autograd|Autocast)?(?:CUDA|CPU)",
    re.IGNORECASE,
)
_TYPE_OF_DEVICE = {
    "torch.distributed.init_device_mesh",
    "torch.library.custom_op",
    *rules.AUTOCAST_STATE,
    *rules.AUTOCAST_GPU,
} | {
    target
    for table in (rules.DEVICE_FIRST, rules.METHOD_FIRST)
    for target, keyword in table.items()
    if keyword == "device_type"
}
_OTHERS = ("torch.nn.Module.to", "torch.utils.data.DataLoader.__init__", "torch.library.custom_op")
_CUDA = ("cuda", "nccl", "CUDA", "torch.cuda")
_LOADS = ("torch.load", "torch.serialization.load")
_NO_DEVICE = (
    "torch.utils.cpp_extension.",
    "torch.distributed.get_backend",
    "torch.distributed.distributed_c10d.get_b",
)


_LOOKED_AT = (Traced, str, dict, FunctionType, functools.partial)


class SinkScope(Scope):
    """The patches of the shim, each of which records the traced strings that it receives and passes plain ones on."""

    def set(self, owner: Any, name: str, value: Any, target: str, reason: str) -> None:
        """Set as Scope does, with a recording value."""
        super().set(owner, name, sink(target, value), target, reason)

    def construct(
        self, target: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], reason: str
    ) -> None:
        """Replace a constructor as Scope does, by a recording one."""
        super().construct(target, lambda original: sink(target, make(original)), reason)


def sink(target: str, function: Any) -> Any:
    """Wrap a function to record its traced arguments; return anything else as it is."""
    if not isinstance(function, (FunctionType, MethodType)) or target.startswith(_NO_DEVICE):
        return function
    if not inspect.signature(function, follow_wrapped=False).parameters:
        return function

    @functools.wraps(function)
    def seen(*args: Any, **kwargs: Any) -> Any:
        for each in args:
            if type(each) in _LOOKED_AT:
                args = tuple(_received(target, each) for each in args)
                break
        if kwargs:
            kwargs = {name: _received(target, each) for name, each in kwargs.items()}
        return function(*args, **kwargs)

    _register_with_script(function, seen)
    return seen


def _received(target: str, value: Any) -> Any:
    """Return an argument without traces; those of a device are recorded."""
    if type(value) is dict:  # map_location
        traces = any(type(each) is Traced for item in value.items() for each in item)
        return (
            {_received(target, key): _received(target, each) for key, each in value.items()}
            if traces
            else value
        )
    if target in _LOADS and isinstance(value, (FunctionType, functools.partial)):
        return lambda storage, tag: value(storage, traced(tag, _tags()))  # a map_location
    if type(value) is not Traced:
        if type(value) is str and value.startswith(_CUDA) and _NAME.fullmatch(value):
            _record_untraced(target, value)
        return value
    text = to_exact_str(value)
    if _NAME.fullmatch(text):
        for place in value.origins:
            record(place, _role(target, text), target, text)
    return text


def _record_untraced(target: str, text: str) -> None:
    """Record a device whose origins are unknown, unless PyTorch itself made it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    package = frame.f_globals.get("__name__", "").partition(".")[0] if frame else "torch"
    if frame and package not in ("torch", "isthmus"):
        add_count(REGISTRY.untraced, (target, text, f"{frame.f_code.co_filename}:{frame.f_lineno}"))


def _tags() -> frozenset[Place]:
    place = REGISTRY.outside("tags of storages")
    place.role = DEVICE
    return place.alone()


def record(place: Place, role: str, target: str, text: str) -> None:
    """Record that text of a place reached a function as a device."""
    add_count(place.sinks, (role, target))
    add_shortened(place.values, text)
    REGISTRY.write_if_due()


def _role(target: str, text: str) -> str:
    if text.endswith("Tensor"):
        return TENSOR_TYPE
    if target in _TYPE_OF_DEVICE or "DeviceMesh" in target:
        return DEVICE_TYPE
    if target.startswith("torch.library."):
        return DISPATCH_KEY
    return BACKEND if target.startswith("torch.distributed.") else DEVICE


def _register_with_script(function: Any, seen: Any) -> None:
    """Let ``torch.jit.script`` compile a call of the wrapper as one of the function."""
    builtins = sys.modules.get("torch.jit._builtins")
    table: dict[int, Any] = (getattr(builtins, "_builtin_table", None) if builtins else None) or {}
    if id(function) in table:
        table[id(seen)] = table[id(function)]


# ---- PyTorch's functions that the shim does not replace ----------------------------------------------------
def install_torch(scope: Scope) -> None:
    """Record what these functions receive, and save strings without traces."""
    for target in _OTHERS:
        scope.replace(target, functools.partial(sink, target), "records the origins of its device")
    for target in ("torch.save", "torch.serialization.save"):
        scope.replace(target, _wrap_saving, "a file has exact strings", expects=("obj", "f"))


def _wrap_saving(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        original(without_traces(obj), to_exact_str(f), *args, **kwargs)

    return save


def without_traces(value: Any) -> Any:
    """Return the value with exact strings in its dicts, lists and tuples, which are copied only where needed."""
    if type(value) in (dict, OrderedDict):
        before: list[Any] = [each for item in value.items() for each in item]
        after = list(map(without_traces, before))
        made = type(value)(zip(after[::2], after[1::2], strict=True))
        if type(value) is OrderedDict:  # nn.Module.state_dict() adds _metadata
            vars(made).update({name: without_traces(each) for name, each in vars(value).items()})
    elif type(value) in (list, tuple):
        before, made = list(value), type(value)(map(without_traces, value))
        after = list(made)
    else:
        return to_exact_str(value)
    return value if all(map(operator.is_, before, after)) else made


# ---- other libraries -----------------------------------------------------------------------------------------
def install(scope: Scope) -> None:
    """Keep origins through argparse and json, and give exact strings to what requires them."""
    scope.when_imported("argparse", functools.partial(_argparse, scope), "keeps origins")
    scope.when_imported("yaml", _yaml, "writes traced strings as strings")
    scope.when_imported("multiprocessing.reduction", _multiprocessing, "keeps origins in spawned processes")
    scope.replace("json.loads", _loads, "keeps origins")
    for target in ("sys.intern", "importlib.import_module", "importlib.__import__"):
        scope.replace(target, _exact, "requires an exact str")
    _command_line()


def _argparse(scope: Scope) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_value(self: Any, action: Any, text: Any) -> Any:
            found = original(self, action, text)
            if type(text) is Traced and isinstance(action.choices, (list, tuple, dict)):
                _ = text in action.choices  # records that a default is one of the choices
            return text if type(text) is Traced and type(found) is str and found == text else found

        return get_value

    scope.replace("argparse.ArgumentParser._get_value", make, "type=str keeps origins")


def _multiprocessing() -> None:
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.register(Traced, _reduce_traced)


def _reduce_traced(text: Traced) -> tuple[Callable[..., str], tuple[Any, ...]]:
    """Pickle text between processes of the job; files have exact strings."""
    return _received_text, (
        to_exact_str(text),
        [(each.path, *each.span, each.kind, each.source) for each in text.origins],
    )


def _received_text(text: str, origins: list[tuple[Any, ...]]) -> str:
    places = (REGISTRY.elsewhere(path, Span(*span), kind, source) for path, *span, kind, source in origins)
    return traced(text, frozenset(places))


def _yaml() -> None:
    from yaml import representer

    for kind in (representer.SafeRepresenter, representer.Representer):
        kind.add_representer(Traced, lambda dumper, value: dumper.represent_str(to_exact_str(value)))


def _loads(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def loads(s: Any, **kwargs: Any) -> Any:
        found = original(to_exact_str(s), **kwargs)
        return _with_origins(found, s.origins) if type(s) is Traced else found

    return loads


def _with_origins(value: Any, origins: frozenset[Place]) -> Any:
    if type(value) is str and DEVICE_TEXT.search(value):
        return traced(value, origins)
    if type(value) is dict:
        return {key: _with_origins(each, origins) for key, each in value.items()}
    return [_with_origins(each, origins) for each in value] if type(value) is list else value


def _exact(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return original(*map(to_exact_str, args), **kwargs)

    return function


def _command_line() -> None:
    """Trace the arguments of the script that name a device."""
    place = REGISTRY.outside("command line")
    place.strong = False
    sys.argv[1:] = [each if each.endswith(".py") else traced(each, place.alone()) for each in sys.argv[1:]]
