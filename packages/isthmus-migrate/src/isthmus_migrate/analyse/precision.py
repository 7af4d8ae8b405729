"""Advice on precision and checkpoints (IM8xx): results may differ on another accelerator, or files not load."""

import ast
from collections.abc import Iterator

from isthmus_migrate.analyse.syntax import advise, is_constant, method
from isthmus_migrate.source.calls import keyword, unpacks
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module

_DOUBLE = {"torch.float64", "torch.double", "torch.DoubleTensor", "torch.cuda.DoubleTensor"}
_HALF = {"torch.float16", "torch.half"}
_MATMUL = "torch.set_float32_matmul_precision"
_DETERMINISTIC = {"torch.use_deterministic_algorithms", "torch.backends.cudnn.deterministic"}
_MAPPED = 'pass map_location="cpu" or the device in use, unless every file was saved from tensors of the CPU'
_AUTOCAST = {
    "torch.cuda.amp.autocast",
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.autocast_mode.autocast",
}


def detect(module: Module) -> Iterator[Finding]:
    """TF32 and reduced reductions, float64, float16 without a scaler, a model in half precision, determinism."""
    if not module.mentions("torch"):
        return
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        yield from _name(module, node)
    for call in module.of(ast.Call):
        yield from _call(module, call)


def _name(module: Module, node: ast.expr) -> Iterator[Finding]:
    name = module.names.qualified(node) or ""
    if name in _DOUBLE:
        said, advice = (
            "is missing or emulated on many accelerators",
            "use float32, or do this part on the CPU",
        )
        yield advise(module, node, "IM802", name, said, advice)
    elif name == _MATMUL or name.endswith((".allow_tf32", "_reduced_precision_reduction", ".fp32_precision")):
        if name == _MATMUL or name.startswith(("torch.backends.cuda.", "torch.backends.cudnn.")):
            said = "sets the precision of float32 products on NVIDIA GPUs only"
            advice = "compare with a run at the highest precision, or allow other chips the same error"
            yield advise(module, node, "IM801", name, said, advice)
    elif name in _DETERMINISTIC:
        said = "requests deterministic kernels; their set differs between accelerators"
        yield advise(module, node, "IM805", name, said, "run twice on the target and compare the losses")


def _call(module: Module, call: ast.Call) -> Iterator[Finding]:
    name = method(call)
    if module.names.qualified(call.func) == "torch.load":
        if len(call.args) < 2 and not (unpacks(call) or keyword(call, "map_location")):
            said = "has no map_location, so a checkpoint from CUDA loads with CUDA only"
            yield advise(module, call, "IM806", "torch.load", said, _MAPPED)
    elif name == "double" and not call.args:
        said, advice = (
            "converts to float64, which many accelerators lack",
            "use float32, or do this on the CPU",
        )
        yield advise(module, call, "IM802", ".double()", said, advice)
    elif name == "half" and not call.args:
        said = "converts to float16, whose range ends at 65504"
        yield advise(module, call, "IM804", ".half()", said, "use bfloat16, or autocast with a GradScaler")
    elif (
        _is_half_autocast(module, call)
        and module.mentions(".backward(")
        and not module.mentions("GradScaler")
    ):
        said, advice = "trains in float16 without a scaler", "add torch.amp.GradScaler, or use bfloat16"
        yield advise(module, call, "IM803", "autocast", said, advice)


def _is_half_autocast(module: Module, call: ast.Call) -> bool:
    """Whether a call is an autocast to float16, by argument or CUDA's default."""
    name = module.names.qualified(call.func)
    if name not in _AUTOCAST:
        return False
    dtype = keyword(call, "dtype")
    if dtype is not None:
        return module.names.qualified(dtype) in _HALF
    return name == "torch.cuda.amp.autocast" or bool(call.args and is_constant(call.args[0], "cuda"))
