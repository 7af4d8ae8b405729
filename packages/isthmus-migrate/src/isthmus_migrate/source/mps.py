"""Device types for which a test for CUDA stays false after its conversion, such as MPS.

``torch.mps`` has half of the functions of ``torch.cuda``; a project that knows MPS does not ask it for the others.
"""

import ast
import re
from collections.abc import Iterator

from isthmus_migrate.source import cuda_names
from isthmus_migrate.source.assignments import assigned_values
from isthmus_migrate.source.conditions import Condition, implies_accelerator, implies_cuda
from isthmus_migrate.source.cuda_branches import arms, guarded_nodes, is_asserted, rejects
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.names import FUNCTIONS
from isthmus_migrate.source.questions import names_type

# Functions of torch.mps with a name of torch.cuda.
HAS = frozenset(
    "Event device_count empty_cache get_rng_state is_available manual_seed seed set_per_process_memory_fraction "
    "set_rng_state synchronize".split()
)
# Those that take no device, unlike the functions of torch.cuda.
WITHOUT_DEVICE = frozenset({"synchronize"})
_ASKED = frozenset({"torch.backends.mps.is_available", "torch.mps.is_available"})
_ARM = re.compile(r"\b(mps|xpu|npu|hpu|mlu|musa|mtia)\b")
_MODULE = "{module}."
LACKS = "which MPS lacks"  # in the advice of a change


def mps_lacks(becomes: str) -> bool:
    """Whether ``torch.mps`` lacks what a replacement takes from the device's module."""
    return becomes.startswith(_MODULE) and becomes.removeprefix(_MODULE) not in HAS


def refuses(becomes: str, call: ast.Call) -> bool:
    """Whether the replacement of a function takes an argument of a call that ``torch.mps`` does not take."""
    is_given = bool(call.args or call.keywords)
    return is_given and becomes.startswith(_MODULE) and becomes.removeprefix(_MODULE) in WITHOUT_DEVICE


def is_double(module: Module, node: ast.AST) -> bool:
    """Whether a node is an argument of a call that names ``torch.float64``, which MPS lacks."""
    call = module.nearest(node, ast.Call, ast.stmt)
    given = [*call.args, *(each.value for each in call.keywords)] if isinstance(call, ast.Call) else []
    return any(module.names.qualified(each) in ("torch.float64", "torch.double") for each in given)


def is_known(module: Module) -> bool:
    """Whether a project names MPS, and is not converted for another device."""
    return "mps" in module.around.flow.others and not module.around.target


def excludes_mps(module: Module, condition: Condition) -> bool:
    """Whether a condition implies an accelerator other than MPS, after the conversion."""
    test, holds = condition
    if implies_cuda(module, condition):
        return True
    if isinstance(test, ast.Call):
        return holds and _is_apart(module, test)
    if not implies_accelerator(module, condition):
        return False
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn):
        return "mps" in ast.unparse(test)
    values = assigned_values(module, test) if isinstance(test, ast.Name | ast.Attribute) else [test]
    return all(_is_apart(module, each) for value in values for each in ast.walk(value))


def _is_apart(module: Module, node: ast.AST) -> bool:
    """Whether a node, if it is a test for an accelerator, stays false on MPS."""
    if isinstance(node, ast.Call):
        is_asked = module.names.qualified(node.func) == "torch.cuda.is_available"
        return is_asked and "mps" in device_types_kept_false(module, node)
    if not isinstance(node, ast.Compare):
        return True
    sides = (node.left, *node.comparators)
    if any(names_type(each, "cpu") for each in sides):
        return False
    if not any(names_type(each, "cuda") for each in sides):
        return True
    return not is_asserted(module, node) and "mps" in device_types_compared_false(module, node)


def device_types_compared_false(module: Module, test: ast.expr) -> set[str]:
    """Return the device types for which a comparison with ``"cuda"`` stays false after its conversion.

    Those are the types that its function names too, MPS in front of what it lacks, and the meta device where the
    project has one and others are refused.
    """
    known = module.around.flow.others
    if not known or module.around.target:
        return set()
    functions = [each for each in module.enclosing(test) if isinstance(each, FUNCTIONS)]
    around = functions[-1] if functions else module.tree
    found = {
        getattr(each, "value", "") for each in ast.walk(around) if isinstance(each, ast.Constant)
    } & known
    if "mps" in known and any(map(mps_lacks, _replacements(module, test))):
        found.add("mps")
    if "meta" in known and rejects(module, test):
        found.add("meta")
    return found


def device_types_kept_false(module: Module, call: ast.Call) -> set[str]:
    """Return the device types for which ``torch.cuda.is_available()`` stays false after its conversion.

    Those are the types of the ``elif`` arms after it, and MPS beside a test for MPS, or in front of what it lacks.
    """
    found = {name for each in arms(module, call) for name in _ARM.findall(ast.unparse(each))}
    beside = isinstance(above := module.parents[call], ast.BoolOp) and isinstance(above.op, ast.And)
    if beside and any(module.names.qualified(each.func) in _ASKED for each in module.of(ast.Call)):
        found.add("mps")
    if is_known(module) and any(map(mps_lacks, _replacements(module, call))):
        found.add("mps")
    return found


def _replacements(module: Module, test: ast.expr) -> Iterator[str]:
    """Yield what the names of CUDA become that a test stands in front of."""
    for part in guarded_nodes(module, test):
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute | ast.Name):
                known = cuda_names.look_up(module.names.qualified(node) or "")
                yield known.becomes if known is not None and not known.accelerator else ""
