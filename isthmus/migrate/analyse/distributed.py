"""Data parallelism and collectives that depend on CUDA (IM2xx)."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.strings import choices, claimed, is_word
from isthmus.migrate.analyse.syntax import is_called, is_constant, keyword, method
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module


class _Name(NamedTuple):
    code: str
    severity: Severity
    message: str
    advice: str


_DATA_PARALLEL = _Name(
    "IM210",
    Severity.MANUAL,
    "drives several GPUs from one process, on CUDA only",
    "`isthmus migrate convert --ddp` makes it DistributedDataParallel, started by torchrun",
)
_IS_AVAILABLE = "torch.distributed.is_nccl_available"
_NAMES = {
    "torch.nn.DataParallel": _DATA_PARALLEL,
    "torch.nn.parallel.DataParallel": _DATA_PARALLEL,
    "torch.nn.parallel.data_parallel.DataParallel": _DATA_PARALLEL,
    "torch.nn.parallel.data_parallel": _DATA_PARALLEL,
    **dict.fromkeys(
        (f"torch.nn.parallel.{name}" for name in ("replicate", "scatter", "gather", "parallel_apply")),
        _DATA_PARALLEL._replace(advice="use DistributedDataParallel, started by torchrun"),
    ),
    _IS_AVAILABLE: _Name(
        "IM202",
        Severity.AUTOMATIC,
        "tests for CUDA's collectives",
        "becomes torch.distributed.is_backend_available of the device's default backend",
    ),
    "torch.distributed.ProcessGroupNCCL": _Name(
        "IM290",
        Severity.MANUAL,
        "is CUDA's process group",
        "use torch.distributed.init_process_group and its default backend",
    ),
    "torch.distributed.launch": _Name(
        "IM220", Severity.AUTOMATIC, "is deprecated", "becomes torchrun, which sets LOCAL_RANK"
    ),
}
_DEFAULT = "becomes torch.distributed.get_default_backend_for_device(DEVICE)"
_PAIRS = re.compile(r"(\w+:\w+)(,\w+:\w+)+")  # "cuda:nccl,cpu:gloo"
_DISTRIBUTED = {
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "apex.parallel.DistributedDataParallel",
}
_INDICES = ("device_ids", "output_device")
_LOCAL_RANK = ("--local_rank", "--local-rank")


def detect(module: Module) -> Iterator[Finding]:
    """DataParallel, NCCL as a backend, ``--local_rank`` of torch.distributed.launch, NCCL's variables."""
    if not module.mentions("arallel", "nccl", "local_rank", "local-rank", "distributed.launch"):
        return
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        name = module.names.qualified(node)
        if name in _NAMES and isinstance(getattr(node, "ctx", None), ast.Load):
            known = _NAMES[name]
            severity = known.severity
            if name == _IS_AVAILABLE and not is_called(module, node):
                severity = Severity.REVIEW
            yield module.finding(known.code, severity, node, name, known.message, known.advice)
    for call in module.of(ast.Call):
        yield from _device_indices(module, call)
    chosen = claimed(module)
    for whole, _, kind in choices(module):
        if kind == "backend":
            yield module.finding(
                "IM201", Severity.AUTOMATIC, whole, '"nccl" or "gloo"', "chooses a backend", _DEFAULT
            )
    for constant in module.of(ast.Constant):
        if isinstance(constant.value, str) and constant not in chosen:
            yield from _string(module, constant, constant.value)


def _device_indices(module: Module, call: ast.Call) -> Iterator[Finding]:
    """Find ``DistributedDataParallel(model, device_ids=[rank])``, which fails for a module on the CPU."""
    if module.names.qualified(call.func) not in _DISTRIBUTED:
        return
    for each in call.keywords:
        given = each.value
        if each.arg in _INDICES and not isinstance(given, ast.IfExp) and not is_constant(given, None):
            said, advice = "raises if the model is on the CPU", "becomes None on the CPU"
            yield module.finding("IM203", Severity.AUTOMATIC, given, each.arg or "", said, advice)


def _string(module: Module, node: ast.Constant, text: str) -> Iterator[Finding]:
    parent = module.parents[node]
    if text == "nccl":
        yield from _backend(module, node, parent)
    elif _PAIRS.fullmatch(text) and "cuda:nccl" in text.split(",") and not is_word(module, node):
        said, advice = "names CUDA's collectives", "the pair for CUDA becomes the device's, the others stay"
        yield module.finding("IM201", Severity.AUTOMATIC, node, f'"{text}"', said, advice)
    elif text in _LOCAL_RANK and _is_old_argument(parent):
        said, advice = "is an argument of the old launcher", "its default becomes torchrun's LOCAL_RANK"
        severity = Severity.AUTOMATIC if _has_number(parent) else Severity.REVIEW
        yield module.finding("IM221", severity, parent, text, said, advice)
    elif text == "torch.distributed.launch" and isinstance(parent, (ast.List, ast.Tuple)):
        known = _NAMES[text]
        yield module.finding(known.code, known.severity, node, text, known.message, known.advice)


def _is_old_argument(node: ast.AST) -> bool:
    """Whether a node is ``parser.add_argument("--local_rank")`` without torchrun's variable as its default."""
    return (
        isinstance(node, ast.Call) and method(node) == "add_argument" and "LOCAL_RANK" not in ast.dump(node)
    )


def _has_number(node: ast.AST) -> bool:
    """Whether an argument's default is a number, or argparse's."""
    default = keyword(node, "default") if isinstance(node, ast.Call) else None
    number = isinstance(default, ast.UnaryOp) or type(getattr(default, "value", None)) is int
    return default is None or number


def _backend(module: Module, node: ast.Constant, parent: ast.AST) -> Iterator[Finding]:
    if isinstance(parent, (ast.Compare, ast.List, ast.Tuple, ast.Set)):
        said = "is compared with a backend"
        yield module.finding("IM202", Severity.AUTOMATIC, node, '"nccl"', said, _DEFAULT)
    elif not is_word(module, node):
        yield module.finding("IM201", Severity.AUTOMATIC, node, '"nccl"', "is CUDA's backend", _DEFAULT)
