"""``map_location`` of ``torch.load``: dictionaries of tags, and functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import ATOM, TERNARY, Draft
from isthmus_migrate.rules.functions import needs_guard
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.cuda_names import Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.indices import is_current, is_index, is_integer
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import is_cuda, is_formatted, names_cuda, text

_EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.NamedExpr)
# Functions that may be called twice.
_PURE = re.compile(r"str|format|(^|_)rank|int|len|current_device|device_count")


class MapLocation(Rule):
    """Devices of a checkpoint's tensors."""

    code = "IM108"
    name = "map-location"
    summary = "checkpoints that were written on CUDA and those written by the converted source both load"
    before = 'torch.load(path, map_location={"cuda:0": "cuda:1"})'
    after = 'torch.load(path, map_location={"cuda:0": f"{DEVICE.type}:1", f"{DEVICE.type}:0": f"{DEVICE.type}:1"})'
    words = ("cuda",)
    order = 30

    def find(self, module: Module) -> Iterator[Finding]:
        """Find dictionaries of tags, and functions that move a storage."""
        for node in module.of(ast.Dict):
            if _is_map(module, node):
                yield from self._tags(module, node)
        for function in module.of(ast.Lambda):
            if moves_storage(module, function):
                yield self._function(module, function)

    def _tags(self, module: Module, node: ast.Dict) -> Iterator[Finding]:
        tags = [each for each in node.keys if each is not None and _is_tag(each)]
        if not tags:
            return
        module.claimed.update(each for tag in tags for each in ast.walk(tag))
        ours = [each for each in node.keys if isinstance(each, ast.JoinedStr) and not is_formatted(each)]
        if ours:
            module.claimed.update(ast.walk(node))
            yield self.already_portable(module, node, "map_location", "maps the tags of both", "stays")
            return
        if any(not _PURE.fullmatch(last_name(getattr(each, "func", each))) for each in _effects(node)):
            message, remedy = "has values that call functions", "map the tags by hand"
            yield self.needs_manual_change(module, node, "map_location", message, remedy)
            return
        draft = Draft(module)
        for tag, value in zip(node.keys, node.values, strict=True):
            if tag is None or not _is_tag(tag):
                continue
            device, texts = _neutral_template(value, "value"), {"open": "{", "close": "}"}
            texts |= {"tag": _number(module, tag), "value": _number(module, value)}
            # the copy would stay as it is
            if any("cuda" in each or module.device in each for each in texts.values()):
                message, remedy = "has values that are themselves converted", "map the tags by hand"
                yield self.needs_manual_change(module, node, "map_location", message, remedy)
                return
            more = f", {_neutral_template(tag, 'tag')}: {device}"
            if names_cuda(value) or is_formatted(value):
                draft.replace(value, device + more, ATOM, **texts)
            else:
                draft.insert(value, module.end(value), more, **texts)
        message, advice = "has the tags of a checkpoint from CUDA", "maps those of the device in use as well"
        yield self.automatic_change(node, "map_location", message, advice, draft)

    def _function(self, module: Module, node: ast.Lambda) -> Finding:
        """Replace a function that moves every storage to a device by the device."""
        call = node.body
        assert isinstance(call, ast.Call)
        module.claimed.update(ast.walk(node))
        named = (each.value for each in call.keywords if each.arg == "device")
        device = call.args[0] if call.args else next(named, None)
        if device is not None and not is_index(module, device):
            why = f"moves to `{module.code(device)}`, which may be an index, a device or None"
            return self.undecided(module, node, "map_location", why, "pass the device itself as map_location")
        draft = Draft(module)
        if device is None or is_current(module, device):
            draft.replace(node, "{device}")
        elif is_integer(module, device):
            draft.replace(node, "torch.device({type}, {x})", x=module.code(device))
            load_on_cpu(draft, node, is_loaded=True)
        else:
            template = "{device} if {x} is None else torch.device({type}, {x})"
            draft.replace(node, template, TERNARY, x=module.code(device))
        return self.automatic_change(
            node, "map_location", "moves every storage to CUDA", "becomes the device in use", draft
        )


def load_on_cpu(draft: Draft, node: ast.expr, is_loaded: bool = False) -> None:
    """Make a numbered device, or ``torch.device`` of it, the CPU without an accelerator if torch.load takes it.

    torch.load refuses ``"cpu:0"``. The values of a dictionary of tags stay: checkpoints with such tags do not load
    without an accelerator anyway.

    Args:
        draft: the draft that changes the device.
        node: the device, or its name.
        is_loaded: whether torch.load is shown to take it; else it does so as an argument only.
    """
    module, above = draft.module, draft.module.parents[node]
    whole = node
    if isinstance(above, ast.Call) and module.names.qualified(above.func) == "torch.device":
        whole = above
    if (is_loaded or _is_location(module, whole)) and needs_guard(module, node, Guard.ACCELERATOR):
        draft.surround(whole, "", " if torch.accelerator.is_available() else {q}cpu{q}", TERNARY)


def _is_map(module: Module, node: ast.Dict) -> bool:
    """Whether a dictionary is a map_location argument, or is assigned to a similar name."""
    parent = module.parents[node]
    named = parent.targets if isinstance(parent, ast.Assign) else []
    return any(getattr(each, "id", "") == "map_location" for each in named) or _is_location(module, node)


def _is_location(module: Module, node: ast.expr) -> bool:
    """Whether a node is a map_location argument."""
    parent = module.parents[node]
    if isinstance(parent, ast.keyword):
        return parent.arg == "map_location"
    return (
        isinstance(parent, ast.Call)
        and module.names.qualified(parent.func) == "torch.load"
        and node in parent.args[1:2]
    )


def _is_tag(node: ast.expr) -> bool:
    return (text(node).startswith("cuda:") and names_cuda(node)) or is_formatted(node)


def _effects(node: ast.AST) -> Iterator[ast.AST]:
    yield from (each for each in ast.walk(node) if isinstance(each, _EFFECTS))


def _neutral_template(node: ast.expr, number: str) -> str:
    """Return the template of a tag or device with the type of the device in use, and the part with its number."""
    if is_cuda(node):
        return "{type}"
    is_numbered = names_cuda(node) or is_formatted(node)
    return f"f{{q}}{{open}}{{type}}{{close}}:{{{number}}}{{q}}" if is_numbered else f"{{{number}}}"


def _number(module: Module, node: ast.expr) -> str:
    """Return the source of the number of a tag, in braces if it is an expression."""
    if names_cuda(node):
        return text(node).removeprefix("cuda:")
    if isinstance(node, ast.JoinedStr):
        return module.code(node).partition("cuda:")[2][:-1]
    number: ast.expr | None = None
    if isinstance(node, ast.BinOp):
        number = node.right.elts[0] if isinstance(node.right, ast.Tuple) else node.right
    elif isinstance(node, ast.Call):
        number = node.args[0]
    return f"{{{module.code(number)}}}" if number is not None and is_formatted(node) else module.code(node)


def moves_storage(module: Module, node: ast.AST) -> bool:
    """Whether a node is a function of storage and location that always moves the storage."""
    if not isinstance(node, ast.Lambda) or len(node.args.args) != 2 or not isinstance(node.body, ast.Call):
        return False
    call = node.body
    known = not any(isinstance(each, ast.Starred) for each in call.args) and all(
        each.arg for each in call.keywords
    )
    return known and ast.unparse(call.func) == f"{node.args.args[0].arg}.cuda"
