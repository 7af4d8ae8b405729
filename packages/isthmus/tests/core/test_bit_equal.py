"""float32 on the delegate route gives CPU's bits: forward, backward and AdamW of the example's model."""

import copy
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = pytest.mark.host("its delegate")

VOCABULARY, BATCH, SEQUENCE = 512, 4, 64
Result = tuple[list[float], list[torch.Tensor]]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=SEQUENCE,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(autouse=True)
def restore_thread_settings() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def train(
    model: LlamaForCausalLM, device: str, steps: int, before_step: Callable[[int], None] = lambda step: None
) -> Result:
    """Losses and final parameters (on CPU) of some steps of default AdamW."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(steps):
        before_step(step)
        ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


def assert_same(ours: Result, reference: Result) -> None:
    assert ours[0] == reference[0]
    for index, (parameter, expected) in enumerate(zip(ours[1], reference[1], strict=True)):
        assert torch.equal(parameter, expected), f"parameter {index} differs"


def test_twenty_steps_of_adamw(model: LlamaForCausalLM) -> None:
    reference = train(model, "cpu", 20)
    torch.chip.reset_dispatch_stats()
    assert_same(train(model, "chip", 20), reference)
    calls = torch.chip.dispatch_stats()["calls"]
    assert calls["delegate"] > 0 and calls.get("fallback", 0) == 0
    assert reference[0][-1] < reference[0][0]


def test_thread_count_and_denormals_changed_between_backwards(model: LlamaForCausalLM) -> None:
    def change(step: int) -> None:
        torch.set_num_threads(1 + step % 2)
        torch.set_flush_denormal(step % 3 == 1)

    assert_same(train(model, "chip", 6, change), train(model, "cpu", 6, change))


def test_from_a_second_thread(model: LlamaForCausalLM) -> None:
    results: dict[str, Result] = {}

    def run(device: str) -> None:
        torch.set_num_threads(1)
        results[device] = train(model, device, 3)

    for device in ("cpu", "chip"):
        thread = threading.Thread(target=run, args=(device,))
        thread.start()
        thread.join()
    assert_same(results["chip"], results["cpu"])


def test_backward_of_given_gradients_in_a_fresh_thread() -> None:
    """The thread calls nothing on the chip before autograd's engine runs."""
    gradients = {}
    torch.set_flush_denormal(False)
    for device in ("cpu", "chip"):
        weight = torch.full((64, 64), 1e-20, device=device, requires_grad=True)
        output = weight * torch.full((64, 64), 1e-20, device=device)
        seed = torch.ones(64, 64, device=device) * 1e-19

        def run(output: torch.Tensor = output, seed: torch.Tensor = seed) -> None:
            torch.set_flush_denormal(True)
            output.backward(seed)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert weight.grad is not None
        gradients[device] = weight.grad.cpu()
    assert torch.equal(gradients["chip"], gradients["cpu"])
    assert gradients["cpu"].count_nonzero() == 0, "the product is denormal, so the setting was not in force"


@pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
def test_dropout_draws_what_cpu_draws(p: float) -> None:
    results = []
    for device in ("cpu", "chip"):
        torch.manual_seed(3)
        value = torch.linspace(-1, 1, 1000).to(device).requires_grad_()
        output = torch.nn.functional.dropout(value, p)
        output.sum().backward()
        assert value.grad is not None
        results.append((output.detach().cpu(), value.grad.cpu()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize(
    "draw",
    [
        lambda device: torch.randn(1000, device=device),
        lambda device: torch.rand(37, device=device),
        lambda device: torch.randint(0, 9, (50,), device=device),
        lambda device: torch.randn(3, device=device),
        lambda device: torch.randperm(100, device=device),
        lambda device: torch.empty(64, device=device).bernoulli_(0.3),
        lambda device: torch.empty(99, device=device).exponential_(),
        lambda device: torch.bernoulli(torch.full((40,), 0.3, device=device)),
        lambda device: torch.multinomial(torch.arange(1.0, 9.0, device=device), 4),
        lambda device: torch.native_dropout(torch.ones(100, device=device), 0.5, True)[0],
    ],
)
def test_random_numbers_are_cpus_after_the_same_seed(draw: Callable[[str], torch.Tensor]) -> None:
    torch.manual_seed(11)
    expected = [draw("cpu") for _ in range(2)]
    torch.manual_seed(11)
    cpu_state = torch.get_rng_state()
    ours = [draw("chip").cpu() for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    assert torch.equal(torch.get_rng_state(), cpu_state), "CPU's generator moved"
