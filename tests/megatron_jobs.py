"""One rank of a job that trains a tiny GPT of megatron-core in several parallelisms, one after the other.

``python -m tests.megatron_jobs FLAGS...``, each a quoted command line of examples/pretrain_gpt_core.py; the last
rank prints a line of JSON for each: ``{"flags": ..., "losses": [...], "norms": [...]}``.
"""

import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import pretrain_gpt_core as example
import torch.distributed as dist
from gpt_core import plain
from gpt_core.flags import parse_args


def main() -> None:
    example.start_process_group()
    for flags in sys.argv[1:]:
        args = parse_args(shlex.split(flags))
        step = plain.trainer(args) if args.plain else example.trainer(args)
        found = [step(iteration) for iteration in range(args.train_iters)]
        if dist.get_rank() == dist.get_world_size() - 1:
            losses, norms = zip(*found, strict=True)
            print(json.dumps({"flags": flags, "losses": losses, "norms": norms}), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
