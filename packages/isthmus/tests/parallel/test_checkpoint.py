"""Distributed checkpoints: written by some ranks and read back equal by others.

Each job of ranks runs the checks that it is named; the folder stays between jobs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.helpers.parallel import models
from tests.helpers.parallel.rank import Rank, difference, tolerance
from tests.helpers.parallel.ranks import Ranks


class Trained:
    """A model and its optimizer, sharded by FSDP2, or by that and tensor parallelism, over all ranks."""

    def __init__(self, rank: Rank, *, tensor_parallel: bool = False) -> None:
        self.rank = rank
        self.model: nn.Module = models.mlp().to(rank.device)
        mesh = init_device_mesh("chip", (rank.size,), mesh_dim_names=("dp",))
        if tensor_parallel:
            grid = init_device_mesh("chip", (rank.size // 2, 2), mesh_dim_names=("dp", "tp"))
            styles = {0: ColwiseParallel, 2: RowwiseParallel}
            plan = {str(i): styles[i % 3]() for i in range(9) if i % 3 in styles}
            parallelize_module(self.model, grid["tp"], plan)
            mesh = grid["dp"]
        fully_shard(self.model, mesh=mesh)
        self.steps = models.optimizer(self.model)

    def train(self, steps: range) -> None:
        """Train on the same batch on all ranks, independent of their number."""
        for step in steps:
            self.steps.zero_grad()
            models.square(self.model, models.batch(step).to(self.rank.device)).backward()
            self.steps.step()

    def state(self) -> dict[str, object]:
        model, steps = get_state_dict(self.model, self.steps)
        return {"model": model, "steps": steps}

    def load(self, folder: Path) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            self.model, self.steps, model_state_dict=state["model"], optim_state_dict=state["steps"]
        )

    def values(self) -> list[Tensor]:
        """Parameters and the optimizer's state, whole."""
        found = list(self.model.parameters())
        found += [
            self.steps.state[parameter][name]
            for parameter in found
            for name in ("exp_avg", "exp_avg_sq", "step")
        ]
        return [whole(value.detach()) for value in found]


def whole(value: Tensor) -> Tensor:
    return (value.full_tensor() if isinstance(value, DTensor) else value).cpu()


def save(rank: Rank, trained: Trained, name: str) -> float:
    """Write the checkpoint, and its values next to it."""
    dcp.save(trained.state(), checkpoint_id=rank.folder / name)
    values = trained.values()
    if rank.number == 0:
        torch.save(values, rank.folder / f"{name}.pt")
    dist.barrier()
    return 0


def written(rank: Rank, name: str) -> list[Tensor]:
    return torch.load(rank.folder / f"{name}.pt", weights_only=True)


def loaded(rank: Rank, name: str, *, tensor_parallel: bool = False) -> float:
    """Load a checkpoint into a differently trained model; return its values."""
    trained = Trained(rank, tensor_parallel=tensor_parallel)
    trained.train(range(7, 8))
    trained.load(rank.folder / name)
    return difference(trained.values(), written(rank, name))


@tolerance(0)
def write_sharded(rank: Rank) -> float:
    trained = Trained(rank)
    trained.train(range(2))
    return save(rank, trained, f"sharded-{rank.size}")


@tolerance(0)
def write_tensor_parallel(rank: Rank) -> float:
    trained = Trained(rank, tensor_parallel=True)
    trained.train(range(2))
    return save(rank, trained, f"tensor-{rank.size}")


@tolerance(0)
def read_of_four(rank: Rank) -> float:
    return max(loaded(rank, "sharded-4"), loaded(rank, "tensor-4"))


@tolerance(0)
def read_of_two(rank: Rank) -> float:
    return max(loaded(rank, "sharded-2"), loaded(rank, "tensor-2"))


@tolerance(0)
def read_into_other_parallelism(rank: Rank) -> float:
    """Sharded into tensor parallel and back, of four ranks."""
    return max(loaded(rank, "sharded-4", tensor_parallel=True), loaded(rank, "tensor-4"))


@tolerance(0)
def write_beside_training(rank: Rank) -> float:
    """async_save: what is written is what was there when it was asked for."""
    trained = Trained(rank)
    trained.train(range(2))
    name = f"beside-{rank.size}"
    before = trained.values()
    future = dcp.async_save(trained.state(), checkpoint_id=rank.folder / name)
    trained.train(range(2, 4))
    future.result()
    after = trained.values()
    assert difference(after, before) > 0
    trained.load(rank.folder / name)
    return difference(trained.values(), before)


@tolerance(0)
def read_whole(rank: Rank) -> float:
    """One process reads what four have written, as one file of torch.save."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    file = rank.folder / f"whole-{rank.number}.pt"
    dcp_to_torch_save(rank.folder / "sharded-4", file)
    state = torch.load(file, weights_only=False)
    parameters = [state["model"][name] for name, _ in models.mlp().named_parameters()]
    return difference(parameters, written(rank, "sharded-4")[: len(parameters)])


# ---- the test -------------------------------------------------------------------------------------------------
JOBS = (
    (4, ("write_sharded", "write_tensor_parallel", "write_beside_training", "read_into_other_parallelism")),
    (2, ("read_of_four", "read_whole")),
    (2, ("write_sharded", "write_tensor_parallel")),
    (4, ("read_of_two",)),
)
QUICK = 2  # jobs; the others repeat the same in the other direction
CHECKS = [
    pytest.param(place, name, marks=[pytest.mark.full] * (place >= QUICK))
    for place, (_, names) in enumerate(JOBS)
    for name in names
]


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Ranks]:
    """The jobs up to the last one of which this run has tests."""
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    items = [item for item in request.session.items if getattr(item, "function", None) is test_ranks]
    last = max(item.callspec.params["job"] for item in items)  # type: ignore[attr-defined]
    return [Ranks("checkpoint", size, folder, *names) for size, names in JOBS[: last + 1]]


@pytest.mark.parametrize(("job", "name"), CHECKS)
def test_ranks(jobs: list[Ranks], job: int, name: str) -> None:
    jobs[job].assert_passed(name)
