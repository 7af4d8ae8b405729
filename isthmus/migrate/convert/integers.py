"""Infer whether an expression is an integer."""

import libcst as cst
import libcst.matchers as m
from libcst.metadata import Assignment, ScopeProvider

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.source import words

_OPERATORS = (cst.Add, cst.Subtract, cst.Multiply, cst.Modulo, cst.FloorDivide)
_RANGE = m.Call(m.Name("range"))
_ONE_OF_LIST = m.Subscript(slice=[m.SubscriptElement(m.Index())])


def is_integer(rule: Rule, node: cst.BaseExpression) -> bool:
    """Whether a node of the original tree is an integer and not None."""
    return _is_integer(rule, node, frozenset())


def is_index(rule: Rule, node: cst.BaseExpression) -> bool:
    """Whether a node of the original tree is an integer, or None for no choice."""
    return words.INDEX.search(last(node)) is not None or is_integer(rule, node)


def is_current(rule: Rule, node: cst.BaseExpression) -> bool:
    """Whether a node of the original tree is the index of the current device."""
    return isinstance(node, cst.Call) and "torch.cuda.current_device" in rule.qualified(node.func)


def bindings(rule: Rule, name: cst.BaseExpression) -> list[cst.CSTNode]:
    """Return the bindings of a plain name in the original tree: assignments, loops, parameters."""
    if not isinstance(name, cst.Name):
        return []
    scope = rule.get_metadata(ScopeProvider, name, None)
    found = scope[name.value] if scope is not None else ()
    return [_binding(rule, each.node) if isinstance(each, Assignment) else name for each in found]


def may_default_to_none(rule: Rule, name: cst.BaseExpression) -> bool:
    """Whether a name is a parameter whose default is None."""
    return any(m.matches(each, m.Param(default=m.Name("None"))) for each in bindings(rule, name))


def _is_integer(rule: Rule, node: cst.BaseExpression, above: frozenset[str]) -> bool:
    if isinstance(node, cst.Integer):
        return True
    if isinstance(node, cst.BinaryOperation):
        sides = (node.left, node.right)
        return isinstance(node.operator, _OPERATORS) and all(_is_integer(rule, x, above) for x in sides)
    if m.matches(node, _ONE_OF_LIST):
        return words.INDICES.search(last(cst.ensure_type(node, cst.Subscript).value)) is not None
    if isinstance(node, cst.Call):
        return words.INTEGERS.search(last(node.func)) is not None
    if may_default_to_none(rule, node):
        return False
    if words.RANK.search(last(node)):
        return True
    if not isinstance(node, cst.Name) or node.value in above:
        return False
    found = bindings(rule, node)
    return bool(found) and all(_binds_integer(rule, each, above | {node.value}) for each in found)


def _binds_integer(rule: Rule, binding: cst.CSTNode, above: frozenset[str]) -> bool:
    if isinstance(binding, cst.Assign):
        return _is_integer(rule, binding.value, above)
    if isinstance(binding, cst.For | cst.CompFor):
        return isinstance(binding.target, cst.Name) and m.matches(binding.iter, _RANGE)
    return m.matches(binding, m.Param(annotation=m.Annotation(m.Name("int"))))


def _binding(rule: Rule, node: cst.CSTNode) -> cst.CSTNode:
    """Return the statement, loop or parameter that binds a name; the node itself for one of several names."""
    parent = rule.parent(node)
    if isinstance(parent, cst.AssignTarget):
        return rule.parent(parent)
    return parent if isinstance(parent, cst.For | cst.CompFor | cst.Param) else node


def last(node: cst.CSTNode) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    name = node.attr if isinstance(node, cst.Attribute) else node
    return name.value if isinstance(name, cst.Name) else ""
