"""Advice on speed (IM7xx): code that is slow on accelerators, most where kernel launches are expensive."""

import ast
from collections.abc import Iterator

from isthmus_migrate.analyse.branches import is_for_cpu
from isthmus_migrate.analyse.syntax import (
    Loop,
    advise,
    is_conditional,
    is_constant,
    loops,
    method,
    passes,
    training_loops,
)
from isthmus_migrate.source.calls import keyword, last_name
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_LOADERS = {"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"}
_FUSED = {f"torch.optim.{name}" for name in ("Adam", "AdamW", "SGD", "Adagrad")}
_DDP = {"torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel"}
_FACTORIES = {
    f"torch.{name}"
    for name in ("zeros", "ones", "empty", "full", "arange", "rand", "randn", "eye", "linspace")
}
_READS = {"item", "tolist", "cpu", "numpy"}


def detect(module: Module) -> Iterator[Finding]:
    """Check DataLoader, optimizer, DistributedDataParallel, copies, and reads of values in the training loop."""
    if not module.mentions("torch"):
        return
    for call in module.of(ast.Call):
        yield from _find_constructions(module, call, module.names.qualified(call.func) or "")
        yield from _find_copies(module, call)
    for loop in training_loops(module):
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and not is_conditional(module, node, loop):
                yield from _find_reads(module, node)
        yield from _find_accumulation(module, loop)


def _find_constructions(module: Module, call: ast.Call, name: str) -> Iterator[Finding]:
    if name in _LOADERS:
        yield from _find_loader_settings(module, call)
    elif name in _FUSED and not (passes(call, "fused") or passes(call, "foreach")):
        said, advice = "takes several kernels a step", "pass fused=True"
        if "Adam" in name:
            advice += ", or use isthmus.ops.AdamW for Adam and AdamW"
        yield advise(module, call, "IM704", name, said, advice)
    elif name in _DDP and not passes(call, "bucket_cap_mb"):
        said = "reduces gradients in buckets of 25 MB"
        advice = "try bucket_cap_mb from 50 to 500 where the link is fast, and gradient_as_bucket_view=True"
        yield advise(module, call, "IM705", name, said, advice)
    elif method(call) == "zero_grad" and is_constant(keyword(call, "set_to_none"), False):
        advice = "remove set_to_none"
        yield advise(module, call, "IM710", "zero_grad", "writes zeros where it could drop gradients", advice)


def _find_loader_settings(module: Module, call: ast.Call) -> Iterator[Finding]:
    if is_constant(keyword(call, "num_workers"), 0) or not (
        passes(call, "num_workers") or len(call.args) > 5
    ):
        said, advice = (
            "loads in the training process",
            "pass num_workers, two or more, and persistent_workers=True",
        )
        yield advise(module, call, "IM701", "DataLoader", said, advice)
    pins = passes(call, "pin_memory") or len(call.args) > 7
    if (is_constant(keyword(call, "pin_memory"), False) or not pins) and not is_for_cpu(module, call):
        said, advice = "returns pageable memory, which is copied synchronously", "pass pin_memory=True"
        yield advise(module, call, "IM702", "DataLoader", said, advice)


def _find_copies(module: Module, call: ast.Call) -> Iterator[Finding]:
    """Find copies to the device: of a loop variable, and of tensors that could be created there."""
    if (
        method(call) not in {"to", "cuda"}
        or not isinstance(call.func, ast.Attribute)
        or is_for_cpu(module, call)
    ):
        return
    moved, subject = call.func.value, f".{method(call)}()"
    if isinstance(moved, ast.Call) and module.names.qualified(moved.func) in _FACTORIES:
        if _is_device(call) and not passes(moved, "device"):
            said, advice = "copies a tensor created on the CPU", "pass device= when creating it"
            yield advise(module, call, "IM709", subject, said, advice)
    elif isinstance(moved, ast.Name) and _is_device(call) and not passes(call, "non_blocking"):
        over = [loop for loop in loops(module, call) if isinstance(loop, ast.For)]
        if any(moved.id in _targets(loop) for loop in over):
            advice = "pass non_blocking=True, with a DataLoader that pins memory"
            yield advise(module, call, "IM703", subject, "waits for the copy of a batch", advice)


def _is_device(call: ast.Call) -> bool:
    """Whether a call of ``to`` or ``cuda`` moves rather than converts: its argument looks like a device."""
    if method(call) == "cuda":
        return True
    argument = call.args[0] if call.args else keyword(call, "device")
    if isinstance(argument, ast.Constant):
        return isinstance(argument.value, (str, int)) and argument.value != "cpu"
    name = last_name(argument)
    return "device" in name.lower() or name in {"rank", "local_rank", "gpu"}


def _targets(loop: ast.For) -> set[str]:
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def _find_reads(module: Module, call: ast.Call) -> Iterator[Finding]:
    name = method(call)
    if name in _READS and not call.args:
        said = "waits for the device in every step"
        advice = "keep the value on the device and read it every few steps"
        yield advise(module, call, "IM707", f".{name}()", said, advice)
    elif name == "empty_cache":
        advice = "remove it: the allocator reuses freed memory"
        yield advise(module, call, "IM708", name, "releases cached memory in every step", advice)


def _find_accumulation(module: Module, loop: Loop) -> Iterator[Finding]:
    """Find a step taken in some iterations only, under DistributedDataParallel without ``no_sync``."""
    if not module.mentions("DistributedDataParallel", "DDP") or module.mentions(
        "no_sync", "set_requires_gradient_sync", "require_backward_grad_sync"
    ):
        return
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and method(node) == "step" and _every_so_often(module, node, loop):
            said = "is taken after several backward passes, each of which reduces all gradients"
            yield advise(
                module, node, "IM706", "step", said, "run all but the last backward under model.no_sync()"
            )
            return


def _every_so_often(module: Module, node: ast.AST, loop: Loop) -> bool:
    for outer in module.enclosing(node):
        if outer is loop:
            return False
        if isinstance(outer, ast.If) and any(isinstance(each, ast.Mod) for each in ast.walk(outer.test)):
            return True
    return False
