"""Helper functions inserted into a converted script: process group, rank, reductions."""

RANKS = """\
# Set by torchrun; a script that is started without it is the only rank.
RANK = int(os.environ.get("RANK", 0))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
"""

START = '''\
def start_process_group():
    """Join the other ranks, each on its own device."""
    if DEVICE.type != "cpu":
        torch.accelerator.set_device_index(LOCAL_RANK)
    backend = torch.distributed.get_default_backend_for_device(DEVICE)
    if "RANK" in os.environ:
        torch.distributed.init_process_group(backend)
    else:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
'''

GROUP = '''\
def model_group():
    """The process group of the model's gradients; None is the default group."""
    # The CPU's threads end with their group, unless a model holds it. Those that free reduced numbers must have ended
    # before Python does: it would abort them.
    return torch.distributed.new_group() if DEVICE.type == "cpu" else None
'''

LOADER = '''\
def training_loader(dataset, batch_size=1, shuffle=None, drop_last=False, generator=None, **options):
    """A loader of this rank's share of every global batch."""
    if batch_size % WORLD_SIZE:
        raise ValueError(f"batch size {batch_size} does not divide by {WORLD_SIZE} ranks")
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset,
        num_replicas=WORLD_SIZE,
        rank=RANK,
        shuffle=bool(shuffle),
        seed=generator.initial_seed() if generator is not None else 0,
        drop_last=drop_last,
    )
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=batch_size // WORLD_SIZE,
        sampler=sampler,
        drop_last=drop_last,
        generator=generator,
        **options,
    )
'''

SUM = '''\
def sum_over_ranks(value):
    """A number of this rank's share of a batch, summed over all ranks."""
    value = value.detach().clone()
    torch.distributed.all_reduce(value)
    return value
'''

MEAN = '''\
def mean_over_ranks(value):
    """A mean over this rank's share of a batch, averaged over all ranks."""
    value = value.detach().clone()
    torch.distributed.all_reduce(value)
    return value / WORLD_SIZE
'''

PRINT = '''\
def print_once(*values, **options):
    """Print on rank 0 only; every rank calls it, so that numbers in it may come from all of them."""
    if RANK == 0:
        print(*values, **options)
'''

SAVE = '''\
def save_once(*values, **options):
    """Save on rank 0 only."""
    if RANK == 0:
        torch.save(*values, **options)
'''

BY_NAME = {
    "start_process_group": START,
    "model_group": GROUP,
    "training_loader": LOADER,
    "sum_over_ranks": SUM,
    "mean_over_ranks": MEAN,
    "print_once": PRINT,
    "save_once": SAVE,
}


def source(used: set[str], device: str) -> str:
    """Return the source of the helpers that are used.

    Args:
        used: names of BY_NAME.
        device: name of the module's device constant.
    """
    parts = [RANKS, *(text for name, text in BY_NAME.items() if name in used)]
    return "\n\n".join(parts).replace("DEVICE", device)
