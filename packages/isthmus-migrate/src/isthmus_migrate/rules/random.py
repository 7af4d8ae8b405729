"""Random number generators of the device."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.draft import TERNARY, Draft
from isthmus_migrate.rules.functions import FunctionRule, add_guard, needs_guard
from isthmus_migrate.source.calls import argument
from isthmus_migrate.source.cuda_names import CudaName, Guard
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_SEEDS = ("torch.cuda.manual_seed", "torch.cuda.manual_seed_all")
_FORK = "torch.random.fork_rng"
_FORK_PARAMETERS = ("devices", "enabled", "_caller", "_devices_kw", "device_type")


class Random(FunctionRule):
    """Seeds and states of the random number generators."""

    code = "IM117"
    name = "random"
    summary = "seeds the generators of the accelerator in use"
    before = "torch.cuda.manual_seed_all(0)"
    after = "if torch.accelerator.is_available():\n    torch.get_device_module(DEVICE).manual_seed_all(0)"
    words = ("seed", "rng_state", "default_generators", "fork_rng")

    def find(self, module: Module) -> Iterator[Finding]:
        """Find the generators' functions, and ``torch.random.fork_rng``, which always forks the CPU's generator."""
        yield from super().find(module)
        for call in module.of(ast.Call):
            if module.names.qualified(call.func) == _FORK:
                yield self._fork(module, call)

    def call(self, module: Module, call: ast.Call, entry: CudaName) -> Finding:
        """Return the finding of a call; beside ``torch.manual_seed`` of the same value, it changes nothing."""
        name = module.names.qualified(call.func) or ""
        if name in _SEEDS and len(call.args) == 1 and self._seeds_all(module, call):
            advice = "stays: torch.manual_seed beside it seeds every accelerator"
            return self.already_portable(module, call, name, "seeds CUDA's generators", advice)
        return super().call(module, call, entry)

    def _seeds_all(self, module: Module, call: ast.Call) -> bool:
        """Whether the function or module around a call also calls ``torch.manual_seed`` with its argument."""
        seed = module.code(call.args[0])
        return any(
            module.names.qualified(each.func) == "torch.manual_seed"
            and [module.code(value) for value in each.args] == [seed]
            and module.names.scope(each.func) == module.names.scope(call.func)
            for each in module.of(ast.Call)
        )

    def name_read(self, module: Module, node: ast.expr, entry: CudaName) -> Iterator[Finding]:
        """Yield the finding of a name; ``default_generators`` is no function."""
        if not entry.becomes.endswith("default_generators"):
            yield from super().name_read(module, node, entry)
            return
        draft = Draft(module).replace(node, entry.becomes)
        add_guard(draft, node, entry)
        advice = f"becomes {entry.becomes}"
        yield self.automatic_change(node, "torch.cuda.default_generators", "belongs to CUDA", advice, draft)

    def _fork(self, module: Module, call: ast.Call) -> Finding:
        """Return the finding of devices or of the type ``"cuda"``: the accelerator's type is the default."""
        type_, devices = (argument(call, _FORK_PARAMETERS, name) for name in ("device_type", "devices"))
        draft = Draft(module)
        if type_ is not None and text(type_) == "cuda":
            draft.remove_argument(call, next((each for each in call.keywords if each.value is type_), type_))
        is_guarded = not needs_guard(module, call, Guard.ACCELERATOR)
        if devices is not None and not is_guarded and not _is_none_on_cpu(module, devices):
            draft.surround(devices, "", " if torch.accelerator.is_available() else []", TERNARY)
        if not draft.edits:
            return self.already_portable(module, call, _FORK, "forks the accelerator's generators", "stays")
        said, advice = "forks the generators of CUDA", "forks those of the accelerator, if there is one"
        return self.automatic_change(call, _FORK, said, advice, draft)


def _is_none_on_cpu(module: Module, devices: ast.expr) -> bool:
    """Whether devices are none without an accelerator."""
    if isinstance(devices, ast.Constant | ast.IfExp):
        return True
    if isinstance(devices, ast.List | ast.Tuple):
        return not devices.elts
    return isinstance(devices, ast.Call) and "device_count()" in module.code(devices)
