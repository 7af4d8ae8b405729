"""The base class of rules of ``isthmus migrate convert``: a transformer of the concrete syntax tree."""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeGuard

import libcst as cst
from libcst.helpers import get_full_name_for_node, parse_template_expression
from libcst.metadata import ExpressionContextProvider, ParentNodeProvider, PositionProvider, ScopeProvider

from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.own_methods import own_cuda

Quote = Literal['"', "'"]


class Change(NamedTuple):
    """A change of a source.

    Attributes:
        code: of the rule.
        path: path of the file relative to the converted folder.
        line: first line before the change, from 1.
        end_line: last line before the change.
        message: description of the change.
    """

    code: str
    path: str
    line: int
    end_line: int
    message: str


class Project(NamedTuple):
    """Facts about a project that its sources need for conversion.

    Attributes:
        taken: names that the device constant cannot have.
        own_cuda: the class with its own method ``cuda``, from :func:`own_methods.own_cuda_of`.
    """

    taken: Collection[str] = ()
    own_cuda: str = ""


ALONE = Project()


class Context:
    """State of the conversion of a file, shared by its rules.

    Args:
        path: path of the file relative to the converted folder.
        target: a device type, or "" for any accelerator.
        source: the text before any change.
        options: options given to `isthmus migrate convert`.
        project: facts about the project's other sources.

    Attributes:
        changes: changes so far.
        findings: what was not converted, and why.
        imports: imports for the engine to add, ``"torch.distributed as dist"``.
        converted: imported names with replaced uses; the engine drops unused ones.
        claimed: nodes of the original tree that one rule replaces as a whole; others skip them.
        lines: statements that the engine wraps in ``if <test>:``, with the test.
        names: cache of resolved names of the original tree.
        torch: the name of PyTorch in the file.
        device: the name of the device constant.
        needs_torch: whether a rule used ``torch``.
        needs_device: whether a rule used ``device``.
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
        """The project's class that a call of ``cuda`` may refer to, or ""."""
        return self.project.own_cuda or own_cuda(self.source)


class Rule(cst.CSTTransformer):
    """A rule; one instance per file. A subclass sets the class attributes and records changes with :meth:`note`.

    All rules of the same order run in one walk: a rule sees the node of the original tree (``original``) and the
    result of earlier rules (``updated``), and must return ``updated`` if it changes nothing.

    Attributes:
        code: stable identifier, ``"IM101"``.
        name: short name in words, ``"tensor-cuda"``.
        severity: AUTOMATIC, or REVIEW if the result should be checked by hand.
        summary: effect and reason, in one line.
        before: example of a line that it changes.
        after: the line after the change.
        words: a source with none of them is not visited.
        mention: a source without this word is not visited.
        order: rules with a lower order run first.
        option: option of `isthmus migrate convert` that enables the rule, ``"ddp"``; "" if always enabled.
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
        """Return the rule's public attributes for JSON."""
        names = ("code", "name", "option", "summary", "before", "after")
        return {"severity": cls.severity.value, **{name: getattr(cls, name) for name in names}}

    def __init__(self, context: Context) -> None:
        super().__init__()
        self.context = context

    def is_on(self) -> bool:
        """Whether the rule's option is given."""
        return self.option in ("", *self.context.options)

    def is_needed(self) -> bool:
        """Whether the rule may apply to the file, as known before the walk."""
        return True

    # ---- the original tree ------------------------------------------------------------------------------------
    def note(self, original: cst.CSTNode, message: str) -> None:
        """Log a change of a node of the original tree."""
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
        """Report a node of the original tree that this rule does not change.

        Args:
            original: the node.
            subject: the name it is about.
            message: what was found, as a predicate.
            advice: what to do about it.
            severity: REVIEW if it is converted and should be checked by hand.
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
        """Return the names that a node of the original tree may refer to by imports, ``"torch.cuda.synchronize"``."""
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
        """Return the parent of a node of the original tree."""
        return self.get_metadata(ParentNodeProvider, original)

    def conditions(self, original: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the conditions, within its function, under which a node of the original tree is evaluated."""
        below = original
        while not isinstance(below, cst.Module | cst.FunctionDef | cst.ClassDef):
            above = self.parent(below)
            if isinstance(above, cst.If | cst.IfExp) and above.body is below:
                yield above.test
            elif _is_and(above) and above.right is below:
                yield above.left
            below = above

    def claim(self, original: cst.CSTNode) -> None:
        """Claim a node and its descendants: this rule replaces an ancestor, so other rules skip them."""
        self.context.claimed.add(original)

    def replaced(self, original: cst.CSTNode) -> None:
        """Record that a use of the name at the root of ``a.b.c`` was replaced."""
        while isinstance(original, cst.Attribute | cst.Call):
            original = original.value if isinstance(original, cst.Attribute) else original.func
        if isinstance(original, cst.Name):
            self.context.converted.add(original.value)

    # ---- replacements ---------- ------------------------------------------------------------------------------
    def device(self) -> cst.BaseExpression:
        """Return the device constant; the engine then defines it."""
        self.context.needs_device = True
        return cst.Name(self.context.device)

    def device_type(self) -> cst.BaseExpression:
        """Its type, a string."""
        return cst.Attribute(self.device(), cst.Name("type"))

    def expression(self, template: str, **nodes: cst.BaseExpression) -> cst.BaseExpression:
        """Parse a source template.

        Args:
            template: source with ``{device}``, ``{type}``, ``{module}`` (the device's module), ``torch`` for PyTorch
                under the file's name for it, and further names in braces for nodes.
            nodes: nodes by name.
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
        """Make an f-string of literal text, as between the quotes, and expressions."""
        content = [
            cst.FormattedStringText(part) if isinstance(part, str) else cst.FormattedStringExpression(part)
            for part in parts
        ]
        return cst.FormattedString(content, f"f{quote}", quote)

    def quote(self, original: cst.CSTNode) -> Quote:
        """Return the quotation mark for a new string at a node: not that of the enclosing f-string."""
        while not isinstance(original, cst.Module):
            if isinstance(original, cst.FormattedString):
                return "'" if original.quote[0] == '"' else '"'
            original = self.parent(original)
        return '"'

    def fitted(self, original: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression:
        """Parenthesize a new node if needed in the place of the original."""
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


# Nodes that contain any expression without parentheses.
_HOLDERS = (
    cst.AnnAssign, cst.Arg, cst.Assert, cst.Assign, cst.AugAssign, cst.DictElement, cst.Element, cst.Expr,
    cst.FormattedStringExpression, cst.If, cst.Index, cst.Lambda, cst.Param, cst.Return, cst.While,
)  # fmt: skip


def _parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])
