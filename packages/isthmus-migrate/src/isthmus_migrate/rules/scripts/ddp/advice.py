"""Advice for the review of a converted script."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from isthmus_migrate.rules.scripts.program import Program
from isthmus_migrate.source.calls import keyword

_STATISTICS = (
    "BatchNorm computes statistics of each rank's share of a batch",
    "for statistics over all ranks, call torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before wrapping",
)
_WRITES = ("every rank does this", "put it under `if RANK == 0:` if once is enough")
_WRITERS = ("SummaryWriter", "savefig", "to_csv", "imsave", "save_image", "FileHandler", "basicConfig")
_MODULES = ("wandb.init", "mlflow.start_run", "numpy.save", "numpy.savez", "json.dump", "pickle.dump")


class Advice(NamedTuple):
    """Advice about one place.

    Attributes:
        line: line, from 1.
        subject: the name it is about.
        message: what was found.
        advice: what to do.
    """

    line: int
    subject: str
    message: str
    advice: str


def find_advice(program: Program) -> Iterator[Advice]:
    """Yield advice about BatchNorm, and files and logs written by every rank."""
    batch_norm = [
        call
        for call in program.calls
        if program.qualified(call.func).startswith("torch.nn.")
        and _last_name(program, call).startswith("BatchNorm")
    ]
    if batch_norm:
        yield Advice(batch_norm[0].lineno, _last_name(program, batch_norm[0]), *_STATISTICS)
    for call in program.calls:
        name, last = program.qualified(call.func), _last_name(program, call)
        if last in _WRITERS or name in _MODULES or (name == "open" and _is_to_write(call)):
            yield Advice(call.lineno, name or last, *_WRITES)


def _last_name(program: Program, call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else program.qualified(function).split(".")[-1]
    )


def _is_to_write(call: ast.Call) -> bool:
    mode = keyword(call, "mode")
    mode = call.args[1] if len(call.args) > 1 else mode
    return (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set("wax") & set(mode.value))
    )
