"""Automatic mixed precision: ``torch.cuda.amp`` becomes ``torch.amp``, which takes the type of the device."""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules import amp_uses
from isthmus_migrate.rules.amp_uses import AUTOCAST, FUNCTIONS, PARAMETERS, SCALER, amp_name
from isthmus_migrate.rules.draft import AND, ATOM, COMPARISON, OR, TERNARY, Draft, operand
from isthmus_migrate.rules.functions import add_guard, is_type, needs_guard
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.calls import argument, unpacks
from isthmus_migrate.source.conditions import value_implies
from isthmus_migrate.source.cuda_names import NAMES, Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.regions import region
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import WORD, Use, place_of

_SCALERS = ("torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
_DEVICE = {
    **dict.fromkeys(
        ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"), "device_type"
    ),
    **dict.fromkeys(_SCALERS, "device"),
}
_GENERIC_PARAMETERS = {
    "device_type": ("device_type", "dtype", "enabled", "cache_enabled"),
    "device": ("device", *amp_uses.SCALER_PARAMETERS),
}
_TO_AUTOCAST = re.compile(r"passed to torch\.(amp\.)?(autocast_mode\.)?autocast\b")
_GET_DTYPE, _SET_DTYPE = "torch.get_autocast_gpu_dtype", "torch.set_autocast_gpu_dtype"
_RENAMED = {_GET_DTYPE: "torch.get_autocast_dtype", _SET_DTYPE: "torch.set_autocast_dtype"}
_IS_ENABLED = "torch.is_autocast_enabled"
_ON = "{type} != {q}cpu{q}"
_OFF = "{type} == {q}cpu{q}"
_ADVICE = {
    amp_uses.MAY_BE_ON: 'pass `enabled` by name, False if DEVICE.type == "cpu"',
    amp_uses.BY_VARIABLE: 'pass DEVICE.type, and `enabled` False if it is "cpu"',
    amp_uses.NOT_CALLED: "pass a function that calls torch.amp's with DEVICE.type",
}


class Amp(Rule):
    """Autocast, gradient scaling, and autograd functions under autocast.

    Autocast for CUDA does nothing without CUDA; the converted one does nothing on the CPU.
    """

    code = "IM118"
    name = "amp"
    summary = "mixed precision of the device in use; off on the CPU, as before"
    before = "with torch.cuda.amp.autocast():"
    after = 'with torch.amp.autocast(DEVICE.type, enabled=DEVICE.type != "cpu"):'
    words = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the names of ``torch.cuda.amp``, and calls of ``torch.amp`` and ``torch.autocast`` for CUDA."""
        moved = amp_uses.moved_names(module)
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            is_whole = is_read(node) and not isinstance(module.parents[node], ast.Attribute)
            if is_whole and not module.names.is_variable(node) and (name := amp_name(module, node)):
                yield from self._use(module, node, name, moved)
        for call in module.of(ast.Call):
            yield from self._by_variable(module, call)

    def _use(self, module: Module, node: ast.expr, name: str, moved: set[str]) -> Iterator[Finding]:
        """Yield the finding of a use of a name."""
        call = module.parents[node]
        is_called = isinstance(call, ast.Call) and call.func is node
        if name in (AUTOCAST, SCALER, *FUNCTIONS):
            if why := amp_uses.find_obstacle(module, node):
                yield self._not_converted(module, node, name, why)
            elif isinstance(call, ast.Call) and is_called:
                yield self._call(module, call, name, moved)
            else:
                yield self._reference(module, node, name, moved)
        elif isinstance(call, ast.Call) and is_called:
            if name in _DEVICE:
                yield from self._generic(module, call, name)
            elif name in _RENAMED or (name == _IS_ENABLED and not call.args):
                yield self._state(module, call, name)
        elif _DEVICE.get(name) == "device_type":
            yield from self._alias(module, node, name)

    def _not_converted(self, module: Module, node: ast.expr, name: str, why: str) -> Finding:
        end = self.undecided if why in _ADVICE else self.needs_manual_change
        return end(
            module, node, name, why, _ADVICE.get(why, "write it with torch.amp and DEVICE.type by hand")
        )

    def _call(self, module: Module, call: ast.Call, name: str, moved: set[str]) -> Finding:
        """Return the finding of a call of a name of ``torch.cuda.amp``."""
        draft = self._rename_draft(module, call.func, name, moved)
        if name in FUNCTIONS:
            draft.argument(call, "device_type={type}")
        else:
            by_position = call.args if name == AUTOCAST else []  # torch.amp takes them in another order
            draft.first_argument(call, "{type}", f"{PARAMETERS[name][0]}=" if by_position else "")
            for parameter, value in zip(PARAMETERS[name][1:], by_position[1:], strict=False):
                draft.insert_before(call, _outer_start(module, value), f"{parameter}=")
            _switch(draft, call, argument(call, PARAMETERS[name], "enabled"))
        return self.automatic_change(
            call, name, "belongs to CUDA", f"becomes {_new_name(name)}(DEVICE.type)", draft
        )

    def _reference(self, module: Module, node: ast.expr, name: str, moved: set[str]) -> Finding:
        """Return the finding of a decorator, a type, or a value whose calls are known."""
        draft = self._rename_draft(module, node, name, moved)
        parent = module.parents[node]
        if name in FUNCTIONS and node in getattr(parent, "decorator_list", ()):
            draft.surround(node, "", "(device_type={type})", ATOM)
        elif name in FUNCTIONS:
            draft.surround(node, "functools.partial(", ", device_type={type})", ATOM)
        elif not is_type(module, node):
            enabled = f", enabled={_ON}" if needs_guard(module, node, Guard.ACCELERATOR) else ""
            draft.surround(node, "functools.partial(", f", {{type}}{enabled})", ATOM)
        if not draft.edits:
            return self.already_portable(
                module, node, name, "names the class of torch.amp", "stays: its import moves"
            )
        return self.automatic_change(node, name, "belongs to CUDA", f"becomes {_new_name(name)}", draft)

    def _generic(self, module: Module, call: ast.Call, name: str) -> Iterator[Finding]:
        """Yield the finding of ``torch.autocast("cuda")`` or ``torch.amp.GradScaler()``, whose default is CUDA."""
        parameters = _GENERIC_PARAMETERS[_DEVICE[name]]
        type_ = argument(call, parameters, _DEVICE[name])
        is_default = type_ is None and name in _SCALERS and not unpacks(call)
        if not is_default and text(type_) != "cuda":
            return
        if type_ is not None:
            module.claimed.add(type_)
        if why := amp_uses.call_obstacle(module, call, parameters, reorders=False):
            yield self._not_converted(module, call, name, why)
            return
        draft = Draft(module)
        if type_ is None:
            draft.first_argument(call, "{type}")
        else:
            draft.replace(type_, "{type}")
        _switch(draft, call, argument(call, parameters, "enabled"))
        yield self.automatic_change(call, name, "is for CUDA", "is for DEVICE.type", draft)

    def _alias(self, module: Module, node: ast.expr, name: str) -> Iterator[Finding]:
        """Yield the finding of ``autocast if mixed else nullcontext``, the value of a variable that is called."""
        parameters = _GENERIC_PARAMETERS["device_type"]
        calls = amp_uses.alias_of_calls(module, node)
        types = [each for call in calls if (each := argument(call, parameters, "device_type"))]
        if any(map(unpacks, calls)) or any(region(module, each) for each in calls):
            return
        if not types or len(types) < len(calls) or any(text(each) != "cuda" for each in types):
            return
        draft, choice = Draft(module), module.parents[node]
        for call, type_ in zip(calls, types, strict=True):
            draft.replace(type_, "{type}")
            if not isinstance(choice, ast.IfExp):
                _switch(draft, call, argument(call, parameters, "enabled"))
        if isinstance(choice, ast.IfExp) and needs_guard(module, node, Guard.ACCELERATOR):
            _choose(draft, choice, node is choice.body)
        yield self.automatic_change(node, name, "is for CUDA", "is for DEVICE.type", draft)

    def _by_variable(self, module: Module, call: ast.Call) -> Iterator[Finding]:
        """Yield the finding of ``scope("cuda")`` where the data flow shows only that ``scope`` may be autocast."""
        if amp_name(module, call.func) and not module.names.is_variable(call.func):
            return
        type_ = argument(call, _GENERIC_PARAMETERS["device_type"], "device_type")
        if type_ is None or text(type_) != "cuda" or type_ in module.claimed or region(module, call):
            return
        verdict = module.around.flow.strings.get(place_of(type_), WORD)
        if verdict.use is Use.DEVICE and _TO_AUTOCAST.match(verdict.why):
            module.claimed.add(type_)
            yield self._not_converted(module, type_, f'"{text(type_)}"', amp_uses.BY_VARIABLE)

    def _state(self, module: Module, call: ast.Call, name: str) -> Finding:
        """Return the finding of a query of the autocast state; on the CPU it gives CUDA's default."""
        draft = Draft(module)
        if name in _RENAMED:
            draft.replace(call.func, _RENAMED[name])
        else:
            draft.require("is_autocast_enabled(device_type)")
        draft.first_argument(call, "{type}")
        if name == _SET_DTYPE:
            add_guard(draft, call, NAMES[name])
        elif not needs_guard(module, call, Guard.ACCELERATOR):
            pass
        elif name == _GET_DTYPE:
            draft.surround(call, "", f" if {_ON} else torch.float16", TERNARY)
        else:
            draft.surround(call, "", f" and {_ON}", AND)
        advice = f"becomes {_RENAMED.get(name, name)}(DEVICE.type)"
        return self.automatic_change(call, name, "is for CUDA", advice, draft)

    def _rename_draft(self, module: Module, node: ast.expr, name: str, moved: set[str]) -> Draft:
        """Return a draft that gives a function its new name; under the old one if the import moves."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        draft = Draft(module)
        return (
            draft if isinstance(root, ast.Name) and root.id in moved else draft.replace(node, _new_name(name))
        )


def _new_name(name: str) -> str:
    return name.replace("torch.cuda.amp.", "torch.amp.")


def _switch(draft: Draft, call: ast.Call, enabled: ast.expr | None) -> None:
    """Switch autocast off on the CPU: its condition is the source's, and an accelerator."""
    if not needs_guard(draft.module, call, Guard.ACCELERATOR):
        return
    if not (call.args or call.keywords):  # but the device type that is added
        draft.insert(call, draft.module.end(call) - 1, f", enabled={_ON}")
    elif enabled is None:
        draft.argument(call, f"enabled={_ON}")
    elif isinstance(enabled, ast.Constant):
        if enabled.value:
            draft.replace(enabled, _ON, COMPARISON)
    elif not value_implies(draft.module, enabled):
        opening, closing = operand(enabled)
        draft.surround(enabled, opening, f"{closing} and {_ON}", AND)


def _choose(draft: Draft, choice: ast.IfExp, holds: bool) -> None:
    """Choose no autocast on the CPU; ``holds`` is the test's value for autocast."""
    test = choice.test
    if holds:
        opening, closing = operand(test)
        draft.surround(test, opening, f"{closing} and {_ON}", AND)
    else:
        draft.surround(test, "", f" or {_OFF}", OR)


def _outer_start(module: Module, node: ast.expr) -> int:
    """Return the offset of the first character of an argument that is not the first, its parentheses included."""
    start = module.start(node)
    while module.text[:start].rstrip().endswith("("):
        start = len(module.text[:start].rstrip()) - 1
    return start
