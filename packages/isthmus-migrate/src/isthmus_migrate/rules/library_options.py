"""Words by which libraries other than PyTorch are told to use CUDA: Lightning's accelerators, ONNX's providers."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.rule import Rule, is_read
from isthmus_migrate.source.cuda_only import PROVIDERS
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text


class Option(NamedTuple):
    """An option of a library.

    Attributes:
        taken: regular expression of the function and its parameter, ``"library.Class(parameter=)"``.
        values: its strings that mean CUDA; any value if empty.
        message: what is wrong elsewhere.
        advice: what to do.
        once: whether one finding in a file is enough.
    """

    taken: re.Pattern[str]
    values: frozenset[str]
    message: str
    advice: str
    once: bool = False


_CUDA = frozenset({"cuda"})
_LIGHTNING = r"(?:pytorch_)?lightning(?:_fabric)?\.(?:\w+\.)*"
_ACCELERATOR = re.compile(_LIGHTNING + "CUDAAccelerator")
_COUNT = "use torch.accelerator.device_count() and torch.accelerator.is_available()"
_REGISTER = (
    "register one for the target in Lightning's AcceleratorRegistry, and pass its name: auto does not find it"
)
OPTIONS = (
    Option(
        re.compile(_LIGHTNING + r"(?:Trainer|Fabric)\(accelerator=\)"),
        _CUDA | {"gpu"},
        'is Lightning\'s accelerator for CUDA, and as "gpu" for MPS',
        _REGISTER,
    ),
    Option(
        re.compile(_LIGHTNING + r"Trainer\(gpus=\)"),
        frozenset(),
        "asks Lightning for CUDA's devices",
        f"write accelerator= and devices=: {_REGISTER}",
    ),
    Option(
        re.compile(r"\b_?RunIf\(min_(?:cuda_)?gpus=\)"),
        frozenset(),
        "skips tests where CUDA is not available",
        "skip by torch.accelerator.device_count() those of code that is not for CUDA alone",
        once=True,
    ),
    Option(
        re.compile(r"ctranslate2\.(?:\w+\.)*\w+\(device=\)"),
        _CUDA,
        "is a device of CTranslate2, which runs on the CPU and on CUDA",
        "choose the CPU where CUDA is not available",
    ),
)
_CHOOSING = re.compile(_LIGHTNING + r"(?:Trainer|Fabric)")
_CHOOSES = "leaves the device to Lightning, which finds the accelerators that it knows"
_PACKAGES = frozenset({"lightning", "pytorch_lightning"})
_GPUS = "is Lightning 1's selection of CUDA's devices"
_PROVIDER = "name the target's execution provider, or the CPU's"


class LibraryOptions(Rule):
    """Arguments that tell other libraries to use CUDA."""

    code = "IM304"
    name = "library-options"
    summary = "reports words that tell other libraries to use CUDA; changes nothing"
    before = 'trainer = lightning.Trainer(accelerator="gpu", devices=2)'
    after = before
    words = ("lightning", "RunIf", "ctranslate2", "ExecutionProvider")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the arguments, and names of providers."""
        for node, used in _accelerators(module):
            yield self.undecided(module, node, used, "asks Lightning for CUDA's devices", _COUNT)
        for made in module.of(ast.Call):
            if _leaves_choice(module, made):
                yield self.undecided(module, made, module.code(made.func), _CHOOSES, _REGISTER)
        seen: dict[Option, Finding] = {}
        more: Counter[Option] = Counter()
        for keyword in module.of(ast.keyword):
            call = module.parents[keyword]
            name = module.names.qualified(call.func) if isinstance(call, ast.Call) else None
            option = option_of(f"{name}({keyword.arg}=)") if name else None
            if option is None or (option.values and text(keyword.value) not in option.values):
                continue
            module.claimed.add(keyword.value)
            if option in seen:
                more[option] += 1
                continue
            subject = f"{keyword.arg}={module.code(keyword.value)}"
            found = self.undecided(module, keyword.value, subject, option.message, option.advice)
            if option.once:
                seen[option] = found
            else:
                yield found
        for option, found in seen.items():
            others = f", and {more[option]} more in this file" if more[option] else ""
            yield found._replace(message=found.message + others)
        for constant in module.of(ast.Constant):
            if text(constant) in PROVIDERS:
                said = "is ONNX Runtime's provider for NVIDIA GPUs"
                yield self.undecided(module, constant, text(constant), said, _PROVIDER)
        if _imports_lightning(module):
            advice = f"set accelerator= and devices=: {_REGISTER}"
            yield from (self.undecided(module, each, "gpus", _GPUS, advice) for each in _gpus(module))


def _leaves_choice(module: Module, call: ast.Call) -> bool:
    """Whether a call makes Lightning's Trainer or Fabric without saying for which accelerator."""
    if not _CHOOSING.fullmatch(module.names.qualified(call.func) or ""):
        return False
    given = {each.arg: text(each.value) for each in call.keywords}
    return (
        not call.args
        and None not in given
        and "gpus" not in given
        and given.get("accelerator", "auto") == "auto"
    )


def _imports_lightning(module: Module) -> bool:
    """Whether a module imports Lightning's Trainer, or the package."""
    names = [alias.name for each in module.of(ast.Import) for alias in each.names]
    names += [each.module or "" for each in module.of(ast.ImportFrom) if not each.level]
    return any(name.partition(".")[0] in _PACKAGES for name in names)


def _gpus(module: Module) -> list[ast.expr]:
    """Return each `gpus` that is a key or attribute of a configuration; none beside the option `devices`."""
    if any(each.arg in ("devices", "gpus") for each in module.of(ast.keyword)):
        return []
    keys = [each.slice for each in module.of(ast.Subscript)] + [each.left for each in module.of(ast.Compare)]
    attributes = [each for each in module.of(ast.Attribute) if each.attr == "gpus"]
    return [*(each for each in keys if text(each) == "gpus"), *attributes]


def option_of(taken: str) -> Option | None:
    """Return the option that a function's parameter is, ``"lightning.Trainer(accelerator=)"``, also in a sentence."""
    return next((each for each in OPTIONS if each.taken.search(taken)), None)


def _accelerators(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield the uses of Lightning's accelerator for CUDA."""
    for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
        name = module.names.qualified(node) or ""
        if _ACCELERATOR.fullmatch(name) and is_read(node):
            yield node, name
