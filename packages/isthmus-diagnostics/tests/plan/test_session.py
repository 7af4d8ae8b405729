"""A plan measured, solved and applied in one process."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from isthmus_diagnostics.plan import actions, layers, offload
from isthmus_diagnostics.plan.session import Measuring
from isthmus_diagnostics.plan.stage_measurement import Measured, Offload

WIDTH, LAYERS = 64, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(WIDTH), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.mlp(self.norm(x)))


def trainer() -> tuple[nn.Module, Callable[[], str]]:
    gc.collect()  # a model with a plan is in a cycle: its modules hold their own forwards
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(*(Block() for _ in range(LAYERS)))).to(
        "chip"
    )
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> str:
        loss = model(torch.randn(1024, WIDTH, device="chip")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item().hex()

    return model, step


def measured(folder: Path) -> Measured:
    _, step = trainer()
    session = Measuring(folder)
    with pytest.raises(SystemExit):
        while True:
            step()
    session.stop()
    return Measured.from_ranks([json.loads((folder / "rank0.json").read_text())], Offload.NONE)


def trained(plan: dict[str, dict[str, str]]) -> tuple[list[str], int]:
    """Losses, and the peak after the first step."""
    model, step = trainer()
    actions.apply(layers.find(model, 0), plan)
    losses = [step()]
    torch.accelerator.reset_peak_memory_stats()
    losses += [step(), step()]
    return losses, torch.accelerator.max_memory_allocated()


@pytest.mark.usefixtures("fresh_memory")
def test_a_plan_fits_and_the_losses_stay(tmp_path: Path):
    found = measured(tmp_path)
    names = [f"0/1.{index}" for index in range(LAYERS)]
    assert found.layers == names
    keep = found.peak([0] * LAYERS)
    losses, peak = trained({})
    assert keep == pytest.approx(peak, rel=0.02)
    memory = (keep + found.all_peak) // 2
    choice = found.solve(memory)
    assert choice
    planned, peak = trained(found.actions(choice))
    assert planned == losses
    assert found.all_peak <= peak <= 1.02 * memory
    assert found.peak(choice) == pytest.approx(peak, rel=0.02)
    offloaded, peak = trained({name: {".": "offload"} for name in names})
    assert offloaded == losses
    assert peak < keep


@pytest.mark.usefixtures("fresh_memory")
def test_a_failed_allocation_moves_activations_to_the_host():
    everything = {f"0/1.{index}": {".": "offload"} for index in range(LAYERS)}
    losses, peak = trained({})
    total = torch.chip.mem_get_info()[1]
    torch.chip.empty_cache()
    offload.set_room(total)  # so nothing moves unless an allocation fails
    calls: list[bool] = []
    torch.chip.memory._set_failure_callback(
        lambda *numbers: calls.append(offload.move(*numbers)) or calls[-1]
    )
    torch.chip.set_per_process_memory_fraction(peak / 1.5 / total)
    try:
        assert trained(everything)[0] == losses
        assert True in calls
        with ThreadPoolExecutor() as other:  # such as the worker of a stream
            assert other.submit(offload.move, 0, 1).result() is False
    finally:
        torch.chip.memory._set_failure_callback(lambda *_: False)
        torch.chip.set_per_process_memory_fraction(1.0)
        offload.set_room(0)
