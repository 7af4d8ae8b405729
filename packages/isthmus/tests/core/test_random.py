"""Generators: seeds, states, and the CPU's numbers on the host chip."""

from __future__ import annotations

import pickle

import pytest
import torch

from tests.helpers.children import output


@pytest.fixture(autouse=True)
def _restore():
    states = torch.chip.get_rng_state_all()
    yield
    torch.chip.set_rng_state_all(states)


def test_manual_seed_seeds_every_device():
    torch.manual_seed(7)
    first = [torch.rand(5, device=f"chip:{i}").cpu() for i in range(2)]
    torch.manual_seed(7)
    second = [torch.rand(5, device=f"chip:{i}").cpu() for i in range(2)]
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert torch.chip.initial_seed() == 7


def test_state_round_trip():
    state = torch.chip.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    first = torch.randn(9, device="chip").cpu()
    torch.chip.set_rng_state(state)
    assert torch.equal(torch.randn(9, device="chip").cpu(), first)


def test_seed_of_one_device_leaves_the_other():
    torch.manual_seed(3)
    expected = torch.rand(4, device="chip:1").cpu()
    torch.manual_seed(3)
    torch.chip.manual_seed(99)
    assert torch.equal(torch.rand(4, device="chip:1").cpu(), expected)


def test_seed_from_the_system():
    torch.chip.seed_all()
    first = torch.rand(4, device="chip").cpu()
    torch.chip.seed()
    assert not torch.equal(torch.rand(4, device="chip").cpu(), first)


@pytest.mark.host("it draws the CPU's numbers")
def test_own_generator():
    generator = torch.Generator(device="chip").manual_seed(5)
    assert generator.device == torch.device("chip:0")
    first = torch.randn(6, device="chip", generator=generator).cpu()
    assert torch.equal(first, torch.randn(6, generator=torch.Generator().manual_seed(5)))
    generator.manual_seed(5)
    assert torch.equal(torch.randn(6, device="chip", generator=generator).cpu(), first)


def test_generator_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(4, device="chip", generator=torch.Generator())


@pytest.mark.parametrize(("device", "generator"), [("chip", "cpu"), ("cpu", "chip"), ("chip", "chip")])
def test_randperm_of_nothing_takes_any_generator(device: str, generator: str) -> None:
    found = torch.randperm(0, device=device, generator=torch.Generator(device=generator))
    assert found.shape == (0,) and found.device.type == device


def test_randperm_of_nothing_empties_its_output() -> None:
    out = torch.ones(3, dtype=torch.int64, device="chip")
    assert torch.randperm(0, generator=torch.Generator(), out=out) is out and out.numel() == 0


def test_a_cloned_generator_continues_with_the_same_numbers():
    generator = torch.Generator(device="chip").manual_seed(5)
    copy = generator.clone_state()
    first = torch.rand(3, device="chip", generator=generator).cpu()
    assert torch.equal(torch.rand(3, device="chip", generator=copy).cpu(), first)
    copy.manual_seed(6)
    assert generator.initial_seed() == 5


def test_default_generators():
    assert len(torch.chip.default_generators) == 2
    assert torch.chip.default_generators[1].device == torch.device("chip:1")
    with pytest.raises(IndexError, match="chip:2 does not exist"):
        torch.chip.default_generators[2]


@pytest.mark.host("it draws the CPU's numbers")
def test_a_seed_before_first_use_is_kept():
    found = output("import torch; torch.manual_seed(4); print(torch.rand(3, device='chip').tolist())")
    torch.manual_seed(4)
    assert found == str(torch.rand(3).tolist())


def test_seeding_does_not_initialise_the_driver():
    assert output("import torch; torch.manual_seed(4); print(torch.chip.is_initialized())") == "False"


def test_unseeded_numbers_differ_between_processes():
    code = "import torch; print(torch.rand(3, device='chip').tolist())"
    assert output(code) != output(code)


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1, -(2**63)])
@pytest.mark.host("it draws the CPU's numbers")
def test_extreme_seeds_are_those_of_the_cpu(seed):
    torch.manual_seed(seed)
    assert torch.equal(torch.rand(3, device="chip").cpu(), torch.rand(3))
    assert torch.chip.initial_seed() == torch.initial_seed()


