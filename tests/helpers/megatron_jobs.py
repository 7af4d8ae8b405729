"""One rank of a job that trains a tiny GPT of megatron-core in several parallelisms, one after the other.

``python -m tests.helpers.megatron_jobs FLAGS...``, each a quoted command line of examples/pretrain_gpt_core.py; the
last rank prints a line of JSON for each, ``{"flags": ..., "losses": [...], "norms": [...], "collectives": {...}}``:
the latter within the tensor-parallel group by name; ``overlapped`` are all-gathers that others began and ended under.
"""

import collections
import contextlib
import functools
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import pretrain_gpt_core as example
import torch.distributed as dist
from gpt_core import plain
from gpt_core.flags import parse_args
from megatron.core import parallel_state
from megatron.core.tensor_parallel import layers, mappings


class Waited:
    """A Work that counts the collectives started before its wait."""

    def __init__(self, work: dist.Work, seen: collections.Counter[str]) -> None:
        self.work, self.seen, self.before = work, seen, count_begun(seen)

    def wait(self) -> None:
        self.work.wait()
        self.seen["overlapped"] += count_begun(self.seen) > self.before


def count_begun(seen: collections.Counter[str]) -> int:
    return seen.total() - seen["overlapped"]


@contextlib.contextmanager
def count_collectives() -> Iterator[collections.Counter[str]]:
    """Collectives within the tensor-parallel group."""
    seen: collections.Counter[str] = collections.Counter()

    def counted(original: Callable[..., Any], *arguments: object, **options: Any) -> Any:
        made = original(*arguments, **options)
        if options.get("group") is not parallel_state.get_tensor_model_parallel_group(
            check_initialized=False
        ):
            return made
        seen[original.__name__] += 1
        return Waited(made, seen) if made is not None else None

    with contextlib.ExitStack() as stack:
        for name in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"):
            original = getattr(dist, name)
            for module in (dist, layers, mappings):
                for own, found in list(vars(module).items()):
                    if found is original:
                        replacement = functools.partial(counted, original)
                        stack.enter_context(mock.patch.object(module, own, replacement))
        yield seen


def main() -> None:
    example.start_process_group()
    for flags in sys.argv[1:]:
        args = parse_args(shlex.split(flags))
        step = plain.trainer(args) if args.plain else example.trainer(args)
        with count_collectives() as collectives:
            found = [step(iteration) for iteration in range(args.train_iters)]
        if dist.get_rank() == dist.get_world_size() - 1:
            losses, norms = zip(*found, strict=True)
            print(
                json.dumps({"flags": flags, "losses": losses, "norms": norms, "collectives": collectives}),
                flush=True,
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
