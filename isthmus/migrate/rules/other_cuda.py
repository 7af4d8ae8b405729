"""Names of ``torch.cuda`` that no other rule has."""

import ast
from collections.abc import Iterator

from isthmus.migrate.rules.functions import is_annotation, shown
from isthmus.migrate.rules.rule import Rule
from isthmus.migrate.rules.stays import longest, whole_names
from isthmus.migrate.source import words
from isthmus.migrate.source.calls import text
from isthmus.migrate.source.cuda_names import look_up
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module

_REMEDY = "write it with torch.get_device_module(DEVICE)"
_IMPORTS = frozenset({"importlib.import_module", "__import__"})
_TENSOR_TYPES = "IM120"
_STAY = frozenset({"IM405", "IM190", "IM191"})


class OtherCuda(Rule):
    """Names of ``torch.cuda`` without a rule, and the module itself."""

    code = "IM199"
    name = "other-cuda"
    summary = "names of torch.cuda without a rule are listed"
    before = "torch.cuda.memory_usage()"
    after = before
    words = ("cuda",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find such names, strings that are names, and ``hasattr(torch, "cuda")``."""
        for node, name in whole_names(module):
            if not _is_of_cuda(name) or _is_alias(module, node):
                continue
            if replaced := _replaced(module, node, name):
                yield self._patch(module, node, replaced)
            elif not _has_rule(name):
                yield self.unclear(module, node, name, "belongs to CUDA and has no rule", _REMEDY)
        for constant in module.of(ast.Constant):
            name = text(constant)
            if _is_of_cuda(name) and (_is_name(module, constant) or _replaced(module, constant, name)):
                yield self._string(module, constant)
        for call in module.of(ast.Call):
            yield from self._by_name(module, call)

    def _string(self, module: Module, node: ast.Constant) -> Finding:
        """Return the finding of a string that names an object."""
        module.claimed.add(node)
        subject, said = f'"{text(node)}"', "names an object of CUDA"
        if is_annotation(module, node):
            return self.right(module, node, subject, said, "stays: it is an annotation")
        if replaced := _replaced(module, node, text(node)):
            return self._patch(module, node, replaced)
        return self.unclear(module, node, subject, said, _REMEDY)

    def _patch(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Return the finding of ``mock.patch("torch.cuda.is_available")``."""
        entry = look_up(name)
        instead = shown(entry.becomes) if entry is not None and entry.becomes else "torch.accelerator"
        advice = f"patch {instead} as well, and DEVICE, which a converted module chooses when it is imported"
        return self.unclear(
            module, node, name, "is replaced for a test, and converted code may not call it", advice
        )

    def _by_name(self, module: Module, call: ast.Call) -> Iterator[Finding]:
        """Find ``hasattr(torch, "cuda")`` and ``getattr(torch, "cuda")``."""
        if (
            len(call.args) < 2
            or text(call.args[1]) != "cuda"
            or module.names.qualified(call.args[0]) != "torch"
        ):
            return
        function = call.func.id if isinstance(call.func, ast.Name) else ""
        if function == "hasattr":
            advice = "stays; ask torch.accelerator.is_available() for a device"
            yield self.right(module, call, "torch.cuda", "exists in every PyTorch", advice)
        elif function == "getattr":
            yield self.unclear(module, call, "torch.cuda", "is looked up by name", _REMEDY)


def _is_of_cuda(name: str) -> bool:
    return name == "torch.cuda" or name.startswith("torch.cuda.")


def _has_rule(name: str) -> bool:
    """Whether another rule finds a name: it is in the table, or below a name that stays."""
    known = longest(name)
    entry = look_up(known)
    return entry is not None and (known == name or entry.code in _STAY)


def _replaced(module: Module, node: ast.expr, name: str) -> str:
    """Return the function of CUDA that a test replaces, by its name or as an attribute of torch.cuda; "" if none."""
    call = module.parents[node]
    if not isinstance(call, ast.Call) or node not in call.args[:1]:
        return ""
    function = ast.unparse(call.func)
    if function.endswith((".setattr", "patch.object")) and len(call.args) > 1:
        return f"{name}.{text(call.args[1])}" if text(call.args[1]) else name
    is_patch = function == "patch" or function.endswith((".patch", ".setattr"))
    return name if is_patch and isinstance(node, ast.Constant) else ""


def _is_alias(module: Module, node: ast.expr) -> bool:
    """Whether a node only names a module: ``cuda = torch.cuda``."""
    parent = module.parents[node]
    return isinstance(parent, ast.Assign) and all(isinstance(each, ast.Name) for each in parent.targets)


def _is_name(module: Module, node: ast.Constant) -> bool:
    """Whether a string is used as the name of an object, neither text nor a tensor type."""
    entry = look_up(text(node))
    if entry is not None and entry.code == _TENSOR_TYPES:
        return False
    parent = module.parents[node]
    if isinstance(parent, ast.Call):
        function = module.names.qualified(parent.func) or getattr(parent.func, "id", "")
        last = parent.func.attr if isinstance(parent.func, ast.Attribute) else function
        is_text = last in words.FUNCTIONS or last in words.METHODS
        return function in _IMPORTS or (entry is not None and not is_text)
    return entry is not None and not isinstance(parent, ast.Expr | ast.JoinedStr | ast.Dict | ast.Compare)
