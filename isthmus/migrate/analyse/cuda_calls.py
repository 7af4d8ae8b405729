"""Uses of the method ``cuda`` (IM101, IM108)."""

import ast
import re
from collections.abc import Callable, Iterator

from isthmus.migrate.analyse.indices import is_device, is_index
from isthmus.migrate.analyse.strings import text
from isthmus.migrate.analyse.syntax import is_constant, method, passes_unknown
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.own_methods import ADVICE

_AUTOMATIC, _REVIEW, _MANUAL = Severity.AUTOMATIC, Severity.REVIEW, Severity.MANUAL
_OF_CLASS = re.compile(r"torch\.(\w+\.)*[A-Z]\w*\.cuda")
_PARAMETERS = 2  # parameters of Tensor.cuda: device and non_blocking
_BY_NAME = {"getattr": "is called by name", "hasattr": "is looked up by name"}
_BY_HAND = "write `.to(device)` by hand"


def detect(module: Module) -> Iterator[Finding]:
    """``x.cuda()``, ``torch.Tensor.cuda``, ``getattr(x, "cuda")``, ``lambda storage, location: storage.cuda()``."""
    if not module.mentions("cuda"):
        return
    for call in module.of(ast.Call):
        if method(call) == "cuda" and not (module.names.qualified(call.func) or "").startswith("torch."):
            yield _storage(module, call) if _moves_storage(module, call) else _moved(module, call)
        elif len(call.args) > 1 and text(call.args[1]) == "cuda":
            yield from _by_name(module, call)
    for node in module.of(ast.Attribute):
        if node.attr == "cuda" and _OF_CLASS.fullmatch(module.names.qualified(node) or ""):
            said, advice = "is the method of a class", "pass `lambda x: x.to(device)` instead"
            yield module.finding("IM101", _MANUAL, node, module.names.qualified(node) or "", said, advice)


def _moved(module: Module, call: ast.Call) -> Finding:
    why = _obstacle(module, call)
    if not why:
        return module.finding("IM101", _AUTOMATIC, call, ".cuda()", "moves to CUDA", "becomes .to(DEVICE)")
    return module.finding("IM101", _MANUAL, call, ".cuda()", why, ADVICE if module.own_cuda else _BY_HAND)


def _obstacle(module: Module, call: ast.Call) -> str:
    """Return why convert does not change a call; "" if it does."""
    assert isinstance(call.func, ast.Attribute)
    if module.own_cuda and not _is_of_torch(module, call.func.value):
        return f"may call the method `cuda` of {module.own_cuda}"
    if passes_unknown(call):
        return "has unknown arguments"
    if len(call.args) > _PARAMETERS:
        return "has more arguments than `Tensor.cuda`"
    return _unknown(module, call, lambda device: is_constant(device, None) or is_device(module, device))


def _unknown(module: Module, call: ast.Call, is_known: Callable[[ast.expr], bool]) -> str:
    device = _device(call)
    if device is None or is_index(module, device) or is_known(device):
        return ""
    return f"moves to `{ast.unparse(device)}`, which may be an index, a device or None"


def _device(call: ast.Call) -> ast.expr | None:
    """Return the device argument of a call of ``cuda``."""
    named = (each.value for each in call.keywords if each.arg == "device")
    return call.args[0] if call.args else next(named, None)


def _is_of_torch(module: Module, node: ast.expr) -> bool:
    """Whether a node is created by PyTorch and so not an object of the project."""
    return isinstance(node, ast.Call) and (module.names.qualified(node.func) or "").startswith("torch.")


def _moves_storage(module: Module, call: ast.Call) -> bool:
    """Whether a call is the body of ``lambda storage, location: storage.cuda()``."""
    parent = module.parents[call]
    return (
        isinstance(parent, ast.Lambda)
        and len(parent.args.args) == 2
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == parent.args.args[0].arg
        and not passes_unknown(call)
    )


def _storage(module: Module, call: ast.Call) -> Finding:
    if why := _unknown(module, call, lambda device: False):
        advice = "give map_location the device itself"
        return module.finding("IM108", _MANUAL, call, ".cuda()", why, advice)
    return module.finding("IM108", _AUTOMATIC, call, ".cuda()", "moves to CUDA", "becomes DEVICE")


def _by_name(module: Module, call: ast.Call) -> Iterator[Finding]:
    """``getattr(x, "cuda")``."""
    function = call.func.id if isinstance(call.func, ast.Name) else ""
    if function not in _BY_NAME:
        return
    if module.names.qualified(call.args[0]) != "torch":
        advice = "write `.to(device)`, which every tensor and module has"
        yield module.finding("IM101", _REVIEW, call, ".cuda", _BY_NAME[function], advice)
