"""The base class of rules of ``isthmus migrate convert``: a transformer of the concrete syntax tree."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeGuard

import libcst as cst
from libcst.helpers import get_full_name_for_node, parse_template_expression
from libcst.metadata import (
    ExpressionContextProvider,
    ParentNodeProvider,
    PositionProvider,
    ScopeProvider,
)

from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.own_methods import own_cuda

Quote = Literal['"', "'"]


class Change(NamedTuple):
    """One change of a source.

    Attributes:
        code: of the rule.
        path: of the file, from the folder on that was asked for.
        line: first line before the change, from 1 on.
        end_line: last line before the change.
        message: what was done.
    """

    code: str
    path: str
    line: int
    end_line: int
    message: str


class Project(NamedTuple):
    """What other sources of its project mean for the one that is converted.

    Attributes:
        taken: names that the constant of the device cannot have.
        own_cuda: the class with a method ``cuda`` of its own, as :func:`own_methods.own_cuda_of` says it.
    """

    taken: Collection[str] = ()
    own_cuda: str = ""


ALONE = Project()


class Context:
    """What rules know of the file that they change, and what they ask for in it.

    Args:
        path: of the file, from the folder on that was asked for.
        target: a device type, or "" for whatever accelerator is there.
        source: the text before any change.
        options: of `isthmus migrate convert` that are given.
        project: what the other sources mean for this one.

    Attributes:
        changes: what was done so far.
        findings: what was left as it is, and why.
        imports: modules that the engine has to import, ``"torch.distributed as dist"``.
        converted: names bound by imports of which a use was replaced; the engine drops those without a use.
        claimed: nodes of the tree as it was that one rule replaces as a whole; others leave them alone.
        lines: statements that the engine wraps in ``if <test>:``, with the test.
        names: what the names of the tree as it was stand for, as far as a rule asked.
        torch: the name by which the file has PyTorch.
        device: the name of the constant that is the device.
        needs_torch: whether a rule used the former.
        needs_device: whether a rule used the latter.
    """

    def __init__(
        self,
        path: str,
        target: str = "",
        source: str = "",
        options: Collection[str] = (),
        project: Project = ALONE,
    ) -> None:
        self.path = path
        self.target = target
        self.source = source
        self.options = options
        self.project = project
        self.changes: list[Change] = []
        self.findings: list[Finding] = []
        self.imports: set[str] = set()
        self.converted: set[str] = set()
        self.claimed: set[cst.CSTNode] = set()
        self.lines: dict[cst.SimpleStatementLine, str] = {}
        self.names: dict[cst.CSTNode, Sequence[str]] = {}
        self.torch = "torch"
        self.device = "DEVICE"
        self.needs_torch = False
        self.needs_device = False

    @cached_property
    def own_cuda(self) -> str:
        """The class of the project that a call of ``cuda`` may mean, "" if there is none."""
        return self.project.own_cuda or own_cuda(self.source)


class Rule(cst.CSTTransformer):
    """A rule; one instance per file. A subclass fills in the class attributes and leaves a change by :meth:`note`.

    All rules of the same order run in one walk: a rule sees the tree as it was (``original``) and what the rules
    before it made of the node (``updated``), and must return ``updated`` where it has nothing to do.

    Attributes:
        code: stable identifier, ``"IM101"``.
        name: short name in words, ``"tensor-cuda"``.
        severity: AUTOMATIC, or REVIEW where a person should look at the result.
        summary: one line, what it does and why.
        before: a line of source that it changes.
        after: the same, changed.
        words: a source that has none of them is not visited.
        mention: nor is one without this.
        order: rules with a smaller one come first.
        option: of `isthmus migrate convert`, ``"ddp"``, without which the rule changes nothing; "" if there is none.
    """

    METADATA_DEPENDENCIES: ClassVar[Collection[Any]] = (
        ExpressionContextProvider,
        ParentNodeProvider,
        PositionProvider,
        ScopeProvider,
    )

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.AUTOMATIC
    summary: ClassVar[str]
    before: ClassVar[str]
    after: ClassVar[str]
    words: ClassVar[tuple[str, ...]]
    mention: ClassVar[str] = ""
    order: ClassVar[int] = 50
    option: ClassVar[str] = ""

    @classmethod
    def as_dict(cls) -> dict[str, str]:
        """The rule's attributes for people, for JSON."""
        names = ("code", "name", "option", "summary", "before", "after")
        return {"severity": cls.severity.value, **{name: getattr(cls, name) for name in names}}

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def is_on(self) -> bool:
        """Whether the option that the rule needs is given."""
        return self.option in ("", *self.context.options)

    def is_needed(self) -> bool:
        """Whether the rule may have something to do in the file, by what is known before its walk."""
        return True

    # ---- the tree as it was -----------------------------------------------------------------------------------
    def note(self, original: cst.CSTNode, message: str) -> None:
        """Log a change of a node of the tree as it was."""
        place = self.get_metadata(PositionProvider, original)
        self.context.changes.append(
            Change(self.code, self.context.path, place.start.line, place.end.line, message)
        )

    def left(
        self,
        original: cst.CSTNode,
        subject: str,
        message: str,
        advice: str,
        severity: Severity = Severity.MANUAL,
    ) -> None:
        """Report a node of the tree as it was that this rule knows and leaves as it is.

        Args:
            original: the node.
            subject: the name it is about.
            message: what was found, a predicate.
            advice: what to do about it.
            severity: REVIEW where it is converted, and a person should look.
        """
        place = self.get_metadata(PositionProvider, original)
        self.context.findings.append(
            Finding(
                self.code,
                severity,
                self.context.path,
                place.start.line,
                place.end.line,
                subject,
                message,
                advice,
            )
        )

    def qualified(self, original: cst.CSTNode) -> Sequence[str]:
        """Names that a node of the tree as it was may stand for, ``"torch.cuda.synchronize"``, from imports."""
        if original not in self.context.names:
            root = original
            while isinstance(root, cst.Attribute):
                root = root.value
            if not isinstance(root, cst.Name):  # `a.b().c`: what a call returns has no name
                return ()
            scope = self.get_metadata(ScopeProvider, original, None)
            found = {each.name for each in scope.get_qualified_names_for(original)} if scope else set()
            if not found and root.value == "torch":  # from `import *`
                found = {get_full_name_for_node(original) or ""}
            self.context.names[original] = sorted(found)
        return self.context.names[original]

    def parent(self, original: cst.CSTNode) -> cst.CSTNode:
        """The node that holds a node of the tree as it was."""
        return self.get_metadata(ParentNodeProvider, original)

    def conditions(self, original: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """What is true, within its function, where a node of the tree as it was is evaluated."""
        below = original
        while not isinstance(below, cst.Module | cst.FunctionDef | cst.ClassDef):
            above = self.parent(below)
            if isinstance(above, cst.If | cst.IfExp) and above.body is below:
                yield above.test
            elif _is_and(above) and above.right is below:
                yield above.left
            below = above

    def claim(self, original: cst.CSTNode) -> None:
        """Keep every rule away from a node, and what is in it, because this rule replaces what holds it."""
        self.context.claimed.add(original)

    def replaced(self, original: cst.CSTNode) -> None:
        """Tell the engine that a use of the name at the root of ``a.b.c`` is gone."""
        while isinstance(original, cst.Attribute | cst.Call):
            original = original.value if isinstance(original, cst.Attribute) else original.func
        if isinstance(original, cst.Name):
            self.context.converted.add(original.value)

    # ---- what comes in its place ------------------------------------------------------------------------------
    def device(self) -> cst.BaseExpression:
        """The constant of the module that is the device; the engine defines it where a rule asks."""
        self.context.needs_device = True
        return cst.Name(self.context.device)

    def device_type(self) -> cst.BaseExpression:
        """Its type, a string."""
        return cst.Attribute(self.device(), cst.Name("type"))

    def expression(self, template: str, **nodes: cst.BaseExpression) -> cst.BaseExpression:
        """Source as a tree.

        Args:
            template: with ``{device}``, ``{type}``, ``{module}`` (the device's module), ``torch`` for PyTorch by
                whatever name the file has it, and further names in braces for nodes.
            nodes: for those names.
        """
        template = template.replace("{module}", "torch.get_device_module({device})")
        if re.search(r"\btorch\b", template):
            self.context.needs_torch = True
            template = re.sub(r"\btorch\b", self.context.torch, template)
        if template.startswith(("collections.", "contextlib.", "functools.")):
            self.context.imports.add(template.partition(".")[0])
        if "{device}" in template:
            nodes["device"] = self.device()
        if "{type}" in template:
            nodes["type"] = self.device_type()
        return parse_template_expression(template, cst.PartialParserConfig(), **nodes)

    def formatted(self, *parts: str | cst.BaseExpression, quote: Quote = '"') -> cst.FormattedString:
        """An f-string of literal text and expressions; the text as it stands between the quotes."""
        content = [
            cst.FormattedStringText(part) if isinstance(part, str) else cst.FormattedStringExpression(part)
            for part in parts
        ]
        return cst.FormattedString(content, f"f{quote}", quote)

    def quote(self, original: cst.CSTNode) -> Quote:
        """The quotation mark for a new string where a node is: not the one of the f-string around it."""
        while not isinstance(original, cst.Module):
            if isinstance(original, cst.FormattedString):
                return "'" if original.quote[0] == '"' else '"'
            original = self.parent(original)
        return '"'

    def fitted(self, original: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression:
        """The new node with the parentheses that it needs in the place of the original."""
        if original.lpar:
            return new.with_changes(lpar=original.lpar, rpar=original.rpar)
        return _parenthesized(new) if self._needs_parentheses(original, new) else new

    def _needs_parentheses(self, original: cst.CSTNode, new: cst.CSTNode) -> bool:
        parent = self.parent(original)
        if isinstance(new, cst.IfExp | cst.BooleanOperation):
            return not isinstance(parent, _HOLDERS)
        if isinstance(original, cst.Comparison) and isinstance(new, cst.Comparison):
            return False
        if isinstance(new, cst.Comparison | cst.UnaryOperation):
            negated = isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Not)
            return not (
                negated or isinstance(parent, (*_HOLDERS, cst.BooleanOperation, cst.CompIf, cst.IfExp))
            )
        return False


def _is_and(node: cst.CSTNode) -> TypeGuard[cst.BooleanOperation]:
    return isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And)


# What holds any expression without parentheses.
_HOLDERS = (
    cst.AnnAssign, cst.Arg, cst.Assert, cst.Assign, cst.AugAssign, cst.DictElement, cst.Element, cst.Expr,
    cst.FormattedStringExpression, cst.If, cst.Index, cst.Lambda, cst.Param, cst.Return, cst.While,
)  # fmt: skip


def _parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])
