"""Tensor types such as ``torch.cuda.FloatTensor``."""

import ast
from collections.abc import Iterator

from isthmus_common.tensor_types import TENSOR_TYPES
from isthmus_migrate.rules.draft import AND, ATOM, Draft
from isthmus_migrate.rules.functions import is_alone, is_annotation, is_type
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.calls import unpacks
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.indices import is_size
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_PREFIX = "torch.cuda."
_SET_DEFAULT = "torch.set_default_tensor_type"
_DATA = (ast.List, ast.Tuple, ast.ListComp)
_SAID = "is a tensor type of CUDA"


class TensorTypes(Rule):
    """Legacy tensor types, each a dtype and a device."""

    code = "IM120"
    name = "tensor-types"
    summary = "a legacy tensor type becomes a dtype and the device in use"
    before = "x = x.type(torch.cuda.FloatTensor)"
    after = "x = x.to(DEVICE, torch.float32)"
    words = (*TENSOR_TYPES, "torch.cuda")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find tensor types by name and as strings, and the default type."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            is_whole = is_read(node) and not isinstance(module.parents[node], ast.Attribute)
            if is_whole and not module.names.is_variable(node) and _dtype(module, node):
                yield from self._use(module, node)
        for constant in module.of(ast.Constant):
            if _dtype(module, constant) or text(constant) in ("torch.cuda", _PREFIX):
                module.claimed.add(constant)
                yield from self._string(module, constant)
        for call in module.of(ast.Call):
            if module.names.qualified(call.func) == _SET_DEFAULT and len(call.args) == 1:
                yield from self._default(module, call, call.args[0])

    def _use(self, module: Module, node: ast.expr) -> Iterator[Finding]:
        """Yield the finding of a type that is called, an argument, or a value."""
        parent = module.parents[node]
        call = module.parents[parent] if isinstance(parent, ast.IfExp) else parent
        if isinstance(call, ast.Call) and module.names.qualified(call.func) == _SET_DEFAULT:
            return  # found at the call
        if isinstance(parent, ast.Call) and parent.func is node:
            yield self._construct(module, parent)
        elif isinstance(parent, ast.Call) and (found := self._argument(module, parent, node)):
            yield found
        else:
            yield self._value(module, node)

    def _value(self, module: Module, node: ast.expr) -> Finding:
        """Return the finding of a type that is read, not called."""
        subject = module.names.qualified(node) or ""
        if isinstance(module.parents[node], ast.ClassDef):
            return self.needs_manual_change(
                module, node, subject, "is a base class", "derive it from torch.Tensor"
            )
        if is_annotation(module, node):
            return self.already_portable(
                module, node, subject, "is an annotation", "stays: every PyTorch has the name"
            )
        if is_type(module, node):
            return self.undecided(module, node, subject, _SAID, "test the device's type and the dtype")
        draft = _reference(Draft(module), node)
        return self.automatic_change(node, subject, _SAID, "becomes the type of the device in use", draft)

    def _argument(self, module: Module, call: ast.Call, node: ast.expr) -> Finding | None:
        """Return the finding of ``x.type(T)`` or ``isinstance(x, T)``; None for other calls and arguments."""
        dtype = _dtype(module, node)
        subject = text(node) or module.names.qualified(node) or ""
        if isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args == [node]:
            end = module.end(call.func)
            draft = Draft(module).swap(call, end - len("type"), end, "to")
            draft.replace(node, f"{{device}}, torch.{dtype}")
            return self.automatic_change(
                node, subject, _SAID, f"becomes a conversion to DEVICE and torch.{dtype}", draft
            )
        is_test = isinstance(call.func, ast.Name) and call.func.id == "isinstance" and node in call.args[1:2]
        if (
            not is_test
            or text(node)
            or not _is_repeatable(call.args[0])
            or module.names.qualified(call.args[0])
        ):
            return None
        template = (
            "isinstance({x}, torch.Tensor) and {x}.device.type != {q}cpu{q} and {x}.dtype == torch." + dtype
        )
        draft = Draft(module).replace(call, template, AND, x=module.code(call.args[0]))
        return self.automatic_change(node, subject, _SAID, "becomes tests of the device and the dtype", draft)

    def _construct(self, module: Module, call: ast.Call) -> Finding:
        """Return the finding of a call of a type: a list is data, integers are a size."""
        dtype, subject = _dtype(module, call.func), module.names.qualified(call.func) or ""
        is_data = len(call.args) == 1 and isinstance(call.args[0], _DATA)
        has_sizes = len(call.args) != 1 or is_size(module, call.args[0])
        draft = Draft(module)
        if not (is_data or has_sizes) or unpacks(call) or call.keywords:
            draft.replace(call.func, f"torch.{subject.rpartition('.')[2]}")
            draft.surround(call, "", ".to({device})", ATOM)
            return self.automatic_change(
                call, subject, _SAID, "becomes the CPU's type, moved to DEVICE", draft
            )
        function = "torch.tensor" if is_data else "torch.empty"
        draft.replace(call.func, function)
        draft.argument(call, ("" if call.args else "0, ") + f"dtype=torch.{dtype}, device={{device}}")
        return self.automatic_change(call, subject, _SAID, f"becomes {function}", draft)

    def _string(self, module: Module, node: ast.Constant) -> Iterator[Finding]:
        """Yield the finding of ``"torch.cuda.FloatTensor"``, compared with or given to ``x.type``."""
        parent, name = module.parents[node], text(node)
        if isinstance(parent, ast.Call) and node in parent.args:
            if module.names.qualified(parent.func) == _SET_DEFAULT:
                return
            if _dtype(module, node) and (found := self._argument(module, parent, node)):
                yield found
                return
        if _is_compared(module, node):
            rest = name.removeprefix("torch.cuda")
            draft = Draft(module).replace(node, "f{q}torch.{{type}}{rest}{q}", rest=rest)
            yield self.automatic_change(node, f'"{name}"', _SAID, "names the type of DEVICE", draft)
        elif _dtype(module, node) and not isinstance(parent, ast.Expr):
            advice = "write a dtype and a device"
            yield self.undecided(module, node, f'"{name}"', "names a tensor type of CUDA", advice)

    def _default(self, module: Module, call: ast.Call, type_: ast.expr) -> Iterator[Finding]:
        """Yield the finding of ``torch.set_default_tensor_type``."""
        if isinstance(type_, ast.IfExp) and (_dtype(module, type_.body) or _dtype(module, type_.orelse)):
            message = "is given a choice of legacy types"
            advice = "set the default dtype and, with torch.set_default_device(DEVICE), the default device"
            yield self.needs_manual_change(module, call, _SET_DEFAULT, message, advice)
        elif dtype := _dtype(module, type_):
            yield self._set_default(module, call, dtype, "{device}")
        elif (dtype := _cpu_dtype(module, type_)) and _sets_cuda(module):  # it also set the device back
            yield self._set_default(module, call, dtype, "{q}cpu{q}")

    def _set_default(self, module: Module, call: ast.Call, dtype: str, device: str) -> Finding:
        statement = module.parents[call]
        if any(module.names.qualified(each.func) == "torch.Tensor" for each in module.of(ast.Call)):
            message = "applies to torch.Tensor(...) in this file, which torch.set_default_device does not"
            advice = "write torch.tensor or torch.empty instead of torch.Tensor, and convert again"
            return self.needs_manual_change(module, call, _SET_DEFAULT, message, advice)
        if not isinstance(statement, ast.Expr):
            return self.undecided(
                module, call, _SET_DEFAULT, "is part of an expression", "write it as a statement"
            )
        newline = "\r\n" if "\r\n" in module.text else "\n"
        indent = module.text[module.line_start(statement.lineno) : module.start(statement)]
        between = newline + indent if is_alone(module, statement) else "; "
        template = f"torch.set_default_dtype(torch.{dtype}){between}torch.set_default_device({device})"
        draft = Draft(module).replace(call, template)
        return self.automatic_change(
            call, _SET_DEFAULT, "sets a type", "becomes a default dtype and a default device", draft
        )


