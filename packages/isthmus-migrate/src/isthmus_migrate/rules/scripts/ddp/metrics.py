"""Reduce over the ranks the numbers that a training loop reports.

:class:`torch.utils.data.distributed.DistributedSampler` gives every rank the same number of samples of each batch. So
the mean of the ranks' means is the mean of the global batch, and a rank's count of samples times the number of ranks
is the global count.
"""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.scripts.ddp.dataflow import Dataflow, item_of, name_of, tensor_in
from isthmus_migrate.rules.scripts.ddp.kinds import MEAN, SUM, Kinds
from isthmus_migrate.rules.scripts.ddp.training import Loop
from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program, walk_own_scope

_MESSAGES = {MEAN: "averaged over the ranks", SUM: "summed over the ranks"}
_COLLECTS = ("append", "update", "add", "extend")
_REPORTS = (
    *("print", "write", "info", "debug", "add_scalar", "log"),
    *("set_postfix", "set_description", "set_postfix_str"),
)
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_TRANSPARENT = (
    ast.BinOp,
    ast.UnaryOp,
    ast.IfExp,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.keyword,
)


class Metrics:
    """The reported numbers of one training loop.

    Args:
        program: the script.
        edits: receives the changes.
        loop: the training loop.
        device: name of the device constant.
    """

    def __init__(self, program: Program, edits: Edits, loop: Loop, device: str) -> None:
        self._program = program
        self._edits = edits
        self._loop = loop
        self._device = device
        self._flow = Dataflow(program, loop)
        self._kinds = Kinds(program, self._flow, edits)
        others = (*self._collecting_functions(), *self._measuring_functions())
        inside = {part for function in others for part in ast.walk(function)}
        self._nodes = [node for node in (*self._flow.nodes, *self._flow.after) if node not in inside]
        self._done: set[ast.AST] = set()
        self.used: set[str] = set()

    def reduce(self) -> None:
        """Wrap the reported numbers.

        Raises:
            NotRecognised: ranks could diverge, or it is unclear how to reduce a number.
        """
        self._check_conditions()
        for node in self._nodes:
            for reported in self._reported_expressions(node):
                self._report(reported)
        for node in self._nodes:
            is_term = (
                isinstance(node, ast.BinOp) and self._flow.is_number(node) and self._flow.same_on_all(node)
            )
            if is_term or item_of(node) is not None:
                self._report(node)

    def _reported_expressions(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield expressions that are added to a running sum or reported in a message."""
        if isinstance(node, ast.AugAssign) and not self._flow.feeds_loss(node.target):
            yield node.value
        elif isinstance(node, ast.Call) and self._is_report(node):
            yield from (*node.args, *node.keywords)

    def _is_report(self, call: ast.Call) -> bool:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else name_of(function)
        if name in _COLLECTS and isinstance(function, ast.Attribute):
            return not self._flow.feeds_loss(function.value)
        return name in _REPORTS

    def _collecting_functions(self) -> Iterator[Function]:
        """Yield the script's functions, such as a meter's update(), that receive reduced numbers."""
        for node in self._flow.nodes:
            function = self._program.callee(node) if isinstance(node, ast.Call) else None
            if function is None or not self._is_report(node):  # type: ignore[arg-type]
                continue
            if not any(_steps(part) for part in ast.walk(function)):
                yield function

    def _measuring_functions(self) -> Iterator[Function]:
        """Yield the script's functions, such as ``accuracy()``, whose result is reduced where they are called."""
        for node in self._flow.nodes:
            function = self._program.callee(node) if isinstance(node, ast.Call) else None
            if function is not None and self._kinds.of_result(function) is not None:
                yield function

    def _report(self, node: ast.AST) -> None:
        if node in self._done or not self._flow.is_of_loop(node):
            return
        self._done.add(node)
        if (item := item_of(node)) is not None:
            self._wrap(item)
        elif self._flow.is_batch_size(node):
            assert isinstance(node, ast.expr)
            self._check_reached_by_all(node)
            within_term = isinstance(self._program.parents[node], ast.BinOp)
            before, after = ("(", ")") if within_term else ("", "")
            self._edits.surround(
                node,
                before,
                f" * WORLD_SIZE{after}",
                f"{self._edits.text(node)}: counts the samples of all ranks",
            )
        elif isinstance(node, _TRANSPARENT) or _is_plain_call(node):
            for child in ast.iter_child_nodes(node):
                self._report(child)
        elif isinstance(node, ast.expr) and not self._flow.same_on_all(node):
            self._wrap(node)

    def _wrap(self, node: ast.expr) -> None:
        node = tensor_in(node)
        if self._flow.same_on_all(node):
            return
        self._check_reached_by_all(node)
        function = self._kinds.reduction_helper(node)
        self.used.add(function)
        said = f"{self._edits.text(node)}: {_MESSAGES[function]}"
        before, after = f"{function}(", ")"
        if self._flow.is_numpy(node):
            before, after = f"{before}torch.as_tensor(", f", device={self._device})).item()"
        self._edits.surround(node, before, after, said)

    def _check_conditions(self) -> None:
        """Check that no rank leaves the loop or skips a step because of its own data."""
        for node in self._nodes:
            if not isinstance(node, ast.If) or self._is_same_on_all_ranks(node.test):
                continue
            if not self._flow.is_of_loop(node.test):
                continue
            if any(isinstance(part, _LEAVES) or _steps(part) for part in walk_own_scope(node)):
                raise NotRecognised(node.lineno, "control flow depends on a rank's own data")

    def _is_same_on_all_ranks(self, test: ast.expr) -> bool:
        """Whether a condition is the same on all ranks."""
        return self._flow.same_on_all(test) and not self._flow.is_own(test)

    def _check_reached_by_all(self, node: ast.expr) -> None:
        """Check that every rank reaches the collective."""
        inner: ast.AST = node
        for each in self._program.ancestors(node):
            if each is self._loop.node:
                return
            decides = isinstance(each, ast.If | ast.IfExp | ast.While) and inner is not each.test
            if decides and not self._is_same_on_all_ranks(each.test):  # type: ignore[attr-defined]
                raise NotRecognised(
                    node.lineno, "a number is reported under a condition on a rank's own data"
                )
            inner = each


def _is_plain_call(node: ast.AST) -> bool:
    """Whether a call only formats its arguments: ``round(x)``, ``"{}".format(x)``."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in ("round", "int", "str", "min", "max", "dict", "format")
    return isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join")


def _steps(node: ast.AST) -> bool:
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in ("backward", "step")  # type: ignore[attr-defined]
