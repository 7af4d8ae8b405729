"""Longer texts that mention CUDA and may have to be right for the device: patterns, and code in strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.messages import is_message
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.rules.strings import is_plain, rename
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.verdicts import Use, place_of

_WORD = re.compile(r"(?<![a-zA-Z0-9/])(cuda|nccl)(?![a-zA-Z0-9/])")  # in a path it is not a device
_CODE = re.compile(r"\.cuda\b|\btorch\.cuda|device\s*=|\.to\(|is_cuda|torch\.device|import torch")
_NAME = re.compile(r"[\w.]+")  # a dotted name, which other rules know
_SETTING = re.compile(
    r"(?<![\w-])[\"']?(?P<name>\w*(device|backend)\w*)[\"']?\s*:\s*[\"']?(cuda(:\d+)?|nccl)[\"']?\s*(?=[,}\]#]|$)",
    re.MULTILINE | re.IGNORECASE,
)
_PARSERS = ("json", "yaml", "OmegaConf")
_PATTERNS = frozenset(
    f"re.{name}" for name in "compile match search fullmatch sub subn split findall finditer".split()
)
_CUTS = frozenset("replace removeprefix split rsplit partition rpartition strip lstrip index find".split())
_METHODS = frozenset("match search fullmatch sub findall finditer".split())


class Texts(Rule):
    """Regular expressions and settings that name CUDA, and strings that are run as code."""

    code = "IM133"
    name = "texts"
    summary = "patterns and code in strings that name CUDA are reported"
    before = 'eval("x.cuda()")'
    after = 'eval("x.cuda()")'
    words = ("cuda", "nccl")
    order = 85

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the strings."""
        found = {(each.line, each.column) for each in module.findings}
        for node in module.of(ast.Constant):
            if not isinstance(node.value, str) or not _WORD.search(node.value) or node in module.claimed:
                continue
            if (node.lineno, node.col_offset + 1) in found or (
                _NAME.fullmatch(node.value) and node.value != "cuda"
            ):
                continue
            if node.value == "cuda:" and (evidence := _other_half(module, node)):
                draft = Draft(module)
                rename(draft, node)
                said, advice = "is cut off the name of a device", "becomes the prefix of the device in use"
                yield self.automatic_change(node, _shorten(node.value), said, advice, draft, evidence)
            elif node.value in ("cuda", "cuda:") and self._is_cut(module, node):
                message, remedy = "is cut off the name of a device", "use the device's index instead"
                yield self.undecided(module, node, _shorten(node.value), message, remedy)
            elif self._is_pattern(module, node):
                message, remedy = "is matched by a regular expression", "match the device in use too"
                yield self.undecided(module, node, _shorten(node.value), message, remedy)
            elif _CODE.search(node.value) and not self._is_said(module, node):
                message, remedy = "is code in a string", "convert it by hand if it is run"
                yield self.undecided(module, node, _shorten(node.value), message, remedy)
            elif (setting := _SETTING.search(node.value)) and _is_parsed(module, node):
                message = f"may be JSON or YAML, with CUDA as the value of `{setting['name']}`"
                remedy = "leave the setting out and choose the device in use, if it is read as one"
                yield self.undecided(module, node, _shorten(node.value), message, remedy)

    def _is_said(self, module: Module, node: ast.Constant) -> bool:
        """Whether a string is a docstring, or a message on its own."""
        parent = module.parents[node]
        return isinstance(parent, ast.Expr) or (isinstance(parent, ast.Call) and is_message(module, parent))

    def _is_cut(self, module: Module, node: ast.Constant) -> bool:
        """``str(device).replace("cuda:", "")``."""
        call = module.parents[node]
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _CUTS
        ):
            return False
        verdict = module.around.flow.values.get(place_of(call.func.value))
        return verdict is None or verdict.use is not Use.WORD

    def _is_pattern(self, module: Module, node: ast.Constant) -> bool:
        call = module.parents[node]
        if not isinstance(call, ast.Call) or node not in call.args[:1]:
            return False
        if module.names.qualified(call.func) in _PATTERNS:
            return True
        return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS


def _other_half(module: Module, node: ast.Constant) -> str:
    """Return where the function that cuts off a prefix makes such a name for the device in use, in words."""
    call = module.parents[node]
    cuts = isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("replace", "removeprefix")
    if not cuts or node is not call.args[0] or not is_plain(module, node):  # type: ignore[attr-defined]
        return ""
    if (around := module.nearest(node, ast.FunctionDef)) is None:
        return ""
    start, end, prefix = module.start(around), module.end(around), f"{{{module.device}.type}}:"
    made = (
        found.line
        for found in module.findings
        for edit in found.edits
        if start <= edit.start < end and prefix in edit.text
    )
    line = next(made, 0)
    return f"such a name is made in line {line}" if line else ""


def _is_parsed(module: Module, node: ast.Constant) -> bool:
    """Whether a string may be given to a parser of JSON or YAML: it is an argument of one, or in a variable."""
    holder = module.parents[node]
    if isinstance(holder, ast.Call):
        name = f"{module.names.qualified(holder.func) or ast.unparse(holder.func)}"
        return any(each in name for each in _PARSERS)
    return isinstance(holder, ast.Assign) and module.mentions(*_PARSERS)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= 40 else f'"{line[:37]}..."'