def _dtype(module: Module, node: ast.expr) -> str:
    """Return the dtype of a CUDA tensor type or its name; "" for anything else."""
    name = text(node) or module.names.qualified(node) or ""
    return TENSOR_TYPES.get(name.removeprefix(_PREFIX), "") if name.startswith(_PREFIX) else ""


def _cpu_dtype(module: Module, node: ast.expr) -> str:
    """Return the dtype of a tensor type of the CPU or its name."""
    name = text(node) or module.names.qualified(node) or ""
    return TENSOR_TYPES.get(name.removeprefix("torch."), "") if name.startswith("torch.") else ""


def _sets_cuda(module: Module) -> bool:
    """Whether the module sets a CUDA tensor type as the default."""
    calls = (each for each in module.of(ast.Call) if module.names.qualified(each.func) == _SET_DEFAULT)
    return any(_dtype(module, each.args[0]) for each in calls if len(each.args) == 1)


def _reference(draft: Draft, node: ast.expr) -> Draft:
    """Replace a type by that of the device in use; the CPU's is in ``torch`` itself.

    It raises for an accelerator without such types, rather than to make tensors on the CPU.
    """
    name = (draft.module.names.qualified(node) or "").removeprefix(_PREFIX)
    return draft.replace(
        node, f"getattr(torch if {{type}} == {{q}}cpu{{q}} else {{module}}, {{q}}{name}{{q}})"
    )


def _is_repeatable(node: ast.expr) -> bool:
    """Whether an expression is a name or attributes of one, which can be evaluated repeatedly."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_compared(module: Module, node: ast.expr) -> bool:
    """Whether a string is compared with what ``x.type()`` returns."""
    holder = module.parents[node]
    while isinstance(holder, ast.Tuple | ast.List | ast.Set):
        holder = module.parents[holder]
    if isinstance(holder, ast.Compare):
        return any(_is_type_name(each) for each in (holder.left, *holder.comparators))
    if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute):
        return holder.func.attr == "startswith" and _is_type_name(holder.func.value)
    return False


def _is_type_name(node: ast.expr) -> bool:
    """Whether an expression is ``x.type()``, which returns the name of a tensor's type."""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr == "type" and not (node.args or node.keywords)  # type: ignore[attr-defined]
