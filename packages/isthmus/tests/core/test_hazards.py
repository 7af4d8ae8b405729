"""Regression tests: races, lifetimes, tensors of other kinds, tensors without data."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F


def attention(q: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q)


@pytest.mark.host("its attention is the CPU's, bit for bit")
def test_attention_of_tensors_without_data() -> None:
    """The choice of a kernel must use metadata only: compile, vmap and grad have nothing else."""
    value = torch.linspace(-1, 1, 2 * 3 * 4 * 8).view(2, 3, 4, 8)
    ours = value.to("chip")
    assert torch.equal(torch.compile(attention)(ours).cpu(), attention(value))
    batched = torch.func.vmap(attention)(ours.unsqueeze(0)).cpu()
    assert torch.equal(batched, torch.func.vmap(attention)(value.unsqueeze(0)))
    gradient = torch.func.grad(lambda q: attention(q).sum())
    assert torch.equal(gradient(ours).cpu(), gradient(value))


def test_every_thread_waits_for_a_queued_copy() -> None:
    count = 16 << 20
    source = torch.ones(count).pin_memory()
    target = torch.zeros(count, device="chip")
    tail = target[-1000:]
    go, results = threading.Event(), []

    def read() -> None:
        go.wait()
        results.append(int((tail == 1).sum()))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    target.copy_(source, non_blocking=True)
    go.set()
    for thread in threads:
        thread.join()
    assert results == [1000] * 4


def test_a_storage_resized_on_another_stream_keeps_its_contents() -> None:
    count = 4 << 20
    value = torch.ones(count, device="chip")
    stream = torch.chip.Stream()
    stream.wait_stream(torch.chip.current_stream())
    with torch.chip.stream(stream):
        value.untyped_storage().resize_(8 * count)
    other = torch.full((count,), 7.0, device="chip")
    torch.chip.synchronize()
    assert value.eq(1).all() and other.eq(7).all()


def test_data_of_another_kind_is_refused() -> None:
    value = torch.ones(3, device="chip")
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        value.data = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def test_a_lazy_clone_is_a_copy() -> None:
    first = torch.ones(2, device="chip")
    second = torch._lazy_clone(first)
    second.add_(1)
    assert first.tolist() == [1.0, 1.0] and second.tolist() == [2.0, 2.0]


def test_a_generator_can_be_copied() -> None:
    generator = torch.Generator("chip").manual_seed(5)
    twin = copy.deepcopy(generator)
    assert torch.equal(
        torch.rand(4, device="chip", generator=generator).cpu(),
        torch.rand(4, device="chip", generator=twin).cpu(),
    )


def test_a_padded_encoder_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    value, mask = torch.randn(1, 3, 16), torch.tensor([[False, False, True]])
    with torch.no_grad():
        expected = encoder(value, src_key_padding_mask=mask)
        ours = encoder.to("chip")(value.to("chip"), src_key_padding_mask=mask.to("chip")).cpu()
    # The CPU uses nested tensors, which round in another order and have zeros at the padding.
    torch.testing.assert_close(ours[:, :2], expected[:, :2], rtol=1e-5, atol=1e-6)


def test_a_device_index_out_of_range_is_refused() -> None:
    for index in (2, 99, 256):
        with pytest.raises((RuntimeError, ValueError)):
            torch.chip.set_device(index)


def test_a_generator_may_be_another_chips_but_not_the_cpus() -> None:
    numbers = [
        torch.rand(4, device="chip:1", generator=torch.Generator(device).manual_seed(3))
        for device in ("chip:0", "chip:1")
    ]
    assert numbers[0].device.index == 1 and torch.equal(*numbers)
    for draw in (torch.rand, torch.randperm):
        with pytest.raises(RuntimeError, match="Expected a 'chip' device type for generator but found 'cpu'"):
            draw(4, device="chip:1", generator=torch.Generator())


def test_fresh_memory_under_deterministic_algorithms() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="chip").isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)
