"""Training on one device, or by DataParallel, becomes DistributedDataParallel."""

import ast
from collections.abc import Iterator

from isthmus_migrate.rules.rule import is_read
from isthmus_migrate.rules.scripts.ddp.plan import find_distributed_use, plan
from isthmus_migrate.rules.scripts.program import NotRecognised, Program
from isthmus_migrate.rules.source_rule import WholeRule
from isthmus_migrate.source.cuda_branches import guarded_nodes
from isthmus_migrate.source.findings import Finding
from isthmus_migrate.source.module import Module
from isthmus_migrate.source.questions import is_portable

_SAID = "drives several GPUs from one process, on CUDA only"
_OPTION = "`isthmus migrate convert --ddp` makes it DistributedDataParallel, started by torchrun"
_BY_HAND = "use DistributedDataParallel, started by torchrun"
_ADVICE = "change the script to DistributedDataParallel by hand; its training was not changed"
_START = "start the script in its distributed mode, which runs on any accelerator"
_COUNT = "torch.cuda.device_count"
_CLASSES = frozenset(
    f"torch.nn.{name}"
    for name in (
        "DataParallel",
        "parallel.DataParallel",
        "parallel.data_parallel.DataParallel",
        "parallel.data_parallel",
    )
)
_PARTS = frozenset(
    f"torch.nn.parallel.{name}" for name in ("replicate", "scatter", "gather", "parallel_apply")
)


class DataParallel(WholeRule):
    """Training on one device or by DataParallel; converted as a whole or not at all."""

    code = "IM210"
    name = "data-parallel"
    summary = (
        "training in one process becomes DistributedDataParallel: run it by torchrun, on one rank or many"
    )
    before = "model = nn.DataParallel(model)"
    after = "model = torch.nn.parallel.DistributedDataParallel(model)"
    words = ("backward", "arallel")
    order = 10
    option = "ddp"

    def find(self, module: Module) -> Iterator[Finding]:
        """Find training in one process if the option is given, else DataParallel."""
        if self.option in module.around.options:
            yield from self._planned_changes(module)
        elif any(True for _ in self._uses(module, "")):
            running = find_distributed_use(Program(module.text))
            yield from self._uses(module, _OPTION if running is None else _START)

    def _uses(self, module: Module, advice: str) -> Iterator[Finding]:
        """Yield the findings of DataParallel and its parts."""
        for node in (*module.of(ast.Attribute), *module.of(ast.Name)):
            name = module.names.qualified(node) if is_read(node) else None
            if name in _CLASSES:
                yield self.needs_manual_change(module, node, str(name), _SAID, advice)
            elif name in _PARTS:
                yield self.needs_manual_change(module, node, str(name), _SAID, _BY_HAND)

    def _planned_changes(self, module: Module) -> Iterator[Finding]:
        """Yield the changes of the whole source, or the reason why there are none."""
        program = Program(module.text)
        running = find_distributed_use(program)
        if running is not None:
            yield from self._uses(module, _START)
            yield from self._report_running(module, program, running)
            return
        try:
            planned = plan(program, module.text, module.device)
        except NotRecognised as error:
            yield self.needs_manual_change(
                module, module.at(error.line), "DistributedDataParallel", str(error), _ADVICE
            )
            return
        if planned is None:  # DataParallel without training
            yield from self._uses(module, _BY_HAND)
            return
        said = "runs in one process"
        yield from self.findings_of_changes(
            module, planned.changes, "training", said, ("torch", "device", "os")
        )
        for line, subject, message, advice in planned.advice:
            yield self.undecided(module, module.at(line), subject, message, advice)

    def _report_running(self, module: Module, program: Program, place: ast.AST) -> Iterator[Finding]:
        """Yield the finding of a training that uses several processes already."""
        trains = any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in program.nodes)
        if trains:
            said = "already trains in several processes, or by a library that does"
            yield self.already_portable(module, place, "DistributedDataParallel", said, "stays")


def starts_data_parallel(module: Module, call: ast.Call) -> bool:
    """Whether a call guards DataParallel and no code for any accelerator, or is behind a test that does.

    Args:
        module: the module.
        call: of ``torch.cuda.is_available`` or ``torch.cuda.device_count``.
    """
    if DataParallel.option in module.around.options or not module.mentions("arallel"):
        return False
    tests = [call]
    for above in module.enclosing(call):
        if isinstance(above, ast.If):
            tests += (each for each in ast.walk(above.test) if isinstance(each, ast.Call))
    return any(_only_data_parallel(module, each) for each in tests)


def _only_data_parallel(module: Module, call: ast.Call) -> bool:
    name = module.names.qualified(call.func) or ""
    if name not in ("torch.cuda.is_available", _COUNT):
        return False
    parts = (each for each in guarded_nodes(module, call) if not isinstance(module.parents[each], ast.BoolOp))
    nodes = [node for each in parts for node in ast.walk(each)]
    starts = any(
        isinstance(node, ast.Call) and module.names.qualified(node.func) in _CLASSES for node in nodes
    )
    return starts and not any(_is_moved(module, node) for node in nodes)


def _is_moved(module: Module, node: ast.AST) -> bool:
    """Whether a node is code of CUDA with a form for any accelerator, other than a count of devices."""
    counts = isinstance(node, ast.Attribute | ast.Name) and module.names.qualified(node) == _COUNT
    return not counts and is_portable(module, node)
