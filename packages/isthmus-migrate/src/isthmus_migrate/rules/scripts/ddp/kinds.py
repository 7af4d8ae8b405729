"""Reduction of a training loop's tensors over the ranks, by their relation to a rank's share of a batch.

A sum over the samples has degree 1 in the number of samples, a mean has degree 0. Products and quotients with numbers
that are the same on all ranks add the degrees: a sum divided by the batch size is a mean.
"""

import ast

from isthmus_migrate.rules.scripts.ddp.dataflow import Dataflow, name_of, tensor_in
from isthmus_migrate.rules.scripts.edits import Edits
from isthmus_migrate.rules.scripts.program import Function, NotRecognised, Program, returns

MEAN, SUM = "mean_over_ranks", "sum_over_ranks"
_BY_DEGREE = {0: MEAN, 1: SUM}
_PRODUCTS = {"mul": 1, "mul_": 1, "multiply": 1, "div": -1, "div_": -1, "divide": -1}


class Kinds:
    """The kinds of the tensors of one training loop.

    Args:
        program: the script.
        flow: of the training loop.
        edits: for the source of nodes.
    """

    def __init__(self, program: Program, flow: Dataflow, edits: Edits) -> None:
        self._program = program
        self._flow = flow
        self._edits = edits

    def reduction_helper(self, node: ast.expr) -> str:
        """Return the helper that reduces a tensor.

        Raises:
            NotRecognised: it is unclear how to reduce it.
        """
        return _BY_DEGREE[self._degree(node, frozenset())]

    def of_result(self, function: Function) -> str | None:
        """Return the helper for what a function of the script measures; None if it returns anything else."""
        try:
            return _BY_DEGREE[self._of_function(function, frozenset())]
        except NotRecognised:
            return None

    def _degree(self, node: ast.expr, seen: frozenset[str]) -> int:
        """Return the degree of a tensor in the number of samples: 1 for a sum, 0 for a mean."""
        node = tensor_in(node)
        name = name_of(node)
        if name in self._flow.losses:
            return 0
        if isinstance(node, ast.Call):
            return self._of_call(node, seen)
        if isinstance(node, ast.Subscript) and self._is_measured(node.value, seen):
            return self._degree(node.value, seen)
        if isinstance(node, ast.List | ast.Tuple):
            return self._common(node, node.elts, seen)
        if name and name not in seen:
            return self._common(node, [*self._flow.values(name), *self._appended_values(name)], seen | {name})
        if isinstance(node, ast.BinOp):
            return self._of_operation(node, seen)
        raise self._not_recognised(node)

    def _common(self, node: ast.expr, parts: list[ast.expr], seen: frozenset[str]) -> int:
        """Return the common degree of the parts that differ among ranks."""
        degrees = {self._degree(part, seen) for part in parts if not self._flow.same_on_all(part)}
        if len(degrees) != 1:
            raise self._not_recognised(node)
        return degrees.pop()

    def _of_operation(self, node: ast.BinOp, seen: frozenset[str]) -> int:
        """Return the degree of a term that is linear in what differs among ranks."""
        left, right = self._flow.same_on_all(node.left), self._flow.same_on_all(node.right)
        if isinstance(node.op, ast.Add | ast.Sub) and not left and not right:
            return self._common(node, [node.left, node.right], seen)
        if isinstance(node.op, ast.Add | ast.Sub) and left != right:
            varies, number = (node.right, node.left) if left else (node.left, node.right)
            if (degree := self._degree(varies, seen)) == self._power(number):
                return degree
        if isinstance(node.op, ast.Mult) and left != right:
            varies, factor = (node.right, node.left) if left else (node.left, node.right)
            return self._scaled_degree(node, varies, factor, 1, seen)
        if isinstance(node.op, ast.Div) and right and not left:
            return self._scaled_degree(node, node.left, node.right, -1, seen)
        raise self._not_recognised(node)

    def _scaled_degree(
        self, node: ast.expr, varies: ast.expr, factor: ast.expr, sign: int, seen: frozenset[str]
    ) -> int:
        """Return the degree of a tensor times a number, or divided by it."""
        degree = self._degree(varies, seen) + sign * self._power(factor)
        if degree not in _BY_DEGREE:
            raise self._not_recognised(node)
        return degree

    def _power(self, factor: ast.expr) -> int:
        """Return the power of the batch size in a number."""
        if self._flow.is_batch_size(factor):
            return 1
        if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Mult | ast.Div):
            sign = 1 if isinstance(factor.op, ast.Mult) else -1
            return self._power(factor.left) + sign * self._power(factor.right)
        if any(self._flow.is_batch_size(part) for part in ast.walk(factor)):
            raise self._not_recognised(factor)
        return 0

    def _of_call(self, node: ast.Call, seen: frozenset[str]) -> int:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in ("sum", "count_nonzero"):
            return 1
        if name in _PRODUCTS and len(node.args) == 1 and self._flow.same_on_all(node.args[0]):
            assert isinstance(node.func, ast.Attribute)
            return self._scaled_degree(node, node.func.value, node.args[0], _PRODUCTS[name], seen)
        qualified = self._program.qualified(node.func)
        is_loss = qualified.startswith("torch.nn.functional.") or "loss" in name_of(node.func).lower()
        if name == "mean" or is_loss or "criterion" in name_of(node.func).lower():
            return 0
        function = self._program.callee(node)
        if function is not None:
            return self._of_function(function, seen)
        raise self._not_recognised(node)

    def _of_function(self, function: Function, seen: frozenset[str]) -> int:
        """Return the degree of what a function of the script returns."""
        mark = f"{function.name}()"
        degrees = (
            {self._degree(each, seen | {mark}) for each in returns(function)} if mark not in seen else set()
        )
        if len(degrees) != 1:
            raise NotRecognised(function.lineno, f"unclear what {function.name} returns")
        return degrees.pop()

    def _is_measured(self, node: ast.expr, seen: frozenset[str]) -> bool:
        """Whether an expression is the result of a function of the script, directly or by a name."""
        if isinstance(node, ast.Call):
            return self._program.callee(node) is not None
        name = name_of(node)
        values = self._flow.values(name) if name and name not in seen else []
        return bool(values) and all(self._is_measured(each, seen | {name}) for each in values)

    def _appended_values(self, name: str) -> list[ast.expr]:
        """Return what is appended to a list in the loop or in a function that it calls."""
        return [
            each.args[0]
            for each in self._flow.nodes
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "append"
            and name_of(each.func.value) == name
            and len(each.args) == 1
        ]

    def _not_recognised(self, node: ast.expr) -> NotRecognised:
        return NotRecognised(
            node.lineno, f"unclear how to reduce this number over ranks: {self._edits.text(node)}"
        )
