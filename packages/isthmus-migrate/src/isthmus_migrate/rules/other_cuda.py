"""Names of ``torch.cuda`` that no other rule has."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules import mocks
from isthmus_migrate.rules.functions import is_annotation
from isthmus_migrate.rules.manual_rule import longest_known_prefix, whole_names
from isthmus_migrate.rules.rule import Rule, in_words
from isthmus_migrate.source import words
from isthmus_migrate.source.cuda_assignments import find_reassigned
from isthmus_migrate.source.cuda_names import look_up
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.verdicts import Steers

_REMEDY = "write it with torch.get_device_module(DEVICE)"
_IMPORTS = frozenset({"importlib.import_module", "__import__"})
_PRIVATE = "keep it on CUDA, and skip it elsewhere"
_CHOICE = "torch.accelerator.current_accelerator"  # function that the device constant calls
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
            if _is_of_cuda(name) and not _is_alias(module, node) and not _has_rule(name):
                if mock := mocks.mocked_name(module, module.parents[node]):
                    yield self._mock_finding(module, node, mock)
                else:
                    remedy = _PRIVATE if ".cuda._" in name else _REMEDY
                    yield self.undecided(module, node, name, "belongs to CUDA and has no rule", remedy)
        for constant in module.of(ast.Constant):
            said = text(constant)
            by_path = ".torch.cuda." in said and mocks.mocked_name(module, module.parents[constant])
            if by_path or (_is_of_cuda(said) and _is_name(module, constant)):
                yield self._string(module, constant)
        for call in module.of(ast.Call):
            yield from self._by_name(module, call)
        for each in find_reassigned(module):
            said = "is assigned; converted code does not call it"
            yield self.undecided(
                module, each.target, each.name, said, in_words(module, _replacement_remedy(each.name))
            )

    def _string(self, module: Module, node: ast.Constant) -> Finding:
        """Return the finding of a string that names an object."""
        module.claimed.add(node)
        subject, said = f'"{text(node)}"', "names an object of CUDA"
        if is_annotation(module, node):
            return self.already_portable(module, node, subject, said, "stays: it is an annotation")
        if mock := mocks.mocked_name(module, module.parents[node]):
            return self._mock_finding(module, node, mock)
        return self.undecided(module, node, subject, said, _REMEDY)

    def _mock_finding(self, module: Module, node: ast.expr, name: str) -> Finding:
        """Return the finding of a function that a test replaces by a mock."""
        tests = [each for each in module.enclosing(node) if isinstance(each, FUNCTIONS)]
        steers = module.around.flow.steers.get(module.names.defined(tests[-1]) if tests else "", {}).get(name)
        if steers is Steers.CUDA:
            said = "is replaced by a mock, which steers code that stays for CUDA"
            return self.already_portable(module, node, name, said, "stays")
        if steers is Steers.ACCELERATOR and not module.around.torch:
            becomes = name.replace(".cuda.", ".accelerator.")
            said = "is replaced by a mock, for code that is converted"
            return self.automatic_change(
                node, name, said, f"becomes {becomes}", mocks.draft_rename(module, node)
            )
        entry = look_up(name)
        forms = [each for each in (entry.becomes, entry.accelerator) if each] if entry is not None else []
        becomes = in_words(module, " or ".join(forms))
        instead = f"{becomes} and " if becomes not in ("", name) else ""
        said = "is replaced by a mock, which does not steer converted code"
        advice = f"where the tested module is converted, replace {instead}its DEVICE too"
        return self.undecided(module, node, name, said, advice)

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
            yield self.already_portable(module, call, "torch.cuda", "exists in every PyTorch", advice)
        elif function == "getattr":
            yield self.undecided(module, call, "torch.cuda", "is looked up by name", _REMEDY)


def _is_of_cuda(name: str) -> bool:
    return name == "torch.cuda" or name.startswith("torch.cuda.")


def _has_rule(name: str) -> bool:
    """Whether another rule finds a name: it is in the table, or below a name that stays."""
    known = longest_known_prefix(name)
    entry = look_up(known)
    return entry is not None and (known == name or entry.code in _STAY)


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
        is_name = entry is not None and not is_text
        return function in _IMPORTS or is_name or bool(mocks.mocked_name(module, parent))
    return entry is not None and not isinstance(parent, ast.Expr | ast.JoinedStr | ast.Dict | ast.Compare)


def _replacement_remedy(name: str) -> str:
    """Return what converted code calls instead of a function of CUDA that a module assigns, as a remedy."""
    if name.endswith(".cuda"):
        return "assign `to`, which it calls instead"
    if name.endswith(".is_cuda"):
        return "decide by `device.type`, which it reads instead"
    known = look_up(name)
    becomes = known.becomes if known is not None and known.becomes else _REMEDY
    calls = f"{becomes} and {_CHOICE}" if name == "torch.cuda.is_available" else becomes
    return f"assign what it calls instead: {calls}" if becomes is not _REMEDY else _REMEDY
