"""Data flow of a training loop: which values depend on this rank's data, and which are equal on all ranks."""

import ast
from collections.abc import Callable, Iterator

from isthmus_migrate.rules.scripts.ddp.training import Loop
from isthmus_migrate.rules.scripts.program import Program, walk_own_scope

_SAME_ON_ALL = ("shape", "size", "dim", "dtype", "device", "numel")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OWN = ("time.", "datetime.", "random.", "numpy.random.", "torch.rand")
SAME_KIND = ("detach", "cpu", "float", "double", "data", "clone", "squeeze", "numpy")


class Dataflow:
    """Data flow of one training loop, from its assignments.

    Attributes:
        nodes: nodes that run for each batch.
        after: statements after the loop in its function, where names still have the last batch's values.
        losses: names on which backward() is called.
    """

    def __init__(self, program: Program, loop: Loop) -> None:
        self._program = program
        self._loop = loop.node
        self.nodes = [node for statement in loop.region for node in walk_own_scope(statement)]
        self.after = self._following_statements()
        self._after = set(self.after)
        self._values = self._assignments()
        self._computation = self._closure(set(self._backward_names()))
        self._sums = {name for name in self._augmented() if name not in self._computation}
        self._batch = {
            node.id
            for node in ast.walk(loop.node.target)
            if isinstance(node, ast.Name) and node.id != loop.counter
        }
        self.losses = {
            name for name in self._backward_names() if not self._is_same_on_all_name(name, frozenset())
        }
        stored = (
            part for statement in loop.node.body for part in walk_own_scope(statement) if _is_stored(part)
        )
        names = {*map(name_of, stored), *self._batch}
        self._left = {name for name in names if not self._is_same_on_all_name(name, frozenset())}

    def values(self, name: str) -> list[ast.expr]:
        """Return the values assigned to a name in the loop."""
        return self._values.get(name, [])

    def feeds_loss(self, node: ast.AST) -> bool:
        """Whether a variable is part of the computation of the loss."""
        return name_of(node) in self._computation

    def is_of_loop(self, node: ast.AST) -> bool:
        """Whether an expression is in the loop, or after it and reads values of the last batch."""
        return node not in self._after or any(
            name in self._left and not self._is_rebound(part, name)
            for part in ast.walk(node)
            if (name := name_of(part))
        )

    def same_on_all(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression has the same value on every rank once numbers are reduced."""
        if item_of(node) is not None or _is_len(node):
            return True
        if isinstance(node, ast.Attribute) and node.attr in _SAME_ON_ALL:
            return True
        name = name_of(node)
        if name:
            return self._is_same_on_all_name(name, seen)
        return all(self.same_on_all(child, seen) for child in ast.iter_child_nodes(node))

    def is_number(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression contains a value read from a tensor, directly or through a name."""
        name = name_of(node)
        if name:
            values = [] if name in seen else self.values(name)
            return any(self.is_number(value, seen | {name}) for value in values)
        return item_of(node) is not None or any(
            self.is_number(child, seen) for child in ast.iter_child_nodes(node)
        )

    def is_own(self, node: ast.AST) -> bool:
        """Whether an expression contains a random number or the time, which each rank has of its own."""
        return self._has_match(node, lambda part: self._program.qualified(part).startswith(_OWN), frozenset())

    def is_numpy(self, node: ast.AST) -> bool:
        """Whether a number is computed by NumPy."""
        return self._has_match(node, self._is_of_numpy, frozenset())

    def _is_of_numpy(self, node: ast.expr) -> bool:
        method = isinstance(node, ast.Attribute) and node.attr == "numpy"
        return method or self._program.qualified(node).startswith("numpy.")

    def _has_match(self, node: ast.AST, matches: Callable[[ast.expr], bool], seen: frozenset[str]) -> bool:
        """Whether a function matches that an expression calls, directly or through a name."""
        name = name_of(node)
        if name:
            values = [] if name in seen else self.values(name)
            return any(self._has_match(value, matches, seen | {name}) for value in values)
        if isinstance(node, ast.Call) and matches(node.func):
            return True
        return any(self._has_match(child, matches, seen) for child in ast.iter_child_nodes(node))

    def is_moved(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression was moved to a device in the loop, or does not depend on the batch."""
        calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
        if any(isinstance(each, ast.Attribute) and each.attr in ("to", "cuda") for each in calls):
            return True
        name = name_of(node)
        if not name:
            return self.same_on_all(node)
        values = [] if name in seen else self.values(name)
        if name in self._batch and not values:
            return False
        return all(self.is_moved(value, seen | {name}) for value in values)

    def is_batch_size(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a node is ``len(x)``, ``x.size(0)``, ``x.shape[0]`` or ``x.numel()`` of the batch, or its name."""
        name = name_of(node)
        if name:
            values = [] if name in seen or name in self._sums else self.values(name)
            return bool(values) and all(self.is_batch_size(value, seen | {name}) for value in values)
        if isinstance(node, ast.Call) and _is_len(node):
            return self._is_of_batch(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            return bool(node.args) and _is_zero(node.args[0]) and self._is_of_batch(node.func.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "numel":
            return self._is_of_batch(node.func.value)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            is_shape = node.value.attr == "shape"
            return is_shape and _is_zero(node.slice) and self._is_of_batch(node.value.value)
        return False

    def _following_statements(self) -> list[ast.AST]:
        scope = self._program.function(self._loop) or self._program.tree
        assert self._loop.end_lineno is not None
        return [
            node
            for statement in scope.body
            if statement.end_lineno is not None and statement.end_lineno > self._loop.end_lineno
            for node in walk_own_scope(statement)
            if getattr(node, "lineno", 0) > self._loop.end_lineno
        ]

    def _is_rebound(self, node: ast.AST, name: str) -> bool:
        """Whether a name is reassigned before it is read after the loop."""
        line, end = node.lineno, self._loop.end_lineno or 0  # type: ignore[attr-defined]
        variable = self._program.variable(node)  # type: ignore[arg-type]
        bound = self._program.bindings.get(variable, []) if variable is not None else []
        around = (each for each in self._program.ancestors(node) if isinstance(each, _COMPREHENSIONS))
        targets = (each.target for comprehension in around for each in comprehension.generators)
        return any(end < each.statement.lineno <= line for each in bound) or any(
            name_of(part) == name for target in targets for part in ast.walk(target)
        )

    def _is_of_batch(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Subscript):
            node = node.value
        return bool(name_of(node)) and not self.same_on_all(node)

    def _is_same_on_all_name(self, name: str, seen: frozenset[str]) -> bool:
        if name in self._batch:
            return False
        if name in self._sums:
            return True
        values = [] if name in seen else self.values(name)
        return all(self.same_on_all(value, seen | {name}) for value in values)

    def _backward_names(self) -> Iterator[str]:
        """Yield the names in ``loss.backward()``, ``scaler.scale(loss).backward()`` and ``(loss / n).backward()``."""
        for node in self.nodes:
            is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_method and node.func.attr == "backward":  # type: ignore[attr-defined]
                yield from (name for part in ast.walk(node) if (name := name_of(part)))

    def _augmented(self) -> Iterator[str]:
        """Yield the names of running sums, whose terms are reduced."""
        for node in self.nodes:
            if isinstance(node, ast.AugAssign):
                yield name_of(node.target)

    def _closure(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            parts = (part for value in self.values(name) for part in ast.walk(value))
            waiting += [each for part in parts if (each := name_of(part))]
        return found

    def _assignments(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            for target, value in self._pairs(node):
                for each in ast.walk(target):
                    if name := name_of(each):
                        found.setdefault(name, []).append(value)
            if isinstance(node, ast.Call) and (function := self._program.callee(node)) is not None:
                for parameter in (each.arg for each in function.args.args):
                    argument = self._program.argument(node, function, parameter)
                    if argument is not None:
                        found.setdefault(parameter, []).append(argument)
        return found

    @staticmethod
    def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) or (
            isinstance(node, ast.AnnAssign) and node.value is not None
        ):
            assert node.value is not None
            yield node.target, node.value
        elif isinstance(node, ast.For):
            yield node.target, node.iter


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)


def name_of(node: ast.AST) -> str:
    """Return ``"x"`` or ``"self.x"``; "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return ""


def item_of(node: ast.AST) -> ast.expr | None:
    """Return x for ``x.item()`` or ``float(x)``; None for anything else."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        return node.func.value
    if isinstance(node.func, ast.Name) and node.func.id == "float" and len(node.args) == 1:
        return node.args[0]
    return None


def tensor_in(node: ast.expr) -> ast.expr:
    """Return the tensor in ``tensor.detach().cpu()``."""
    while True:
        inner = node.func if isinstance(node, ast.Call) and not node.args else node
        if not (isinstance(inner, ast.Attribute) and inner.attr in SAME_KIND):
            return node
        node = inner.value


def _is_len(node: ast.AST) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1
    return is_call and node.func.id == "len"  # type: ignore[attr-defined]


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
