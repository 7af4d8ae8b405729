"""``"cuda"``, ``"cuda:0"`` and ``f"cuda:{rank}"`` where they name a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.library_options import option_of
from isthmus_migrate.rules.map_location import load_on_cpu
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.rules.strings import rename
from isthmus_migrate.source import mps, registrations
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import is_cuda, is_formatted, names_cuda, text
from isthmus_migrate.source.verdicts import WORD, Use, Verdict, place_of

_LOADS = re.compile(r"passed to [\w.]+\(map_location=\)|passed to torch\.(jit\.)?load\(")
_REMEDY = "name the device in use, DEVICE.type, if PyTorch takes it"
_TABLE = "add an entry for the device in use, DEVICE.type"
_ACCELERATOR = frozenset({"torch._utils._get_available_device_type", "torch.accelerator.current_accelerator"})
_OF_JOB = (
    "is the default of an option that a script evaluates where it submits a job, maybe without an accelerator"
)
_AT_JOB = "choose the device where the job runs, or pass the option"


class DeviceString(Rule):
    """Strings that name a device, where the data flow shows that PyTorch takes them as one."""

    code = "IM102"
    name = "device-string"
    summary = "the name of a CUDA device becomes that of the device in use"
    before = 'x = torch.zeros(2, device="cuda")'
    after = "x = torch.zeros(2, device=DEVICE.type)"
    words = ('"cuda', "'cuda")
    order = 80

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the strings that no other rule has found."""
        for node in module.of(ast.Constant):
            if (
                names_cuda(node)
                and node not in module.claimed
                and not isinstance(module.parents[node], ast.Expr)
            ):
                yield from self._judge_string(module, node)
        for each in module.of(ast.List):
            yield from self._judge_choices(module, each)

    def _judge_string(self, module: Module, node: ast.Constant) -> Iterator[Finding]:
        parent = module.parents[node]
        subject = f'"{text(node)}"'
        verdict = module.around.flow.strings.get(place_of(node), WORD)
        if isinstance(parent, ast.MatchValue):
            subject_verdict = self._match_verdict(module, parent)
            if subject_verdict.use is Use.DEVICE:
                yield self.needs_manual_change(
                    module, node, subject, "is a pattern that matches no other device", _TABLE
                )
            else:
                yield self.already_portable(
                    module, node, subject, "is a pattern of words, not of devices", "stays"
                )
            return
        if verdict.use is Use.KEY:
            yield self.needs_manual_change(
                module, node, subject, "is a key among which a device type is looked up", _TABLE
            )
        elif verdict.use is Use.DEVICE and verdict.certain:
            yield self._judge_device(module, node, subject, verdict)
        elif _registers(module, node):
            yield self.already_portable(
                module, node, subject, "is the device of an operator's implementation", "stays"
            )
        elif verdict.use is Use.WORD:
            yield self.already_portable(module, node, subject, "is a word here, not a device", "stays")
        elif option := option_of(verdict.why):
            yield self.undecided(module, node, subject, f"{verdict.why}: it {option.message}", option.advice)
        elif verdict.use is not Use.BACKEND:
            yield self.undecided(module, node, subject, f"may be a device: {verdict.why}", _REMEDY)

    def _judge_device(self, module: Module, node: ast.Constant, subject: str, verdict: Verdict) -> Finding:
        if is_enum_value(module, node):
            message = "is a value of an Enum, which other values are compared with"
            return self.needs_manual_change(module, node, subject, message, _TABLE)
        if _is_option_of_job(module, node):
            return self.undecided(module, node, subject, _OF_JOB, _AT_JOB)
        if _is_without_accelerator(module, node):
            return self.already_portable(
                module, node, subject, "is used where there is no accelerator", "stays"
            )
        draft = Draft(module)
        if not rename(draft, node):
            return self.needs_manual_change(
                module, node, subject, "is written in parts", "write it as one string"
            )
        if not is_cuda(node):
            load_on_cpu(draft, node, _LOADS.match(verdict.why) is not None)
        advice = "becomes DEVICE.type" if is_cuda(node) else 'becomes f"{DEVICE.type}:..."'
        if mps.is_double(module, node):
            advice += f", with float64, {mps.LACKS}"
        return self.automatic_change(node, subject, "names a CUDA device", advice, draft, verdict.why)

    def _match_verdict(self, module: Module, pattern: ast.MatchValue) -> Verdict:
        matches = (each for each in module.enclosing(pattern) if isinstance(each, ast.Match))
        match = next(matches)
        return module.around.flow.values.get(place_of(match.subject), WORD)

    def _judge_choices(self, module: Module, node: ast.List) -> Iterator[Finding]:
        """Add the device in use to ``choices=["cpu", "cuda"]`` of an option that is a device."""
        parent = module.parents[node]
        if not (isinstance(parent, ast.keyword) and parent.arg == "choices") or not any(
            map(is_cuda, node.elts)
        ):
            return
        verdict = module.around.flow.values.get(place_of(node), WORD)
        types = {f"{module.device}.type", "DEVICE.type"}
        if verdict.use is not Use.DEVICE or types.intersection(map(ast.unparse, node.elts)):
            return
        if not verdict.certain or not module.around.flow.uses_torch:
            yield self.undecided(module, node, "choices", f"may be of a device: {verdict.why}", _REMEDY)
            return
        draft = Draft(module).insert(node, module.end(node.elts[-1]), ", {type}")
        for each in node.elts:
            if names_cuda(each) and not is_cuda(each):
                number = text(each).removeprefix("cuda")
                draft.insert(node, module.end(node.elts[-1]), ", {type} + {q}{number}{q}", number=number)
        advice = "DEVICE.type is a choice too"
        yield self.automatic_change(node, "choices", "are of a device", advice, draft, verdict.why)


