"""Adam over distributed tensors updates each rank's part."""

from tests.helpers.children import output


def test_a_shard_is_updated_as_a_tensor():
    code = """
    import os, warnings
    warnings.simplefilter("ignore")
    import torch, torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from isthmus.ops import AdamW

    store = dist.HashStore()
    dist.init_process_group(store=store, rank=0, world_size=1)
    mesh = init_device_mesh("chip", (1,))
    values, gradient = torch.randn(4, 3, device="chip"), torch.randn(4, 3, device="chip")
    whole = torch.nn.Parameter(values.clone())
    part = torch.nn.Parameter(distribute_tensor(values.clone(), mesh, [Shard(0)]))
    whole.grad, part.grad = gradient.clone(), distribute_tensor(gradient.clone(), mesh, [Shard(0)])
    for each in (whole, part):
        optimizer = AdamW([each])
        optimizer.step()
        optimizer.step()
    print(torch.equal(whole, part.full_tensor()), torch.equal(whole, values))
    """
    assert output(code, ISTHMUS_HOST_DEVICES="1", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0") == "True False"
