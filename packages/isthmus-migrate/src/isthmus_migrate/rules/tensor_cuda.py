"""``x.cuda()`` becomes ``x.to(DEVICE)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import ATOM, TERNARY, Draft
from isthmus_migrate.rules.map_location import moves_storage
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.assignments import assigned_values
from isthmus_migrate.source.conditions import conditions
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.indices import (
    is_current,
    is_device,
    is_device_id,
    is_index,
    is_integer,
    names_device,
)
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.storages import is_storage
from isthmus_migrate.source.verdicts import place_of

_PARAMETERS = ("device", "non_blocking")
_REMEDY = "write `.to(device)` by hand"
_OWN = re.compile(r"\.cuda\s*=[^=]|[\"']--?cuda|\bcuda\s*:\s*bool")  # an attribute with this name
_TENSORS = frozenset({"bias", "data", "grad", "weight"})  # attributes that are tensors
_CLASS = re.compile(r"torch\.(\w+\.)*[A-Z]\w*")


class TensorCuda(Rule):
    """Calls of ``cuda`` on tensors and modules."""

    code = "IM101"
    name = "tensor-cuda"
    summary = "tensors and modules move to the device in use"
    before = "model = model.cuda()"
    after = "model = model.to(DEVICE)"
    words = ("cuda",)
    order = 70

    def find(self, module: Module) -> Iterator[Finding]:
        """``x.cuda()``, ``getattr(x, "cuda")``, ``torch.Tensor.cuda``."""
        for node in module.of(ast.Attribute):
            if node.attr != "cuda" or not isinstance(node.ctx, ast.Load):
                continue
            name = module.names.qualified(node) or ""
            parent = module.parents[node]
            if _CLASS.fullmatch(name.removesuffix(".cuda")):
                message, remedy = "is the method of a class", "pass `lambda x: x.to(device)` instead"
                yield self.needs_manual_change(module, node, name, message, remedy)
            elif isinstance(parent, ast.Call) and parent.func is node and not name.startswith("torch."):
                if not moves_storage(module, module.parents[parent]):
                    yield self._call(module, parent, node)
            elif (
                not name
                and isinstance(parent, ast.Call | ast.keyword | ast.Assign)
                and not _OWN.search(module.text)
            ):
                yield self._method(module, node)
        for call in module.of(ast.Call):
            if len(call.args) > 1 and getattr(call.args[1], "value", None) == "cuda":
                yield from self._by_name(module, call)

    def _call(self, module: Module, call: ast.Call, method: ast.Attribute) -> Finding:
        own = (
            module.around.flow.classes.get(place_of(method.value), frozenset())
            & module.around.project.own_cuda
        )
        if own:
            name = sorted(own)[0].rpartition(".")[2]
            message = f"calls the method `cuda` of class {name}"
            return self.already_portable(module, call, ".cuda()", message, "the method itself is converted")
        why = self._find_obstacle(module, call, method)
        if why:
            return self.undecided(module, call, ".cuda()", why, _REMEDY)
        return self.automatic_change(
            call, ".cuda()", "moves to CUDA", "becomes .to(DEVICE)", _draft(module, call, method)
        )

    def _method(self, module: Module, node: ast.Attribute) -> Finding:
        """``move = x.cuda``: the bound method as a value, or an attribute of this name."""
        return self.undecided(module, node, ".cuda", "is taken as a function, or is an attribute", _REMEDY)

    def _find_obstacle(self, module: Module, call: ast.Call, method: ast.Attribute) -> str:
        """Return why a call is not converted; "" if it is."""
        if module.around.project.own_cuda and not _is_of_torch(module, method.value):
            name = sorted(module.around.project.own_cuda)[0].rpartition(".")[2]
            return f"may call the method `cuda` of class {name}"
        if any(isinstance(each, ast.Starred) for each in call.args) or None in [e.arg for e in call.keywords]:
            return "has unknown arguments"
        if len(call.args) > len(_PARAMETERS):
            return "has more arguments than `Tensor.cuda`"
        device = _device(call)
        if device is not None and not _is_understood(module, device):
            return f"moves to `{module.code(device)}`, which may be an index, a device or None"
        return ""

    def _by_name(self, module: Module, call: ast.Call) -> Iterator[Finding]:
        """``getattr(x, "cuda")``, ``hasattr(x, "cuda")``."""
        function = getattr(call.func, "id", "")
        if function in ("getattr", "hasattr") and module.names.qualified(call.args[0]) != "torch":
            module.claimed.add(call.args[1])
            message = "is called by name" if function == "getattr" else "is looked up by name"
            remedy = "write `.to(device)`, which every tensor and module has"
            yield self.undecided(module, call, ".cuda", message, remedy)


def _is_of_torch(module: Module, owner: ast.expr) -> bool:
    """Whether a node is created by PyTorch, or an object of another class of the project."""
    if isinstance(owner, ast.Call) and (module.names.qualified(owner.func) or "").startswith("torch."):
        return True
    if isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "super":
        return True
    return bool(module.around.flow.classes.get(place_of(owner)))


def _device(call: ast.Call) -> ast.expr | None:
    named = (each.value for each in call.keywords if each.arg == "device")
    return call.args[0] if call.args else next(named, None)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_understood(module: Module, device: ast.expr) -> bool:
    if (
        _is_none(device)
        or is_device(module, device)
        or is_current(module, device)
        or is_index(module, device)
    ):
        return True
    return names_device(module, device)


def _draft(module: Module, call: ast.Call, method: ast.Attribute) -> Draft:
    draft = Draft(module)
    dot = module.end(method) - len("cuda")
    draft.swap(method, dot, module.end(method), "to")
    keyword = "device=" if is_storage(module, method.value) else ""
    device = _device(call)
    if device is None:
        draft.first_argument(call, keyword + "{device}")
    else:
        if not call.args:
            start = next(module.start(each) for each in call.keywords if each.arg == "device")
            draft.swap(device, start, module.start(device), keyword)
        elif keyword:
            draft.insert_before(call, module.start(device), keyword)
        _place(draft, device)
    if len(call.args) == 2:
        draft.insert(call.args[1], module.start(call.args[1]), "non_blocking=")
    return draft


def _place(draft: Draft, device: ast.expr) -> None:
    """Replace an argument, which is an index, a device or None, by a device."""
    module = draft.module
    if isinstance(device, ast.Constant) and type(device.value) is int:
        draft.replace(
            device, "f{q}{open}{type}{close}:{index}{q}", open="{", close="}", index=str(device.value)
        )
    elif _is_none(device) or is_current(module, device):
        draft.replace(device, "{device}")
    elif is_device(module, device):
        return
    else:
        is_name = names_device(module, device)
        before, after = ("", "") if is_name else ("torch.device({type}, ", ")")
        if may_be_none(module, device):
            before = "{device} if {x} is None else " + before
        draft.surround(device, before, after, TERNARY if "None" in before else ATOM, x=module.code(device))


def may_be_none(module: Module, node: ast.expr) -> bool:
    """Whether an index or device may be None without a test around the call."""
    text = module.code(node)
    if isinstance(node, ast.Attribute) and node.attr == "device" and _is_tensor(module, node.value):
        return False
    for test, holds in conditions(module, node):
        said = ast.unparse(test)
        if (said == f"{text} is not None" and holds) or (said == f"{text} is None" and not holds):
            return False
    asks = re.search(rf"{re.escape(text)}\s+is\s+(not\s+)?None", module.text) is not None
    return asks or not (is_integer(module, node) or is_device_id(module, node))


def _is_tensor(module: Module, node: ast.expr) -> bool:
    """Whether the device of an object is never None, as far as its module shows: no name, or one of a parameter."""
    if not isinstance(node, ast.Name):
        return True
    values = assigned_values(module, node)
    return bool(values) and all(isinstance(each, ast.Attribute) and each.attr in _TENSORS for each in values)
