"""``torch.mps`` has half of the functions of ``torch.cuda``; where a file knows MPS, it is not asked for others."""

import ast
import re
from collections.abc import Iterator

from isthmus.migrate.source import cuda_names
from isthmus.migrate.source.conditions import Condition, arms, guarded, implies_accelerator, implies_cuda
from isthmus.migrate.source.module import Module

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


def lacks(becomes: str) -> bool:
    """Whether ``torch.mps`` lacks what a replacement takes from the device's module."""
    return becomes.startswith(_MODULE) and becomes.removeprefix(_MODULE) not in HAS


def refuses(becomes: str, call: ast.Call) -> bool:
    """Whether the replacement of a function takes an argument of a call that ``torch.mps`` does not take."""
    is_given = bool(call.args or call.keywords)
    return is_given and becomes.startswith(_MODULE) and becomes.removeprefix(_MODULE) in WITHOUT_DEVICE


def is_known(module: Module) -> bool:
    """Whether a module names MPS, and is not converted for another device."""
    return "mps" in module.around.flow.others and not module.around.target


def excludes(module: Module, condition: Condition) -> bool:
    """Whether a condition implies an accelerator other than MPS, after the conversion."""
    test, holds = condition
    if implies_cuda(module, condition):
        return True
    if isinstance(test, ast.Call):
        is_asked = holds and module.names.qualified(test.func) == "torch.cuda.is_available"
        return is_asked and "mps" in apart(module, test)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn):
        return implies_accelerator(module, condition) and "mps" in ast.unparse(test)
    if isinstance(test, ast.Compare) and any(
        getattr(each, "value", "") == "cpu" for each in test.comparators
    ):
        return False
    return implies_accelerator(module, condition)


def apart(module: Module, call: ast.Call) -> set[str]:
    """Return the device types for which ``torch.cuda.is_available()`` stays false after its conversion.

    Those are the types of the ``elif`` arms after it, and MPS beside a test for MPS, or in front of what it lacks.
    """
    found = {name for each in arms(module, call) for name in _ARM.findall(ast.unparse(each))}
    beside = isinstance(above := module.parents[call], ast.BoolOp) and isinstance(above.op, ast.And)
    if beside and any(module.names.qualified(each.func) in _ASKED for each in module.of(ast.Call)):
        found.add("mps")
    if is_known(module) and any(map(lacks, _replacements(module, call))):
        found.add("mps")
    return found


def _replacements(module: Module, call: ast.Call) -> Iterator[str]:
    """Yield what the names of CUDA become that a test stands in front of."""
    for part in guarded(module, call):
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute | ast.Name):
                known = cuda_names.look_up(module.names.qualified(node) or "")
                yield known.becomes if known is not None and not known.accelerator else ""
