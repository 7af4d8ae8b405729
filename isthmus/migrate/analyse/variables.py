"""Environment variables that CUDA and NCCL read, in shell scripts and in Python."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from isthmus.migrate.analyse.strings import is_docstring, text
from isthmus.migrate.source.findings import Finding, Severity
from isthmus.migrate.source.module import Module


class Variable(NamedTuple):
    """A group of variables.

    Attributes:
        code: code of their findings, all of severity review.
        names: regular expression of their names.
        message: what reads them.
        advice: what to do.
    """

    code: str
    names: re.Pattern[str]
    message: str
    advice: str


VARIABLES = (
    Variable(
        "IM129",
        re.compile(
            r"\b(?:CUDA_(?:VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|HOME|PATH|MODULE_LOADING"
            r"|CACHE_PATH|CACHE_DISABLE)|TORCH_CUDA_ARCH_LIST|NVIDIA_VISIBLE_DEVICES)\b"
        ),
        "is read by CUDA",
        "accelerators have different variables; let the launcher choose devices",
    ),
    Variable(
        "IM129",
        re.compile(
            r"\b(?:CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE|NVIDIA_TF32_OVERRIDE|CUDNN_[A-Z0-9_]+)\b"
        ),
        "is read by cuBLAS or cuDNN",
        "other accelerators do not read it; use torch.use_deterministic_algorithms",
    ),
    Variable(
        "IM129",
        re.compile(r"\bPYTORCH_CUDA_ALLOC_CONF\b"),
        "sets CUDA's allocator",
        "PYTORCH_ALLOC_CONF is read by every allocator",
    ),
    Variable(
        "IM222",
        re.compile(r"\b(?:TORCH_)?NCCL_[A-Z0-9_]+\b"),
        "is read by NCCL",
        "other backends do not read it; find its counterpart, or set it for CUDA only",
    ),
)
_WORDS = ("CUDA_", "NCCL_", "CUBLAS", "CUDNN_", "NVIDIA_")
_BEGINNINGS = (*_WORDS, "TORCH_", "PYTORCH_CUDA_")


def detect(module: Module) -> Iterator[Finding]:
    """Find strings that name such a variable: keys of os.environ, arguments of getenv and of subprocesses."""
    if not module.mentions(*_WORDS):
        return
    for constant in module.of(ast.Constant):
        value = text(constant)
        if not value.startswith(_BEGINNINGS) or is_docstring(module, constant):
            continue
        for variable in VARIABLES:
            if found := variable.names.match(value):
                yield module.finding(
                    variable.code, Severity.REVIEW, constant, found[0], variable.message, variable.advice
                )
