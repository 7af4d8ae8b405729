"""The list of what a verification did not compare."""

from collections.abc import Iterator, Sequence

from isthmus_migrate.verify.run import Run
from isthmus_migrate.verify.tally import Comparison

_EMPTY = {
    "losses": "losses: none, as backward() was not called",
    "parameters": "parameters: none, as no optimizer stepped",
    "printed text": "printed text: none on standard output",
}


def left_out(original: Run, other: Run, comparisons: Sequence[Comparison], ddp: bool) -> list[str]:
    """Return what was not compared, one line each.

    Args:
        original: run.
        other: run.
        comparisons: comparisons of the two.
        ddp: one process is compared with ranks.
    """
    return list(dict.fromkeys(_lines(original, other, comparisons, ddp)))


def _lines(original: Run, other: Run, comparisons: Sequence[Comparison], ddp: bool) -> Iterator[str]:
    for each in comparisons:
        if not each.compared and each.same and not each.left_out and each.subject in _EMPTY:
            yield _EMPTY[each.subject]
        yield from (f"{each.subject}: {line}" for line in each.left_out)
    if ddp:
        yield "random numbers, saved files and the output of ranks above 0: each rank has its own"
    if number := max(original.lines_of_errors, other.lines_of_errors):
        yield f"standard error: {number} lines; logging and progress bars write there"
    steps = [record.steps for run in (original, other) for record in run.records if record.ended]
    if steps:
        yield f"what follows optimizer step {steps[0]}, where --steps ended the run; --steps 0 runs all of it"
    for record in other.processes:
        yield from record.stand_ins
