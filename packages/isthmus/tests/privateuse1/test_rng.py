"""Generators of the chip."""

from __future__ import annotations

import pytest
import torch

from tests.privateuse1.inventory import covers


@pytest.fixture(autouse=True)
def _states():
    with torch.random.fork_rng(devices=[0, 1], device_type="chip"):
        yield


@covers("rng", "test_generator_state", "test_generator_different_devices")
def test_states_and_devices_repeat_the_numbers():
    drawn = []
    for index in (0, 1):
        generator = torch.Generator(device=f"chip:{index}")
        generator.manual_seed(1)
        state = generator.get_state()
        for _ in range(2):
            generator.set_state(state)
            drawn.append(torch.randn(10, device=f"chip:{index}", generator=generator).cpu())
    assert all(torch.equal(numbers, drawn[0]) for numbers in drawn)


@covers("rng", "test_rng_state", "test_rng_state_consistency")
def test_states_of_devices_are_independent():
    torch.chip.manual_seed_all(7)
    torch.rand(3, device="chip:1")
    states = torch.chip.get_rng_state_all()
    assert not torch.equal(states[0], states[1])
    expected = torch.rand(4, device="chip:1").cpu()
    torch.chip.set_rng_state_all(states)
    assert torch.equal(torch.chip.get_rng_state(0), states[0])
    assert torch.equal(torch.rand(4, device="chip:1").cpu(), expected)
    torch.chip.set_rng_state(states[0], 1)
    assert torch.equal(torch.chip.get_rng_state(1), states[0])


@covers("rng", "test_manual_seed", "test_manual_seed_all")
def test_seeding_all_devices():
    for seed in (42, 1234):
        torch.chip.manual_seed_all(seed)
        for index in (0, 1):
            with torch.chip.device(index):
                assert torch.chip.initial_seed() == seed
