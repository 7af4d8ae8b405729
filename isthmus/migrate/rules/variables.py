"""Environment variables that CUDA and NCCL read, in Python and, as data, in shell scripts."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import ClassVar, NamedTuple

from isthmus.migrate.rules.backends import is_for_nccl
from isthmus.migrate.rules.rule import Rule
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import text
from isthmus.migrate.source.visible_devices import VARIABLE, is_setting


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


VARIABLES = (
    Variable(
        "IM129",
        re.compile(
            r"\b(?:CUDA_(?:VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|MODULE_LOADING"
            r"|CACHE_PATH|CACHE_DISABLE)|NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES))\b"
        ),
        "is read by CUDA",
        "accelerators have different variables; let the launcher choose devices",
    ),
    Variable(
        "IM129",
        re.compile(r"\b(?:CUDA_(?:HOME|PATH)|TORCH_CUDA_ARCH_LIST)\b"),
        "is read where sources in CUDA C++ are built",
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
_LATE = "is set after a module's DEVICE has queried the devices, so it has no effect"
_EARLIER = (
    f"set {VARIABLE} in the environment of the command, or at the top of the script that is started, "
    "before it imports modules of the project"
)


class VariableRule(Rule):
    """Base class of rules that report environment variables; they change nothing."""

    order: ClassVar[int] = 90  # after every rule that uses the device constant

    def find(self, module: Module) -> Iterator[Finding]:
        """Find strings that name such a variable: keys of os.environ, arguments of getenv and of subprocesses."""
        yield from self.named(module)

    def named(self, module: Module, skipped: Collection[ast.AST] = ()) -> Iterator[Finding]:
        """Yield the findings of strings, without those to skip."""
        for constant in module.of(ast.Constant):
            if constant in skipped or isinstance(module.parents[constant], ast.Expr):
                continue
            for variable in VARIABLES:
                found = variable.names.match(text(constant)) if variable.code == self.code else None
                if found is not None:
                    yield self._end(module, constant, found[0], variable)

    def _end(self, module: Module, node: ast.Constant, name: str, variable: Variable) -> Finding:
        if is_for_nccl(module, node):
            return self.right(module, node, name, f"{variable.message}, and used with it only", "stays")
        return self.unclear(module, node, name, variable.message, variable.advice)


class CudaVariables(VariableRule):
    """Variables of CUDA, its libraries and its allocator."""

    code = "IM129"
    name = "cuda-variables"
    summary = "reports environment variables that CUDA reads; changes nothing"
    before = 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'
    after = 'os.environ["CUDA_LAUNCH_BLOCKING"] = "1"'
    words = ("CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the variables, and visible devices that are set after the device constant has queried them."""
        late = {each for each in filter(is_setting, ast.walk(module.tree)) if _is_late(module, each)}
        for each in late:
            yield self.left(module, each, VARIABLE, _LATE, _EARLIER)
        yield from self.named(module, {inner for each in late for inner in ast.walk(each)})


class NcclVariables(VariableRule):
    """Variables of NCCL."""

    code = "IM222"
    name = "nccl-variables"
    summary = "reports environment variables that NCCL reads; changes nothing"
    before = 'os.environ["NCCL_DEBUG"] = "INFO"'
    after = 'os.environ["NCCL_DEBUG"] = "INFO"'
    words = ("NCCL_",)


def _is_late(module: Module, setting: ast.expr) -> bool:
    """Whether a setting runs after the device constant of this module, or of one that it imports, is defined."""
    if module.around.target:  # a fixed device is not queried
        return False
    statement: ast.AST = setting
    for outer in module.enclosing(setting):
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
            return True
        if outer is not module.tree:
            statement = outer
    edits = (edit for finding in module.findings for edit in finding.edits)
    uses = [edit.start for edit in edits if "device" in edit.needs]
    uses += [module.start(each) for each in module.of(ast.Name) if each.id == module.device]
    return min(uses, default=len(module.text)) < module.start(statement)
