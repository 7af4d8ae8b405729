"""A job larger than the chip fails with one clear line, frees everything, and the next smaller one runs."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.children import output

JOBS = """
import gc, json, torch
from torch import nn

CAPACITY = 256 << 20


def train(capacity):
    \"\"\"Two steps of AdamW on layers whose weights, gradients and moments take about capacity bytes.\"\"\"
    width = 1024
    layers = capacity // (4 * 4 * width * (width + 1))
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to("chip")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(2):
        loss = model(torch.ones(4, width, device="chip")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def failure():
    try:
        train(CAPACITY * 3 // 2)
    except torch.OutOfMemoryError as error:
        return str(error).splitlines()[0]


message = failure()
gc.collect()
left = torch.chip.memory_allocated()
torch.chip.empty_cache()
print(json.dumps({
    "message": message,
    "left": left,
    "reserved": torch.chip.memory_reserved(),
    "free": torch.chip.mem_get_info()[0],
    "ooms": torch.chip.memory_stats()["num_ooms"],
    "loss": train(CAPACITY // 2),
    "peak": torch.chip.max_memory_allocated(),
}))
"""


@pytest.mark.host("the size of its memory")
def test_a_job_too_large_leaves_room_for_a_smaller_one():
    found = json.loads(output(JOBS, ISTHMUS_HOST_MEMORY="256MiB", ISTHMUS_HOST_DEVICES="1"))
    message = found["message"]
    assert message.startswith("chip 0 is out of memory: asked ")
    size = r"[\d.]+ ([KMG]iB|bytes)"
    assert re.search(
        rf"asked {size}, {size} free of {size} \(reserved {size}, of which {size} unused, "
        rf"largest free block {size}\)\. Set ISTHMUS_HOST_MEMORY or lower the micro-batch",
        message,
    ), message
    assert found["left"] == 0
    assert found["reserved"] == 0
    assert found["free"] == 256 << 20
    assert found["ooms"] == 1
    assert 0 < found["loss"] < 1
    assert found["peak"] > 128 << 20
