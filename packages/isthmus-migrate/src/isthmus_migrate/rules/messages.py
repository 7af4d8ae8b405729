"""Messages about CUDA under tests that the conversion makes tests for any accelerator."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence

from isthmus_migrate.rules.draft import Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source.calls import last_name
from isthmus_migrate.source.constants import is_own_type
from isthmus_migrate.source.edits import Edit
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.phrases import Phrase, names_cuda, neutral_phrases
from isthmus_migrate.source.strings import is_cuda, text

_TESTS = frozenset({"IM110", "IM119"})  # availability, device-comparison
_CALLS = re.compile(
    r"_?print\w*|\w+_print|warn(ing)?|info|debug|error|critical|exception|log(_\w+)?|echo|exit|fail|"
    r"skip|skipTest|skipIf|skipUnless|skipif|xfail"
)
_AVAILABLE = "torch.accelerator.is_available"
_SAID = "is said under a test for any accelerator"


class Messages(Rule):
    """Messages that a test for any accelerator makes untrue.

    A GPU may be named: that is what users call other accelerators too.
    """

    code = "IM134"
    name = "messages"
    summary = "messages under a converted test say that there is, or is not, an accelerator"
    before = 'assert torch.cuda.is_available(), "CUDA is not available"'
    after = 'assert torch.accelerator.is_available(), "no accelerator is available"'
    words = ("CUDA", "cuda", "Cuda")
    order = 90

    def find(self, module: Module) -> Iterator[Finding]:
        """Find what is printed, logged, warned or raised under a test, and the messages of assertions."""
        if module.around.target == "cuda":
            return
        tests = _Tests(module)
        for message in _messages(module):
            for said in _strings(message):
                if names_cuda(_value(said)) and (above := tests.deciding_tests(said)):
                    yield from self._message(module, said, any(map(tests.is_apart, above)))

    def _message(self, module: Module, said: ast.expr, is_apart: bool) -> Iterator[Finding]:
        """Yield the finding of a message.

        Args:
            module: the module.
            said: the string.
            is_apart: whether the test is false for other accelerators that the file asks for: that there is no CUDA
                device then stays true, and that there is no accelerator would not be.
        """
        code, subject = module.code(said), f'"{textwrap.shorten(_value(said), 60, placeholder="...")}"'
        phrases = list(neutral_phrases(code))
        if len(phrases) != names_cuda(_value(said)):
            yield self.undecided(
                module, said, subject, _SAID, "name the device in use, if it is not about CUDA alone"
            )
            return
        if is_apart and any(each.denies for each in phrases):
            return
        if tested := _tested_text(module, code, phrases):
            advice = f'change it together with "{tested}", which the project compares it with'
            yield self.undecided(module, said, subject, _SAID, advice)
            return
        draft, start = Draft(module), module.start(said)
        for each in phrases:
            draft.swap(said, start + each.start, start + each.end, each.text)
        advice = ", ".join(f'"{code[each.start : each.end]}" becomes "{each.text}"' for each in phrases)
        yield self.automatic_change(said, subject, _SAID, advice, draft)


class _Tests:
    """The tests of a module that ask for any accelerator, after the conversion or as they are."""

    def __init__(self, module: Module) -> None:
        self._module = module
        found = [each for each in module.findings if each.code in _TESTS]
        self._edits = [edit for each in found for edit in each.edits if not edit.guard]
        self._names: set[str] = set()
        assigned = [each for each in module.of(ast.Assign) if self._asks(each.value)]
        self._names.update(ast.unparse(target) for each in assigned for target in each.targets)

    def deciding_tests(self, said: ast.expr) -> list[ast.expr]:
        """Return the tests that decide whether a string is said, or are said with it."""
        return [each for each in self._enclosing_tests(said) if self._asks(each)]

    def is_apart(self, test: ast.expr) -> bool:
        """Whether a test is false for some other accelerators: ``DEVICE.type not in ("cpu", "mps")``."""
        return any(" in (" in each.text for each in self._edits_within(test)) or any(
            isinstance(each.ops[0], ast.In | ast.NotIn) and is_own_type(each.left)
            for each in _convertible_comparisons(test)
        )

    def _enclosing_tests(self, said: ast.expr) -> Iterator[ast.expr]:
        below: ast.AST = said
        for above in self._module.enclosing(said):
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                return
            if isinstance(above, ast.Call):  # print("CUDA available:", torch.cuda.is_available())
                yield above
            elif isinstance(above, ast.If | ast.IfExp | ast.Assert) and below is not above.test:
                yield above.test
                if getattr(self._module.parents[above], "orelse", None) == [above]:
                    return  # the arm of an `elif`, which asks for another device
            below = above

    def _asks(self, test: ast.expr) -> bool:
        """Whether a test, or an operand of it, asks for any accelerator."""
        if isinstance(test, ast.BoolOp):
            return any(map(self._asks, test.values))
        if isinstance(test, ast.UnaryOp):
            return self._asks(test.operand)
        if isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test) in self._names:
            return True
        called = (each.func for each in ast.walk(test) if isinstance(each, ast.Call))
        return (
            bool(self._edits_within(test))
            or any(self._module.names.qualified(each) == _AVAILABLE for each in called)
            or any(
                any(map(is_own_type, (each.left, *each.comparators)))
                for each in _convertible_comparisons(test)
            )
        )

    def _edits_within(self, test: ast.expr) -> list[Edit]:
        start, end = self._module.start(test), self._module.end(test)
        return [each for each in self._edits if start <= each.start and each.end <= end]


def _convertible_comparisons(test: ast.expr) -> Iterator[ast.Compare]:
    """Yield the comparisons in a test, without those with CUDA, which stay."""
    for each in ast.walk(test):
        if isinstance(each, ast.Compare) and not any(map(is_cuda, each.comparators)):
            yield each


def _messages(module: Module) -> Iterator[ast.expr]:
    """Yield what is printed, logged, warned or raised, by a variable too, and the messages of assertions."""
    found = [each.msg for each in module.of(ast.Assert) if each.msg is not None]
    for call in module.of(ast.Call):
        if is_message(module, call):
            found += [*call.args, *(each.value for each in call.keywords)]
    names = {each.id for each in found if isinstance(each, ast.Name)}
    assigned = [(each.targets[0], each.value) for each in module.of(ast.Assign)]
    assigned += [(each.target, each.value) for each in module.of(ast.AugAssign)]
    found += [value for target, value in assigned if isinstance(target, ast.Name) and target.id in names]
    yield from found


def is_message(module: Module, call: ast.Call) -> bool:
    """Whether a call prints, logs, warns or skips, or makes an exception that is raised."""
    return isinstance(module.parents[call], ast.Raise) or _CALLS.fullmatch(last_name(call.func)) is not None


def _strings(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the strings that a message is made of."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and " " in text(node)):
        yield node
    elif isinstance(node, ast.BinOp):
        yield from (*_strings(node.left), *_strings(node.right))
    elif isinstance(node, ast.IfExp):
        yield from (*_strings(node.body), *_strings(node.orelse))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # "...".format(x)
        yield from _strings(node.func.value)


def _value(node: ast.expr) -> str:
    """Return a string without what is formatted into it."""
    return "".join(map(text, node.values)) if isinstance(node, ast.JoinedStr) else text(node)


def _tested_text(module: Module, code: str, phrases: Sequence[Phrase]) -> str:
    """Return a text that the project looks for in the message, and that the new one lacks; "" for none."""
    new = code
    for each in reversed(phrases):
        new = new[: each.start] + each.text + new[each.end :]
    return next(
        (
            each
            for each in module.around.project.tested
            if _has_pattern(code, each) and not _has_pattern(new, each)
        ),
        "",
    )


def _has_pattern(said: str, pattern: str) -> bool:
    try:
        return pattern in said or re.search(pattern, said) is not None
    except re.error:
        return False
