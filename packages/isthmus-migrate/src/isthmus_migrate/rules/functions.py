"""Base class of rules that replace functions of ``torch.cuda`` by the table in source/cuda_names."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from typing import ClassVar

from isthmus_migrate.rules.draft import AND, TERNARY, Draft
from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source import cuda_names, mps
from isthmus_migrate.source.conditions import (
    AVAILABLE,
    Condition,
    conditions,
    implies_accelerator,
    implies_cuda,
    is_on_accelerator,
)
from isthmus_migrate.source.cuda_names import CudaName, Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_TESTS = {
    Guard.ACCELERATOR: "torch.accelerator.is_available()",
    Guard.APART: "{type} not in ({q}cpu{q}, {q}mps{q})",
    Guard.CUDA: "{type} == {q}cuda{q}",
}


class FunctionRule(Rule):
    """A rule whose replacements are the table's entries with its code.

    Attributes:
        positional: whether the replacement takes its arguments by position only.
    """

    positional: ClassVar[bool] = False

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the calls of the table's functions, and other reads of their names."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            if (
                not is_read(node)
                or node in module.claimed
                or isinstance(module.parents[node], ast.Attribute)
                or module.names.is_variable(node)
            ):
                continue
            entry = self.entry(module, node)
            if entry is None:
                continue
            parent = module.parents[node]
            if isinstance(parent, ast.Call) and parent.func is node:
                yield self.call(module, parent, entry)
            else:
                yield from self.name_read(module, node, entry)

    def entry(self, module: Module, node: ast.expr) -> CudaName | None:
        """Return a name's entry of this rule that has a replacement."""
        found = cuda_names.look_up(module.names.qualified(node) or "")
        return found if found is not None and found.code == self.code and found.becomes else None

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call: it becomes a call of the entry's function, under the entry's guard."""
        name = module.names.qualified(call.func) or ""
        if entry.guard is Guard.CUDA and not needs_guard(module, call, entry.guard):
            return self.already_portable(module, call, name, "is called on CUDA only", "stays")
        draft = Draft(module)
        entry = _for_accelerator(module, call, entry)
        if entry.guard is not Guard.CUDA:
            draft.replace(call.func, entry.becomes)
            if self.positional or entry.becomes.startswith("torch.accelerator."):
                without_keywords(draft, call)
        add_guard(draft, call, entry)
        return self.automatic_change(
            call, name, "belongs to CUDA", describe_replacement(module, call, entry), draft
        )

    def name_read(self, module: Module, node: ast.expr, entry: CudaName) -> Iterator[Finding]:
        """Yield the finding of a name that is read but not called."""
        name = module.names.qualified(node) or ""
        if entry.guard is Guard.CUDA:
            yield self.needs_manual_change(
                module, node, name, "is a function that only CUDA has", "call it on CUDA only"
            )
        elif is_without_accelerator(module, node):
            yield self.already_portable(module, node, name, "is read where there is no accelerator", "stays")
        else:
            draft = Draft(module)
            guard = _guard(module, entry)
            if entry.becomes.startswith("{module}") and needs_guard(module, node, guard):  # the CPU lacks it
                draft.surround(node, f"{entry.becomes} if {_TESTS[guard]} else ", "", TERNARY)
            else:
                draft.replace(node, entry.becomes)
            yield self.automatic_change(node, name, "belongs to CUDA", f"becomes {entry.becomes}", draft)


def describe_replacement(module: Module, node: ast.AST, entry: CudaName) -> str:
    """Return what a name becomes, in words, and whether MPS lacks it where it may be called on MPS."""
    if entry.guard is Guard.CUDA:
        return "is called on CUDA only"
    may_raise = mps.mps_lacks(entry.becomes) and _guard(module, entry) is not Guard.APART
    is_said = may_raise and not module.around.target and needs_guard(module, node, Guard.APART)
    return f"becomes {entry.becomes}" + (f", {mps.LACKS}" if is_said else "")


def _guard(module: Module, entry: CudaName) -> Guard:
    """Return where the replacement of a name may be called, in a module that may know MPS."""
    if entry.guard is Guard.ACCELERATOR and mps.is_known(module) and mps.mps_lacks(entry.becomes):
        return Guard.APART
    return entry.guard


def _for_accelerator(module: Module, call: ast.Call, entry: CudaName) -> CudaName:
    """Return the entry of a call, by ``torch.accelerator`` where there is one, or where MPS lacks the other."""
    if not entry.accelerator or module.around.target or any(each.arg is None for each in call.keywords):
        return entry  # torch.accelerator takes its arguments by position only
    own = entry._replace(becomes=entry.accelerator, guard=Guard.ACCELERATOR)
    is_safe = any(is_tested(module, each) for each in conditions(module, call))
    if is_safe or mps.refuses(entry.becomes, call):
        return own
    is_statement = isinstance(module.parents[call], ast.Expr)
    return own if is_statement and mps.mps_lacks(entry.becomes) else entry


def is_tested(module: Module, condition: Condition) -> bool:
    """Whether a condition is a test for an accelerator, and not only a switch with such a name."""
    is_test = isinstance(condition.test, ast.Call | ast.Compare)
    return is_test and (implies_accelerator(module, condition) or implies_cuda(module, condition))


def without_keywords(draft: Draft, call: ast.Call) -> None:
    """Pass the keyword arguments of a call by position."""
    for each in call.keywords:
        if each.arg:
            draft.swap(call, draft.module.start(each), draft.module.start(each.value), "")


def needs_guard(module: Module, node: ast.AST, guard: Guard) -> bool:
    """Whether a node may run where the guard is false."""
    target = module.around.target
    if guard is Guard.NONE or target == "cuda" or (target and guard is Guard.ACCELERATOR):
        return False
    if guard is Guard.APART:
        return not any(mps.excludes_mps(module, each) for each in conditions(module, node))
    if guard is Guard.CUDA:
        return not any(implies_cuda(module, each) for each in conditions(module, node))
    return not (is_on_accelerator(module, node) or is_within(module, node, module.around.project.sheltered))


def is_within(module: Module, node: ast.AST, names: Container[str]) -> bool:
    """Whether a node is in a function or class of some dotted names."""
    around = (each for each in module.enclosing(node) if isinstance(each, ast.FunctionDef | ast.ClassDef))
    return any(module.names.defined(each) in names for each in around)


def is_without_accelerator(module: Module, node: ast.AST) -> bool:
    """Whether a node runs only where there is no accelerator."""
    called = ((each.test, each.holds) for each in conditions(module, node) if isinstance(each.test, ast.Call))
    return any(not holds and module.names.qualified(test.func) in AVAILABLE for test, holds in called)


def is_type(module: Module, node: ast.AST) -> bool:
    """Whether a name of a class stands for the type: an annotation, or an argument of ``isinstance``."""
    below, above = node, module.parents[node]
    while isinstance(above, ast.Tuple | ast.BinOp | ast.Subscript):
        below, above = above, module.parents[above]
    if isinstance(above, ast.Call):
        function = above.func.id if isinstance(above.func, ast.Name) else ""
        return function in ("isinstance", "issubclass") and len(above.args) == 2 and below is above.args[1]
    return is_annotation(module, below)


def is_annotation(module: Module, node: ast.AST) -> bool:
    """Whether a node is the annotation of a parameter, a variable or a function."""
    above = module.parents[node]
    return node is getattr(above, "annotation", None) or node is getattr(above, "returns", None)


def add_guard(draft: Draft, call: ast.expr, entry: CudaName) -> None:
    """Put a call under its entry's guard: an ``if`` around a statement, else a conditional expression."""
    module = draft.module
    guard = _guard(module, entry)
    if not needs_guard(module, call, guard):
        return
    test = _TESTS[guard]
    statement = module.parents[call]
    if isinstance(statement, ast.Expr) and is_alone(module, statement):
        draft.guard(statement, test)
    elif entry.otherwise == "False":
        draft.surround(call, f"{test} and ", "", AND)
    else:
        draft.surround(call, "", f" if {test} else {entry.otherwise}", TERNARY)


def is_alone(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement is alone on its lines, and can be indented."""
    before = module.text[module.line_start(statement.lineno) : module.start(statement)]
    after = module.text[module.end(statement) : module.line_start((statement.end_lineno or 0) + 1)].strip()
    texts = (each for each in ast.walk(statement) if isinstance(each, ast.Constant | ast.JoinedStr))
    one_line = all(each.lineno == each.end_lineno for each in texts)
    return not before.strip() and (not after or after.startswith("#")) and one_line
