"""The stream-order checker: it reports all unordered accesses, and no others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from isthmus_diagnostics.debug import streams
from isthmus_diagnostics.debug.streams import StreamOrderError, StreamOrderWarning
from tests.helpers import children


@pytest.fixture
def check() -> Iterator[None]:
    torch.chip.synchronize(0)
    torch.chip.set_stream_check(True)
    yield
    torch.chip.set_stream_check(False)
    torch.chip.set_stream(torch.chip.default_stream(0))


@pytest.fixture
def side() -> torch.chip.Stream:
    return torch.chip.Stream(device=0)


def refused(words: str) -> pytest.RaisesExc[StreamOrderError]:
    return pytest.raises(StreamOrderError, match=words)


def test_read_of_what_another_stream_writes(check, side) -> None:
    x = torch.ones(1000, device="chip")
    with (
        torch.chip.stream(side),
        refused("aten::mul.Tensor at .* reads self .* aten::ones at .* writing it on"),
    ):
        x * 2


def test_both_lines_are_named(check, side) -> None:
    x = torch.ones(8, device="chip")
    with torch.chip.stream(side), pytest.raises(StreamOrderError) as caught:
        x.neg()
    here = test_both_lines_are_named.__code__.co_firstlineno
    assert f"aten::neg at test_stream_check.py:{here + 3} reads" in str(caught.value)
    assert f"aten::ones at test_stream_check.py:{here + 1} may" in str(caught.value)
    assert f"{torch.chip.default_stream(0).device}" in str(caught.value)


def test_write_of_what_another_stream_reads_or_writes(check, side) -> None:
    x = torch.ones(8, device="chip")
    side.wait_stream(torch.chip.current_stream())
    with torch.chip.stream(side):
        x.neg()
    with refused("aten::mul_.Tensor .* writes self .* may still be reading"):
        x.mul_(2)
    torch.chip.synchronize()
    with torch.chip.stream(side):
        x.mul_(2)
    with refused("may still be writing"):
        x.zero_()


def test_it_is_refused_before_it_runs(check, side) -> None:
    x = torch.ones(8, device="chip")
    with torch.chip.stream(side), refused("writes self"):
        x.zero_()
    assert x.tolist() == [1.0] * 8


@pytest.mark.parametrize(
    "order",
    [
        lambda first, second: second.wait_stream(first),
        lambda first, second: second.wait_event(first.record_event()),
        lambda first, second: torch.chip.synchronize(),
        lambda first, second: torch.accelerator.synchronize(),
        lambda first, second: first.synchronize(),
        lambda first, second: first.record_event().synchronize(),
        lambda first, second: torch.Event("chip").record(first) or torch.chip.synchronize(),
        lambda first, second: wait_until_true(first.record_event().query),
        lambda first, second: wait_until_true(first.query),
    ],
    ids="stream event device accelerator host event_host generic query query_stream".split(),
)
def test_every_way_to_order(check, side, order) -> None:
    x = torch.ones(8, device="chip")
    order(torch.chip.current_stream(), side)
    with torch.chip.stream(side):
        y = x + 1
    order(side, torch.chip.current_stream())
    assert y.tolist() == [2.0] * 8
    x.zero_()


def wait_until_true(ask) -> None:
    while not ask():
        pass


def test_order_is_passed_on(check, side) -> None:
    third = torch.chip.Stream(device=0)
    x = torch.ones(8, device="chip")
    side.wait_stream(torch.chip.current_stream())
    third.wait_stream(side)
    with torch.chip.stream(third):
        x.neg()


def test_an_event_covers_earlier_work_only(check, side) -> None:
    x = torch.ones(8, device="chip")
    event = torch.chip.current_stream().record_event()
    x.add_(1)
    side.wait_event(event)
    with torch.chip.stream(side), refused("aten::add_.Tensor at .* writing"):
        x.neg()


def test_two_reads_need_no_order(check, side) -> None:
    x = torch.ones(8, device="chip")
    torch.chip.synchronize()
    with torch.chip.stream(side):
        x.neg()
    x.neg()


def test_views_without_a_byte_in_common(check, side) -> None:
    x = torch.ones(8, 8, device="chip")
    side.wait_stream(torch.chip.current_stream())
    with torch.chip.stream(side):
        x[:4].zero_()
        x[4:, :4].zero_()
    x[4:, 4:].zero_()
    with refused("writes"):
        x[3:5, :5].zero_()


@pytest.mark.parametrize("resized", [False, True], ids=["freed", "given up by resizing its storage"])
def test_memory_freed_under_a_stream(check, side, resized: bool) -> None:
    def use(recorded: bool) -> None:
        x = torch.ones(3_000_000, device="chip")
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            kept.append(x.neg())
        if recorded:
            x.record_stream(side)
        if resized:
            x.untyped_storage().resize_(0)
            kept.append(x)  # alive, as a sharded parameter is

    kept: list[torch.Tensor] = []
    use(recorded=True)
    torch.zeros(3_000_000, device="chip")
    torch.chip.synchronize()
    use(recorded=False)
    with refused("through a tensor that has been freed. Call record_stream"):
        torch.zeros(3_000_000, device="chip")


def test_memory_freed_after_the_stream_was_waited_for(check, side) -> None:
    for _ in range(3):
        x = torch.ones(3_000_000, device="chip")
        side.wait_stream(torch.chip.current_stream())
        with torch.chip.stream(side):
            y = x.neg()
        torch.chip.current_stream().wait_stream(side)
        del x
        torch.zeros(3_000_000, device="chip").add_(y)


def test_a_storage_that_grows_again(check, side) -> None:
    x = torch.ones(3_000_000, device="chip")
    x.untyped_storage().resize_(0)
    other = torch.zeros(3_000_000, device="chip")
    x.untyped_storage().resize_(12_000_000)
    x.fill_(2)
    side.wait_stream(torch.chip.current_stream())
    with torch.chip.stream(side):
        y = x + other
    torch.chip.current_stream().wait_stream(side)
    assert y[0].item() == 2
    with torch.chip.stream(side):
        y = x + other
    x.untyped_storage().resize_(0)
    with refused("through a tensor that has been freed. Call record_stream"):
        torch.zeros(3_000_000, device="chip")
    x.untyped_storage().resize_(12_000_000)
    torch.chip.synchronize()
    x.fill_(3)
    with torch.chip.stream(side), refused("aten::neg .* aten::fill_"):
        x.neg()


def test_copy_to_the_host_that_is_not_done(check) -> None:
    x = torch.arange(1 << 16, device="chip")
    there = x.to("cpu", non_blocking=True)
    with refused("on the host while aten::_to_copy .* Nothing orders them: synchronize the default stream"):
        there.sum()
    torch.chip.current_stream().synchronize()
    assert there.sum() == x.sum().item()


def test_pinned_memory_that_is_being_copied(check) -> None:
    source = torch.ones(1 << 16).pin_memory()
    there = source.to("chip", non_blocking=True)
    with refused("aten::zero_ .* writes self .* on the host"):
        source.zero_()
    assert there.sum().item() == 1 << 16  # waits for the result
    source.zero_()


def test_copies_that_wait(check) -> None:
    x = torch.ones(64).to("chip")
    with torch.chip.stream(torch.chip.Stream(device=0)):
        assert x.cpu().sum() == 64
        assert x.sum().item() == 64


@pytest.mark.parametrize(
    "wait",
    [repr, lambda x: x.cpu(), lambda x: x[0].item(), lambda x: torch.ones(1).to("chip")],
    ids="print cpu item upload".split(),
)
def test_host_waits_that_no_mode_sees(check, side, wait) -> None:
    x = torch.ones(100, device="chip")
    with _disable_current_modes():  # printing does the same
        wait(x)
    with torch.chip.stream(side):
        x.mul_(2)


def test_copies_that_do_not_wait_and_that_no_mode_sees(check, side) -> None:
    x = torch.ones(100, device="chip")
    with _disable_current_modes():
        x.to("cpu", non_blocking=True)
        torch.ones(1).to("chip", non_blocking=True)
    with torch.chip.stream(side), refused("aten::mul_"):
        x.mul_(2)


def test_tensors_without_memory_are_not_watched(check, side) -> None:
    real = torch.ones(8, device="chip")
    with FakeTensorMode() as mode:
        fake = torch.ones(8, device="chip") * 2
        with torch.chip.stream(side):
            fake.mul_(mode.from_tensor(real))
    with torch.chip.stream(side):
        assert (fake + 1).shape == (8,)  # its mode is off
    graph = make_fx(lambda x: x.neg() + 1, tracing_mode="fake")(real)
    with torch.chip.stream(side), refused("aten::neg"):
        graph(real)


def test_a_tensor_made_of_others(check, side) -> None:
    x = TwoTensor(torch.ones(8, device="chip"), torch.ones(8, device="chip"))
    assert (x * 2).a.tolist() == [2.0] * 8
    x.mul_(2)
    with torch.chip.stream(side), refused("aten::neg .* aten::mul_"):
        x.neg()


def test_copies_between_devices(check) -> None:
    x = torch.ones(64, device="chip:0")
    y = x.to("chip:1")
    x.zero_()
    with torch.chip.stream(torch.chip.Stream(device=1)), refused("chip:1"):
        y.neg()
    assert y.sum().item() == 64


def training_step(model, optimizer, source, side) -> float:
    with torch.chip.stream(side):
        x = source.to("chip", non_blocking=True)
    torch.chip.current_stream().wait_stream(side)
    x.record_stream(torch.chip.current_stream())
    loss = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def test_a_training_step_is_in_order(check, side) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(), torch.nn.Linear(32, 4)).to(
        "chip"
    )
    optimizer = torch.optim.AdamW(model.parameters())
    source = torch.randn(8, 16).pin_memory()
    losses = [training_step(model, optimizer, source, side) for _ in range(4)]
    assert len(set(losses)) == 4
    model[0].bias.data.zero_()
    with torch.chip.stream(side), refused("aten::addmm .* aten::zero_"):
        model(source.to("chip", non_blocking=True))


def test_backward_names_the_line_of_the_forward_call(check, side) -> None:
    x = torch.ones(8, device="chip", requires_grad=True)
    torch.chip.synchronize()
    y = (x * 3).sum()
    with torch.chip.stream(side):
        y.backward()  # the engine orders the streams itself
    torch.chip.synchronize()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 8


def test_warning_once_for_each_pair(side) -> None:
    torch.chip.set_stream_check("warn")
    try:
        x = torch.ones(8, device="chip")
        with warnings.catch_warnings(record=True) as caught, torch.chip.stream(side):
            warnings.simplefilter("always")
            for _ in range(3):
                x.neg()
        assert [w.category for w in caught] == [StreamOrderWarning]
        line = test_warning_once_for_each_pair.__code__.co_firstlineno + 7
        assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    finally:
        torch.chip.set_stream_check(False)


@pytest.mark.parametrize("wrong", ["foo", None, 3, ""])
def test_an_unknown_setting(wrong) -> None:
    with pytest.raises(ValueError, match=f"expected True, 'warn' or False, got {wrong!r}"):
        torch.chip.set_stream_check(wrong)
    assert not streams.is_checking()


def test_the_dispatcher_is_unchanged_when_off(side) -> None:
    torch.chip.set_stream_check(True)
    torch.chip.set_stream_check(False)
    assert not streams.is_checking() and _get_current_dispatch_mode() is None
    x = torch.ones(8, device="chip")
    with torch.chip.stream(side):
        x.neg()


def test_from_the_environment() -> None:
    program = """
        import torch
        x = torch.ones(8, device="chip")
        with torch.chip.stream(torch.chip.Stream()):
            x.neg()
    """
    result = children.run(program, ISTHMUS_STREAM_CHECK="1")
    assert result.returncode != 0 and "StreamOrderError: aten::neg at <string>:5" in result.stderr
    assert result.stderr.count("streams.py") == 1, result.stderr  # not the checker's inner frames
