"""Patches for parallelism: listed, applied when PyTorch's module is imported, and undone."""

from __future__ import annotations

import pytest

from tests.helpers.children import output, output_fresh


def test_patches_are_in_force_and_are_undone():
    code = """
    import torch
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._random import OffsetBasedRNGTracker
    from torch.distributed.tensor.experimental._context_parallel._attention import custom_ops
    from torch.nn.parallel import DistributedDataParallel
    from isthmus.rendezvous import restarts
    from isthmus_common import patches
    from isthmus.chip import distributed
    from isthmus.chip.patches import context_parallel, dtensor_attention, dtensor_random

    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def state():
        functions = (
            DynamicRendezvousHandler.next_rendezvous,
            OffsetBasedRNGTracker._distribute_region,
            DistributedDataParallel._check_comm_hook,
        )
        ours = [function.__globals__["__name__"].startswith("isthmus.") for function in functions]
        rules = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
        return [*ours, attention in custom_ops, attention in rules]

    print(state(), len(patches.active("distributed")) >= 8)
    for module in (restarts, context_parallel, dtensor_attention, dtensor_random):
        module.uninstall()
    distributed.uninstall()
    print(state(), patches.active("distributed"))
    """
    before, after = output(code).splitlines()
    assert before == f"{[True] * 5} True"
    assert after == f"{[False] * 5} []"


@pytest.mark.full
def test_import_of_torch_does_not_import_modules_patched_later():
    code = "import sys, torch; print([m for m in sys.modules if m.startswith('torch.distributed.tensor')])"
    assert output_fresh(code) == "[]"
