"""A distributed CUDA script on two ranks: NCCL's names, data parallel, sharding, meshes, pipelines, checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.children import output
from tests.helpers.reports import run_forked

SCRIPT = Path(__file__).parents[1] / "scripts" / "shim_ranks.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Results of the ranks."""
    return run_forked(SCRIPT, tmp_path_factory.mktemp("checkpoint"), ranks=2)


def test_names_of_the_backend(found):
    assert found["backends"] == [True] * 7 + [False]
    assert found["collectives"] == [[2.0, 2.0], [{"rank": 0}], [2.0, 2.0], [0, 1]]


def test_a_group_of_gloo_beside_a_bound_device_on_one_rank():
    code = """
        import torch
        import torch.distributed as dist
        from isthmus import shim

        with shim.enter():
            store = dist.HashStore()
            dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
            group = dist.new_group(backend="gloo")
            x, y, objects = torch.ones(1), torch.ones(1, device="cuda"), [None]
            dist.all_reduce(x, group=group)
            dist.all_reduce(y)
            dist.all_gather_object(objects, "object", group=group)
            print(x.item(), y.item(), objects, dist.get_backend(group), dist.get_backend())
            dist.destroy_process_group()
    """
    assert output(code) == "1.0 1.0 ['object'] gloo nccl"


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp", "fully_shard"])
def test_wrappers_take_every_form_of_a_device(found, wrapper):
    assert found[wrapper] == pytest.approx([found["expected"]] * len(found[wrapper]), rel=1e-6)
    assert found["scaler"] is True


def test_meshes(found):
    assert found["meshes"] == ["cuda"] * 3
    assert found["tensor"] == [True, "cuda", [0.0, 1.0, 2.0, 3.0]]


def test_pipeline_stages(found):
    assert found["pipeline"] == [True] * 3


def test_distributed_checkpoints(found):
    assert found["checkpoint"] == [[0.0, 1.0, 2.0, 3.0], [[7.0] * 4]]
