"""The rank of this process in its job."""

import os


def rank() -> int:
    """Return the rank of this process: of its default group, else of the launcher, else 0."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", "0"))
