"""Dynamic shapes (IM6xx): code that makes a chip recompile for a new shape, or wait for a value.

Source of the operators: those of PyTorch whose output's shape depends on data (`torch.Tag.dynamic_output_shape`).
"""

import ast
from collections.abc import Iterator

from isthmus_migrate.analyse.syntax import advise, is_constant, method
from isthmus_migrate.source.calls import keyword
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

# Name -> replacement.
_OPERATORS = {
    "nonzero": "use torch.where with three arguments, or nonzero_static",
    "argwhere": "use torch.where with three arguments, or nonzero_static",
    "masked_select": "multiply by the mask, or use torch.where",
    "unique": "do it on the CPU while data is loaded",
    "unique_consecutive": "do it on the CPU while data is loaded",
    "combinations": "create the indices once",
    "bincount": "pass minlength, and use scatter_add",
}
_ASKED = {"item", "any", "all", "tolist"}
_PAD = {"torch.nn.utils.rnn.pad_sequence"}
_COLLATORS = {"DataCollatorWithPadding", "DataCollatorForSeq2Seq", "DataCollatorForTokenClassification"}


def detect(module: Module) -> Iterator[Finding]:
    """Operators, masks as indices, branches on values, batches of varying length."""
    if not module.mentions("torch", "transformers"):
        return
    for call in module.of(ast.Call):
        yield from _operator(module, call)
        yield from _padding(module, call)
    for subscript in module.of(ast.Subscript):
        if isinstance(subscript.ctx, ast.Load) and _is_mask(subscript.slice):
            said, advice = "selects by a mask", "multiply by the mask, or use torch.where"
            yield advise(module, subscript, "IM602", "[mask]", said, advice)
    tests = [*(branch.test for branch in module.of(ast.If)), *(loop.test for loop in module.of(ast.While))]
    for test in tests:
        yield from _test(module, test)


def _operator(module: Module, call: ast.Call) -> Iterator[Finding]:
    name = module.names.qualified(call.func)
    plain = (
        name.removeprefix("torch.") if name and name.startswith("torch.") else "" if name else method(call)
    )
    if plain in _OPERATORS:
        said = "has a result whose shape depends on values"
        yield advise(module, call, "IM601", name or f".{plain}()", said, _OPERATORS[plain])
    elif name == "torch.where" and len(call.args) == 1 and not call.keywords:
        said = "with one argument has a result whose shape depends on values"
        yield advise(module, call, "IM601", name, said, "use three arguments")


def _padding(module: Module, call: ast.Call) -> Iterator[Finding]:
    name = module.names.qualified(call.func) or ""
    padding = keyword(call, "padding")
    collates = name.rpartition(".")[2] in _COLLATORS and keyword(call, "pad_to_multiple_of") is None
    fixed = is_constant(padding, "max_length") or keyword(call, "pad_to_multiple_of") is not None
    if not fixed and (name in _PAD or collates or is_constant(padding, "longest")):
        subject = name.rpartition(".")[2] or "padding"
        said = "makes batches as long as their longest sequence"
        advice = "pad to a fixed length or a multiple (pad_to_multiple_of=64), or sort by length into buckets"
        yield advise(module, call, "IM604", subject, said, advice)


def _test(module: Module, test: ast.expr) -> Iterator[Finding]:
    for node in ast.walk(test):
        if (
            isinstance(node, ast.Call)
            and method(node) in _ASKED
            and not node.args
            and _is_tensor(module, node)
        ):
            said = "branches on a value copied from the device"
            yield advise(
                module, node, "IM603", f".{method(node)}()", said, "use torch.where, or decide on the CPU"
            )
            return


def _is_tensor(module: Module, call: ast.Call) -> bool:
    """Whether a method's object may be a tensor: it is not a name of another module."""
    return isinstance(call.func, ast.Attribute) and module.names.qualified(call.func) is None


def _is_mask(index: ast.expr) -> bool:
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.Invert) and _is_mask(index.operand)
    if isinstance(index, ast.Compare):
        return not isinstance(index.ops[0], (ast.In, ast.NotIn, ast.Is, ast.IsNot))
    return isinstance(index, ast.Name) and index.id.endswith("mask")
