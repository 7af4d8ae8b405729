"""``init_process_group("gloo")`` for tensors of an accelerator, which Gloo takes from CUDA only."""

import ast
from collections.abc import Iterator

from isthmus.migrate.rules import backends
from isthmus.migrate.rules.rule import Rule
from isthmus.migrate.source.findings import Finding
from isthmus.migrate.source.module import Module
from isthmus.migrate.source.strings import text

_GROUP = "torch.distributed.init_process_group"
_WRAPPERS = frozenset(
    {"torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel"}
)


class GlooBackend(Rule):
    """Gloo as the backend of a model on an accelerator."""

    code = "IM208"
    name = "gloo-backend"
    summary = "reports Gloo where gradients are on an accelerator, which a person replaces; changes nothing"
    before = 'torch.distributed.init_process_group("gloo")'
    after = 'torch.distributed.init_process_group("gloo")'
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
                message = (
                    "is the backend of a model with device_ids, and takes tensors of CUDA and the CPU only"
                )
                advice = "use torch.distributed.get_default_backend_for_device(device) for other accelerators"
                yield self.unclear(module, backend, '"gloo"', message, advice)


def _has_devices(module: Module, call: ast.Call) -> bool:
    """Whether a call wraps a model that is on a device with an index."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "device_ids")]
    return module.names.qualified(call.func) in _WRAPPERS and any(
        not (isinstance(each, ast.Constant) and each.value is None) for each in given
    )


def _backend(call: ast.Call) -> ast.expr | None:
    named = (each.value for each in call.keywords if each.arg == "backend")
    return call.args[0] if call.args else next(named, None)
