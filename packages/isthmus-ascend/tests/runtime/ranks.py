"""Checks of collectives over HCCL against gloo; a script for ``isthmus ascend run --nproc N``.

Each rank prints a line of JSON: by backend and size of the group the errors of the collective matrix and how many
cases ran, and the differences of DDP and FSDP2. Over gloo the same cases run on the CPU, with the same expected bits.
"""

import json
import os
import re
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.matrix_cases import REDUCE_OPS, Team, cases, teams
from tests.helpers.parallel import models
from tests.helpers.parallel.rank import difference
from tests.helpers.rank_checks import raises

# Cases of the matrix, by a part of their names, that a backend does not have.
LACKING = {
    "npu": re.compile(
        r"BAND|BOR|BXOR|complex|float8|uint16|refusals|^reduc.*float64|^reduce_scatters .*(uint8|bool)"
        r"|AVG torch\.u?int"
    ),
    "cpu": re.compile(
        r"unequal|coalesced|PREMUL_SUM|int16|float8|refusals|SUM torch.bool|gathers .*complex|AVG torch\.u?int"
    ),
}


def refusals(team: Team) -> None:
    """Reductions of other dtypes and by other operators raise on all ranks; the group goes on."""
    tensor = team.empty(3, torch.float64)
    raises(RuntimeError, "Unsupported data type", lambda: dist.all_reduce(tensor, group=team.group))
    for name in ("BAND", "BOR", "BXOR"):
        tensor, op = team.empty(3, torch.int32), REDUCE_OPS[name][0]
        raises(
            RuntimeError, f"ReduceOp.{name}", lambda t=tensor, o=op: dist.all_reduce(t, o, group=team.group)
        )
    dist.barrier(team.group)


def wrong(team: Team) -> tuple[dict[str, str], int]:
    """Return the errors of the cases by name, and how many ran."""
    named = dict(cases(team))
    chosen = {name: case for name, case in named.items() if not LACKING[team.device.type].search(name)}
    errors = {}
    for name, case in chosen.items():
        try:
            case()
        except Exception:
            errors[name] = traceback.format_exc(limit=-1)
    return errors, len(chosen)


def trained(device: torch.device, wrap: Callable[[nn.Module], nn.Module]) -> list[Tensor]:
    """Return the losses of this rank and the parameters, on the CPU."""
    model = wrap(models.mlp().to(device))
    losses = models.train(model, dist.get_rank(), device)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return [*losses, *(value.cpu() for value in state.values())]


def sharded(model: nn.Module) -> nn.Module:
    """Return the model, each layer of which is sharded over all ranks."""
    mesh = dist.init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def compared(npu: torch.device) -> dict[str, dict[str, float]]:
    """Return the differences of DDP and FSDP2 from gloo, and from one process that adds the gradients of all."""
    *losses, parameters = models.train_alone(models.mlp(), dist.get_world_size(), torch.device("cpu"))
    alone = [*losses[dist.get_rank()], *parameters]
    found = {}
    for name, wrap in (("ddp", DistributedDataParallel), ("fsdp", sharded)):
        ours, gloo = (trained(device, wrap) for device in (npu, torch.device("cpu")))
        found[name] = {"gloo": difference(ours, gloo), "alone": difference(ours, alone)}
    return found


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    npu, cpu = torch.device("npu", rank), torch.device("cpu")
    torch.npu.set_device(rank)
    dist.init_process_group("cpu:gloo,npu:hccl")
    said = {}
    for team in teams(npu):
        said[f"hccl of {team.size}"] = wrong(team)
        refusals(team)
        said[f"gloo of {team.size}"] = wrong(Team(team.group, cpu))
    said |= compared(npu)
    sys.stdout.write(json.dumps(said) + "\n")  # at once
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
