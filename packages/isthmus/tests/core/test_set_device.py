"""The driver's device_set() is called once per thread, and never in a steady training step."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch


def calls(work: Callable[[], object]) -> int:
    torch.chip.reset_dispatch_stats()
    work()
    return int(torch.chip.dispatch_stats()["set_device"])


class Job:
    """A model, its optimizer and a stream for its input, on one device."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("chip", index)
        layers = (torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(), torch.nn.Linear(16, 4))
        self.model = torch.nn.Sequential(*layers).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.side = torch.chip.Stream(device=index)
        self.source = torch.randn(8, 16).pin_memory()

    def step(self) -> float:
        """Forward, backward and optimizer, with the input copied on a separate stream."""
        with torch.chip.device(self.device):
            main = torch.chip.current_stream()
            with torch.chip.stream(self.side):
                x = self.source.to(self.device, non_blocking=True)
            main.wait_stream(self.side)
            start, end = (torch.chip.Event(enable_timing=True) for _ in range(2))
            start.record()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            end.record()
            end.synchronize()
            assert start.elapsed_time(end) > 0
            self.side.wait_stream(main)
            return loss.item()


def test_a_training_step() -> None:
    job = Job(0)
    job.step()
    assert calls(job.step) == 0


@pytest.mark.host("its delegate needs no current device")
def test_a_training_step_with_a_second_device_in_between() -> None:
    jobs = Job(0), Job(1)

    def step() -> None:
        for job in jobs:
            job.step()
        jobs[0].source.to("chip:0").to("chip:1").sum().item()

    for _ in range(2):
        step()
    assert calls(step) == 0


def test_one_call_for_a_thread() -> None:
    job = Job(0)
    job.step()
    counted: list[int] = []
    thread = threading.Thread(target=lambda: counted.append(calls(lambda: [job.step() for _ in range(3)])))
    thread.start()
    thread.join()
    assert counted[0] <= 1


def test_selecting_a_device_does_not_call_the_driver() -> None:
    torch.ones(1, device="chip:0")

    def choose() -> None:
        for index in (1, 0, 1, 0):
            torch.chip.set_device(index)
            torch.chip.current_stream()

    assert calls(choose) == 0
