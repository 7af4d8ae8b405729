"""One rank of a job that trains a tiny GPT of megatron-core in several parallelisms, one after the other.

``python -m tests.megatron_jobs FLAGS...``, each a quoted command line of examples/pretrain_gpt_core.py; the last
rank prints a line of JSON for each: ``{"flags": ..., "losses": [...], "norms": [...], "all_reduces": ...}``, the
latter within the tensor-parallel group.
"""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import pretrain_gpt_core as example
import torch
import torch.distributed as dist
from gpt_core import plain
from gpt_core.flags import parse_args
from megatron.core import parallel_state


@contextlib.contextmanager
def counting() -> Iterator[list[object]]:
    """Sizes of what is all-reduced within the tensor-parallel group."""
    original, seen = dist.all_reduce, []

    def all_reduce(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
        if kwargs.get("group") is parallel_state.get_tensor_model_parallel_group(check_initialized=False):
            seen.append(tensor.shape)
        return original(tensor, *args, **kwargs)

    dist.all_reduce = all_reduce
    try:
        yield seen
    finally:
        dist.all_reduce = original


def main() -> None:
    example.start_process_group()
    for flags in sys.argv[1:]:
        args = parse_args(shlex.split(flags))
        step = plain.trainer(args) if args.plain else example.trainer(args)
        with counting() as all_reduces:
            found = [step(iteration) for iteration in range(args.train_iters)]
        if dist.get_rank() == dist.get_world_size() - 1:
            losses, norms = zip(*found, strict=True)
            print(
                json.dumps(
                    {"flags": flags, "losses": losses, "norms": norms, "all_reduces": len(all_reduces)}
                ),
                flush=True,
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