@pytest.mark.host("it draws the CPU's numbers")
def test_generators_share_a_state():
    first = torch.Generator(device="chip").manual_seed(5)
    shared = first.graphsafe_get_state()
    expected = torch.rand(6, generator=torch.Generator().manual_seed(5))
    drawn = [torch.rand(3, device="chip", generator=generator).cpu() for generator in (first, shared)]
    assert torch.equal(torch.cat(drawn), torch.cat([expected[:3], expected[3:]]))


def test_a_generator_takes_the_state_of_another():
    first = torch.Generator(device="chip").manual_seed(5)
    second = torch.Generator(device="chip").manual_seed(6)
    second.graphsafe_set_state(first.graphsafe_get_state())
    assert second.initial_seed() == 5
    second.manual_seed(7)
    assert first.initial_seed() == 7
    with pytest.raises(RuntimeError, match="'chip'"):
        second.graphsafe_set_state(torch.Generator())


def test_offset_of_the_default_generator():
    generator = torch.Generator(device="chip")
    assert generator.get_offset() == 0
    with pytest.raises(RuntimeError, match="has no offset: set its state, or set ISTHMUS_HOST_RNG=philox"):
        generator.set_offset(4)


def test_generator_survives_pickling():
    generator = torch.Generator(device="chip").manual_seed(5)
    torch.rand(3, device="chip", generator=generator)
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.device == generator.device
    expected = torch.rand(3, device="chip", generator=generator)
    assert torch.equal(torch.rand(3, device="chip", generator=copy).cpu(), expected.cpu())


def test_state_of_the_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.chip.set_rng_state(torch.zeros(4))
    with pytest.raises(RuntimeError, match="state"):
        torch.chip.set_rng_state(torch.zeros(4, dtype=torch.uint8))


def test_fork_rng_of_some_devices():
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[1], device_type="chip"):
        torch.manual_seed(2)
        inside = torch.rand(3, device="chip:0").cpu()
    torch.manual_seed(2)
    assert torch.equal(torch.rand(3, device="chip:0").cpu(), inside)
    torch.manual_seed(1)
    expected = torch.rand(3, device="chip:1").cpu()
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[1], device_type="chip"):
        torch.rand(3, device="chip:1")
    assert torch.equal(torch.rand(3, device="chip:1").cpu(), expected)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_checkpoint_keeps_the_numbers_that_follow(reentrant, preserve):
    def block(y):
        return torch.nn.functional.dropout(y * 2, 0.5)

    def run(recompute):
        torch.manual_seed(3)
        x = torch.ones(64, device="chip", requires_grad=True)
        out = (
            torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=preserve)
            if recompute
            else block(x)
        )
        out.sum().backward()
        return x.grad.cpu(), torch.rand(4, device="chip").cpu()

    plain, recomputed = run(False), run(True)
    assert torch.equal(plain[0], recomputed[0]) == preserve
    assert torch.equal(plain[1], recomputed[1]) == preserve


class _Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.rand(2)


def test_workers_of_a_loader_draw_as_without_the_chip():
    torch.manual_seed(9)
    torch.rand(1, device="chip")  # the chip's numbers are not the loader's
    loader = torch.utils.data.DataLoader(_Noise(), num_workers=2, batch_size=2)
    first = torch.cat(list(loader)).chip()
    torch.manual_seed(9)
    second = torch.cat(list(loader)).chip()
    assert torch.equal(first.cpu(), second.cpu())
    assert len({tuple(row) for row in first.tolist()}) == 4


@pytest.mark.parametrize("seed", [1 << 64, -(1 << 63) - 1])
def test_a_seed_of_more_than_64_bits_is_refused(seed):
    torch.chip.manual_seed_all(5)
    for function in (torch.chip.manual_seed, torch.chip.manual_seed_all, torch.manual_seed):
        with pytest.raises(ValueError, match=f"seed {seed} is out of range; expected"):
            function(seed)
    assert torch.chip.initial_seed() == 5


def test_too_many_states_set_no_generator():
    torch.chip.manual_seed_all(5)
    before, other = torch.chip.get_rng_state_all(), torch.Generator("chip").manual_seed(6).get_state()
    with pytest.raises(ValueError, match="3 states for 2 devices; pass one per device"):
        torch.chip.set_rng_state_all([other] * 3)
    for state, expected in zip(torch.chip.get_rng_state_all(), before, strict=True):
        assert torch.equal(state, expected)