class DeviceFormat(Rule):
    """Strings that append a number to ``cuda:``, where the data flow shows that PyTorch takes them as a device."""

    code = "IM103"
    name = "device-format"
    summary = "a numbered CUDA device becomes that of the device in use"
    before = 'device = f"cuda:{rank}"'
    after = 'device = f"{DEVICE.type}:{rank}"'
    words = ("cuda:",)
    order = 80

    def find(self, module: Module) -> Iterator[Finding]:
        """Find ``f"cuda:{rank}"``, and the same by ``+``, ``%`` and ``format``."""
        for node in (*module.of(ast.JoinedStr), *module.of(ast.BinOp), *module.of(ast.Call)):
            verdict = module.around.flow.strings.get(place_of(node))
            if verdict is None or node in module.claimed or isinstance(module.parents[node], ast.Expr):
                continue
            yield self._judge_format(module, node, verdict)

    def _judge_format(self, module: Module, node: ast.expr, verdict: Verdict) -> Finding:
        subject = '"cuda:..."'
        if verdict.use is Use.WORD:
            return self.already_portable(module, node, subject, "is text here, not a device", "stays")
        if verdict.use is Use.KEY:
            return self.needs_manual_change(
                module, node, subject, "is a key among which a device is looked up", _TABLE
            )
        if verdict.use is not Use.DEVICE or not verdict.certain:
            return self.undecided(module, node, subject, f"may be a device: {verdict.why}", _REMEDY)
        draft = Draft(module)
        if not is_formatted(node) or not rename(draft, node):
            message = "names a CUDA device in a format that is not converted"
            return self.needs_manual_change(module, node, subject, message, 'write f"{DEVICE.type}:{index}"')
        load_on_cpu(draft, node, _LOADS.match(verdict.why) is not None)
        advice = 'becomes f"{DEVICE.type}:..."'
        return self.automatic_change(node, subject, "names a CUDA device", advice, draft, verdict.why)


def _registers(module: Module, node: ast.Constant) -> bool:
    """Whether a string is an argument of a registration for CUDA, which has a finding of its own."""
    call = module.nearest(node, ast.Call, ast.stmt)
    return isinstance(call, ast.Call) and registrations.is_for_cuda(module, call)


def _is_option_of_job(module: Module, node: ast.expr) -> bool:
    """Whether a string is the default of an option, in a function that a script uses which submits jobs."""
    given = module.parents[node]
    if not (isinstance(given, ast.keyword) and given.arg == "default"):
        return False
    functions = (each for each in module.enclosing(node) if isinstance(each, ast.FunctionDef))
    return any(module.names.defined(each) in module.around.project.submitted for each in functions)


def _is_without_accelerator(module: Module, node: ast.expr) -> bool:
    """Whether a string follows ``or`` and a call that returns the accelerator."""
    parent = module.parents[node]
    if not (isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or) and node is parent.values[-1]):
        return False
    calls = (each for value in parent.values[:-1] for each in ast.walk(value) if isinstance(each, ast.Call))
    return any(module.names.qualified(each.func) in _ACCELERATOR for each in calls)


def is_enum_value(module: Module, node: ast.expr) -> bool:
    """Whether a string is a value of an Enum, which other values are compared with."""
    holder = module.parents[node]
    if not isinstance(holder, ast.Assign | ast.AnnAssign):
        return False
    owner = module.parents[holder]
    return isinstance(owner, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in owner.bases)
