"""Environment variables that CUDA and NCCL read, in Python and, as data, in shell scripts."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from isthmus_migrate.rules.backends import is_for_nccl
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source import constants
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text
from isthmus_migrate.source.visible_devices import VARIABLE, settings


class Variable(NamedTuple):
    """A group of variables.

    Attributes:
        code: of their findings.
        names: regular expression of their names.
        message: what reads them.
        advice: what to do.
    """

    code: str
    names: re.Pattern[str]
    message: str
    advice: str


BUILD = "is read where sources in CUDA C++ are built"
VARIABLES = (
    Variable(
        "IM129",
        re.compile(rf"\b{VARIABLE}\b"),
        "is read by CUDA",
        "elsewhere index 0 stays the first device: select the device by its index, or in the launcher",
    ),
    Variable(
        "IM129",
        re.compile(r"\b(?:CUDA_DEVICE_ORDER|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES))\b"),
        "is read by CUDA",
        "accelerators have different variables; let the launcher choose devices",
    ),
    Variable(
        "IM129",
        re.compile(
            r"\bCUDA_(?:LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING|CACHE_PATH|CACHE_DISABLE)\b"
        ),
        "is read by CUDA",
        "other accelerators do not read it; set the target's counterpart, if there is one",
    ),
    Variable(
        "IM129",
        re.compile(r"\b(?:CUDA_(?:HOME|PATH)|TORCH_CUDA_ARCH_LIST)\b"),
        BUILD,
        "keep it with the build for CUDA; other builds do not read it",
    ),
    Variable(
        "IM129",
        re.compile(r"\b(?:CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE|CUDNN_[A-Z0-9_]+)\b"),
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
_HIDES = "other accelerators stay visible: choose the CPU where the device is chosen"
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_LATE = "is set after a module's DEVICE has initialized CUDA, so it has no effect"
_EARLIER = (
    f"set {VARIABLE} in the environment of the command, or at the top of the script that is started, "
    "before it imports modules of the project"
)


class VariableRule(Rule):
    """Base class of rules that report environment variables; they change nothing."""

    def find(self, module: Module) -> Iterator[Finding]:
        """Find strings and keywords that name such a variable: keys of os.environ, arguments of getenv."""
        yield from self.find_strings(module)

    def find_strings(self, module: Module, skipped: Collection[ast.AST] = ()) -> Iterator[Finding]:
        """Yield the findings of strings, without those to skip."""
        strings = (each for each in module.of(ast.Constant) if not isinstance(module.parents[each], ast.Expr))
        named = [(each, text(each)) for each in strings] + [
            (each, each.arg or "") for each in module.of(ast.keyword)
        ]
        for node, written in named:
            for variable in VARIABLES if node not in skipped else ():
                found = variable.names.match(written) if variable.code == self.code else None
                if found is not None:
                    yield self._end(module, node, found[0], variable)

    def _end(self, module: Module, node: ast.expr | ast.keyword, name: str, variable: Variable) -> Finding:
        if is_for_nccl(module, node):
            return self.already_portable(
                module, node, name, f"{variable.message}, and used with it only", "stays"
            )
        if variable.message == BUILD:
            return self.already_portable(
                module, node, name, variable.message, "stays: other builds do not read it"
            )
        if name == _WORKSPACE and _asks_for_determinism(module):
            message = f"{variable.message}, beside torch.use_deterministic_algorithms for every device"
            return self.already_portable(module, node, name, message, "stays")
        setting = module.parents[module.parents[node]]
        is_hiding = name == VARIABLE and isinstance(setting, ast.Assign) and text(setting.value) == "-1"
        return self.undecided(module, node, name, variable.message, _HIDES if is_hiding else variable.advice)


class CudaVariables(VariableRule):
    """Variables of CUDA, its libraries and its allocator."""

    code = "IM129"
    name = "cuda-variables"
    summary = "reports environment variables that CUDA reads; changes nothing"
    before = 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'
    after = 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'
    words = ("CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the variables, and visible devices that are set after the device constant has initialized CUDA."""
        is_late = module.around.project.late_choice and constants.initializes(
            module.around.target, module.around.torch
        )
        late = set(settings(module.tree)) if is_late else set[ast.expr]()
        for each in late:
            yield self.needs_manual_change(module, each, VARIABLE, _LATE, _EARLIER)
        yield from self.find_strings(module, {inner for each in late for inner in ast.walk(each)})


class NcclVariables(VariableRule):
    """Variables of NCCL."""

    code = "IM222"
    name = "nccl-variables"
    summary = "reports environment variables that NCCL reads; changes nothing"
    before = 'os.environ["NCCL_DEBUG"] = "INFO"'
    after = 'os.environ["NCCL_DEBUG"] = "INFO"'
    words = ("NCCL_",)


def _asks_for_determinism(module: Module) -> bool:
    """Whether a module asks PyTorch for deterministic algorithms on every device."""
    called = (module.names.qualified(each.func) for each in module.of(ast.Call))
    return "torch.use_deterministic_algorithms" in called
