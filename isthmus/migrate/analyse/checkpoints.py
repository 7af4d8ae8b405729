"""Checkpoints that load only where their tensors' device exists (IM806)."""

import ast
from collections.abc import Iterator

from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module

_REMEDY = 'pass map_location="cpu" or the device in use, unless every file was saved from tensors of the CPU'


def detect(module: Module) -> Iterator[Finding]:
    """Yield advice on ``torch.load(path)``: a file saved from CUDA's tensors raises where CUDA is not available."""
    if not module.mentions("load"):
        return
    for call in module.of(ast.Call):
        if module.names.qualified(call.func) == "torch.load" and not _maps(call):
            said = "has no map_location, so a checkpoint from CUDA loads with CUDA only"
            yield module.finding("IM806", Severity.ADVICE, call, "torch.load", said, _REMEDY)


def _maps(call: ast.Call) -> bool:
    """Whether a call may pass map_location."""
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return starred or len(call.args) > 1 or any(each.arg in ("map_location", None) for each in call.keywords)
