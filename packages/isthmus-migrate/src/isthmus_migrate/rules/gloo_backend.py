"""``init_process_group("gloo")`` for tensors of an accelerator, which Gloo takes from CUDA only."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules import backends
from isthmus_migrate.rules.draft import TERNARY, Draft
from isthmus_migrate.rules.rule import Rule
from isthmus_migrate.source import versions
from isthmus_migrate.source.calls import keyword
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.strings import text

_GROUP = "torch.distributed.init_process_group"
_WRAPPERS = frozenset(
    {"torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel"}
)


_SHOWN = 'f"cpu:gloo,{DEVICE.type}:{torch.distributed.get_default_backend_for_device(DEVICE)}"'
_BOTH = "f{q}cpu:gloo,{{type}}:{" + backends.DEFAULT + "}{q}"


class GlooBackend(Rule):
    """Gloo as the backend of a model on an accelerator."""

    code = "IM208"
    name = "gloo-backend"
    summary = (
        "a model on another accelerator than CUDA gets its backend beside Gloo; CUDA and the CPU keep Gloo"
    )
    before = 'torch.distributed.init_process_group("gloo")'
    after = (
        f"""torch.distributed.init_process_group("gloo" if DEVICE.type in ("cpu", "cuda") else {_SHOWN})"""
    )
    words = ("gloo",)

    def find(self, module: Module) -> Iterator[Finding]:
        """Find groups with Gloo in a file whose DistributedDataParallel has devices and that never names NCCL."""
        if not any(_has_devices(module, each) for each in module.of(ast.Call)):
            return
        if any(backends.is_nccl(module, each) for each in module.of(ast.Constant)):
            return
        for call in module.of(ast.Call):
            backend = _backend(call) if module.names.qualified(call.func) == _GROUP else None
            if backend is not None and text(backend) == "gloo":
                yield self._gloo(module, backend)

    def _gloo(self, module: Module, backend: ast.expr) -> Finding:
        """Return the finding of Gloo; tensors on the CPU keep it beside another accelerator's backend."""
        subject, target = '"gloo"', module.around.target
        said = "is the backend of a model with device_ids, and takes tensors of CUDA and the CPU only"
        if target in ("cuda", "cpu") or (
            not target and versions.find_missing(backends.DEFAULT, module.around.torch)
        ):
            return self.already_portable(module, backend, subject, said, "stays: the device is one of them")
        draft = Draft(module)
        if target:
            draft.replace(backend, _BOTH)
        else:
            kept = "{q}gloo{q} if {type} in ({q}cpu{q}, {q}cuda{q}) else "
            draft.replace(backend, kept + _BOTH, TERNARY)
        advice = "other accelerators get their default backend, and Gloo for tensors on the CPU"
        return self.automatic_change(backend, subject, said, advice, draft)


def _has_devices(module: Module, call: ast.Call) -> bool:
    """Whether a call wraps a model that is on a device with an index."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "device_ids")]
    return module.names.qualified(call.func) in _WRAPPERS and any(
        not (isinstance(each, ast.Constant) and each.value is None) for each in given
    )


def _backend(call: ast.Call) -> ast.expr | None:
    return call.args[0] if call.args else keyword(call, "backend")
