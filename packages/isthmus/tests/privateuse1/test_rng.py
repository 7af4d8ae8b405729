"""Generators of the chip."""

from __future__ import annotations

import pytest
import torch

from tests.privateuse1 import covers


@pytest.fixture(autouse=True)
def _states():
    with torch.random.fork_rng(devices=[0, 1], device_type="chip"):
        yield


@covers("rng", "test_generator", "test_create_generator_and_seed", "test_generator_seed")
@covers("openreg", "test_generator")
@covers("open_device_registration", "test_open_device_generator_registration_and_hooks")
@pytest.mark.parametrize("index", [0, 1])
def test_generator_of_a_device(index):
    generator = torch.Generator(device=f"chip:{index}")
    assert generator.device == torch.device("chip", index)
    generator.manual_seed(42 + index)
    assert generator.initial_seed() == 42 + index
    assert torch.chip.default_generators[index].device == generator.device


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


@covers("rng", "test_seed")
def test_seeds_of_the_system_differ():
    seeds = set()
    for _ in range(3):
        torch.chip.seed_all()
        seeds.add(torch.chip.initial_seed())
    assert len(seeds) == 3


@covers("open_device_registration", "test_open_device_random")
def test_fork_rng():
    before = torch.chip.get_rng_state(0)
    with torch.random.fork_rng(device_type="chip"):
        torch.rand(5, device="chip")
    assert torch.equal(torch.chip.get_rng_state(0), before)


@covers("rng", "test_offset_unsupported")
def test_a_sequential_generator_has_no_offset():
    """CPU's mt19937 cannot jump; the counter-based generator of ISTHMUS_HOST_RNG=philox can (test_philox.py)."""
    generator = torch.Generator(device="chip")
    with pytest.raises(RuntimeError, match="a chip generator of mt19937 has no offset: set its state"):
        generator.set_offset(16)
    assert generator.get_offset() == 0
