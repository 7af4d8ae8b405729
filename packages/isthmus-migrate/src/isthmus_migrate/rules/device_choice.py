"""``"cuda" if torch.cuda.is_available() else "cpu"``, and ``torch.device("cuda")``, become the device constant."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.map_location import load_on_cpu
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source import constants, versions
from isthmus_migrate.source.calls import keyword
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import is_cuda, text
from isthmus_migrate.source.verdicts import WORD, Use, place_of


class DeviceChoice(Rule):
    """Choices between CUDA and the CPU."""

    code = "IM104"
    name = "device-choice"
    summary = "the choice between CUDA and the CPU is made once, where the device is defined"
    before = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
    after = "device = DEVICE"
    words = ("is_available",)
    order = 40

    def find(self, module: Module) -> Iterator[Finding]:
        """Find choices of a string or of two devices."""
        for node in module.of(ast.IfExp):
            if not _asks(module, node.test):
                continue
            strings = is_cuda(node.body) and text(node.orelse) == "cpu"
            parent = module.parents[node]
            if strings and makes_device(module, parent, lambda each: isinstance(each, ast.IfExp)):
                yield self._choice(module, parent, node, "{device}", "DEVICE")
            elif makes_device(module, node.body, is_cuda) and makes_device(module, node.orelse, _is_cpu):
                yield self._choice(module, node, node, "{device}", "DEVICE")
            elif strings:
                yield from self._strings(module, node)

    def _strings(self, module: Module, node: ast.IfExp) -> Iterator[Finding]:
        verdict = module.around.flow.strings.get(place_of(node.body), WORD)
        if verdict.use is Use.DEVICE and verdict.certain:
            yield self._choice(module, node, node, "{type}", "DEVICE.type")

    def _choice(
        self, module: Module, whole: ast.AST, node: ast.IfExp, template: str, becomes: str
    ) -> Finding:
        assert isinstance(whole, ast.expr)
        module.claimed.update(ast.walk(whole))
        subject, message = '"cuda" or "cpu"', "chooses between CUDA and the CPU"
        if constants.is_device_value(whole, module.torch, module.around.target, module.around.torch):
            older = versions.format_version(module.around.torch)
            return self.already_portable(
                module, node, subject, message, f"stays: PyTorch {older} has no other form"
            )
        if _defines_device(module, whole):
            value = constants.device_value("torch", module.around.target, module.around.torch)
            draft = Draft(module).replace(whole, value.replace('"', "{q}"))
            return self.automatic_change(
                node, subject, message, "becomes the accelerator in use, or the CPU", draft
            )
        draft = Draft(module).replace(whole, template)
        return self.automatic_change(node, subject, message, f"becomes {becomes}", draft)


class TorchDevice(Rule):
    """Devices created from a literal."""

    code = "IM105"
    name = "torch-device"
    summary = "a CUDA device becomes the device in use"
    before = 'device = torch.device("cuda")'
    after = "device = DEVICE"
    words = ("device",)
    order = 45

    def find(self, module: Module) -> Iterator[Finding]:
        """``torch.device("cuda")``, and the type of ``torch.device("cuda", index)``."""
        for call in module.of(ast.Call):
            first = _type(module, call)
            if first is None or call in module.claimed or compares_device(module, module.parents[call]):
                continue
            module.claimed.add(first)
            draft = Draft(module)
            if len(call.args) + len(call.keywords) == 1:
                draft.replace(call, "{device}")
                advice = "becomes DEVICE"
            else:
                draft.replace(first, "{type}")
                load_on_cpu(draft, first)
                advice = "is of the type DEVICE.type"
            yield self.automatic_change(call, "torch.device", "makes a CUDA device", advice, draft)


def makes_device(module: Module, node: ast.AST, what: Callable[[ast.expr], bool]) -> bool:
    """Whether a node is torch.device of one matching argument."""
    return (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and not node.keywords
        and module.names.qualified(node.func) == "torch.device"
        and what(node.args[0])
    )


def _type(module: Module, call: ast.Call) -> ast.expr | None:
    """Return the string ``"cuda"`` that a call of torch.device has as its type."""
    given = [*call.args, *(each.value for each in call.keywords)]
    names = [each.arg for each in call.keywords]
    if len(given) not in (1, 2) or module.names.qualified(call.func) != "torch.device":
        return None
    first = call.args[0] if call.args else keyword(call, "type")
    return first if first is not None and None not in names and is_cuda(first) else None


def compares_device(module: Module, node: ast.AST) -> bool:
    """Whether a node is ``x == torch.device("cuda")``, which is changed as a whole."""
    if (
        not isinstance(node, ast.Compare)
        or len(node.ops) != 1
        or not isinstance(node.ops[0], ast.Eq | ast.NotEq)
    ):
        return False
    return any(makes_device(module, each, is_cuda) for each in (node.left, node.comparators[0]))


def _defines_device(module: Module, value: ast.expr) -> bool:
    """Whether an expression is the value of the module's own device constant."""
    holder = module.parents[value]
    at_top = isinstance(holder, ast.Assign) and module.parents[holder] is module.tree
    return module.has_own_choice and at_top and module.code(holder).startswith(module.device)


def _is_cpu(node: ast.expr) -> bool:
    return text(node) == "cpu"


def _asks(module: Module, test: ast.expr) -> bool:
    return isinstance(test, ast.Call) and module.names.qualified(test.func) == "torch.cuda.is_available"
