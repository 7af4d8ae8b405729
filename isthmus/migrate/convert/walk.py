"""One walk over a tree for all rules of the same order."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import libcst as cst

from isthmus.migrate.convert import guards
from isthmus.migrate.convert.rule import Context, Rule


class _Methods(NamedTuple):
    visit: list[tuple[Rule, Any]]
    leave: list[tuple[Rule, Any]]


class Walk(cst.CSTTransformer):
    """Transformer that passes each node to every rule for its type.

    A claimed node is skipped with all its descendants. If a rule replaces a node by another type, or removes it,
    later rules do not see it.
    """

    def __init__(self, context: Context, rules: Sequence[Rule]) -> None:
        super().__init__()
        self._context = context
        self._rules = rules
        self._methods: dict[type, _Methods] = {}
        self._blind: dict[Rule, cst.CSTNode] = {}  # rules that skip the children of a node
        self._tests: dict[cst.CSTNode, str] = {}  # statements of the new tree to put under an `if`

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Whether any rule visits the children."""
        if node in self._context.claimed:
            return False
        for rule, visit in self._of(node).visit:
            if rule not in self._blind and visit(node) is False:
                self._blind[rule] = node
        return len(self._blind) < len(self._rules)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        """Apply the rules to a node."""
        if original_node in self._context.claimed:
            return updated_node
        updated = updated_node
        for rule, leave in self._of(original_node).leave:
            if self._blind.get(rule, original_node) is original_node:
                updated = leave(original_node, updated)
                if type(updated) is not type(original_node):
                    break
        if self._blind:
            self._blind = {rule: node for rule, node in self._blind.items() if node is not original_node}
        return self._guarded(original_node, updated)

    def _guarded(self, original: Any, updated: Any) -> Any:
        if original in self._context.lines:
            self._tests[updated] = self._context.lines[original]
        is_block = isinstance(updated, cst.IndentedBlock | cst.Module)
        return guards.wrap(updated, self._tests) if is_block else updated

    def _of(self, node: cst.CSTNode) -> _Methods:
        kind = type(node)
        if kind not in self._methods:
            self._methods[kind] = _Methods(self._those("visit", kind), self._those("leave", kind))
        return self._methods[kind]

    def _those(self, when: str, kind: type) -> list[tuple[Rule, Any]]:
        name = f"{when}_{kind.__name__}"
        nothing = getattr(cst.CSTTransformer, name)
        return [
            (rule, getattr(rule, name)) for rule in self._rules if getattr(type(rule), name) is not nothing
        ]
