"""Overloads that are called without a stack do what a call from a stack does: results, errors, counters."""

import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from isthmus import _C

pytestmark = pytest.mark.host("its delegate")


@pytest.fixture(autouse=True)
def fresh_counts() -> Iterator[None]:
    torch.chip.reset_dispatch_stats()
    yield


def calls_of(name: str) -> dict[str, object]:
    row: dict[str, object] = torch.chip.dispatch_stats()["operators"].get(name, {})
    return row


def kernel_of(name: str) -> str:
    """The line of the dispatcher about the chip's own kernel."""
    lines = torch._C._dispatch_dump(name).splitlines()
    return next((line for line in lines if line.startswith("PrivateUse1:")), "")


def schema_of(name: str) -> str:
    base, _, overload = name.partition(".")
    return str(torch._C._get_schema(base, overload))


def boxed(overload: torch._ops.OpOverload, *arguments: object, **named: object) -> object:
    """Call the overload's kernel for the chip from a stack: autograd's kernels would call it without."""
    with torch._C._AutoDispatchBelowAutograd():
        return overload(*arguments, **named)


def outcome(call: Callable[..., object], *arguments: object) -> object:
    """The call's result on the CPU with its strides, or its error."""
    try:
        result = call(*arguments)
    except (RuntimeError, NotImplementedError) as error:
        return type(error), str(error)
    assert isinstance(result, torch.Tensor)
    return result.cpu().tolist(), result.dtype, result.device, result.stride(), result.requires_grad


def test_the_listed_overloads_and_no_others_are_registered_without_a_stack() -> None:
    listed = set(_C.unboxed_overloads())
    assert len(listed) >= 100
    delegated = {name for name, (route, _) in _C.routes().items() if route == "delegate"}
    assert listed <= delegated
    fixed = {name for name in delegated if "SymInt" not in schema_of(name)}  # others are not told apart
    shown = {name for name in fixed if "the routes of Isthmus" in kernel_of(name)}
    assert {name for name in shown if " unboxed " in kernel_of(name)} == listed & fixed


def test_both_ways_of_a_call_are_counted_once() -> None:
    value = torch.ones(3, device="chip")
    torch.exp(value)
    boxed(torch.ops.aten.exp.default, value)
    assert calls_of("aten::exp") == {"route": "delegate", "calls": 2}


@pytest.mark.parametrize("route", ["fallback", "delegate"])
def test_a_forced_route_is_taken(route: str) -> None:
    value = torch.arange(3.0, device="chip")
    _C.force_route("aten::exp", route)
    try:
        result = torch.exp(value)
        assert calls_of("aten::exp")["route"] == route
        _C.force_route("aten::exp", "")
        assert torch.equal(torch.exp(value), result)
    finally:
        _C.force_route("aten::exp", "")
    assert torch.chip.dispatch_stats()["calls"]["delegate"] >= 1


def arguments_of(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    value = torch.arange(4.0, device="chip")
    pairs = {
        "plain": lambda: (value, value + 1),
        "the same twice": lambda: (value, value),
        "two views": lambda: (value[:2], value[1:3]),
        "transposed": lambda: (value.view(2, 2).t(), value.view(2, 2)),
        "promoted": lambda: (value, torch.arange(4, device="chip")),
        "a lazy conjugate": lambda: (torch.complex(value, value).conj(), value),
        "a lazy negative": lambda: (torch.complex(value, value).conj().imag, value),
        "a lazy copy": lambda: (torch._lazy_clone(value), value),
        "zeros without bytes": lambda: (torch._efficientzerotensor(4, device="chip"), value),
        "a CPU scalar": lambda: (value, torch.tensor(2.0)),
        "a CPU tensor": lambda: (value, torch.ones(4)),
        "two CPU tensors": lambda: (value, torch.ones(1)),
        "shapes that do not fit": lambda: (value, torch.ones(3, device="chip")),
        "no elements": lambda: (value[:0], value[:0]),
    }
    return pairs[kind]()


KINDS = [
    *("plain", "the same twice", "two views", "transposed", "promoted", "a lazy conjugate"),
    *("a lazy negative", "a lazy copy", "zeros without bytes", "a CPU scalar", "a CPU tensor"),
    *("two CPU tensors", "shapes that do not fit", "no elements"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_the_same_from_a_stack_and_without(kind: str) -> None:
    first, second = arguments_of(kind)
    expected = outcome(boxed, torch.ops.aten.mul.Tensor, first, second)
    assert outcome(torch.mul, first, second) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_in_place_is_the_same_from_a_stack_and_without(kind: str) -> None:
    results: list[object] = []
    for way in (lambda a, b: boxed(torch.ops.aten.mul_.Tensor, a, b), lambda a, b: a.mul_(b)):
        first, second = arguments_of(kind)
        results.append(
            [outcome(way, first, second), outcome(torch.clone, first), outcome(torch.clone, second)]
        )
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [0, 2, 4, 6])
def test_out_is_resized_as_from_a_stack(size: int) -> None:
    value = torch.arange(4.0, device="chip")
    results: list[object] = []
    for call in (
        lambda out: boxed(torch.ops.aten.mul.out, value, value, out=out),
        lambda out: torch.mul(value, value, out=out),
    ):
        out = torch.empty(size, device="chip")
        assert call(out) is out
        assert out.untyped_storage().device.type == "chip"
        results.append(outcome(torch.clone, out))
    assert results[0] == results[1]


def test_a_lazy_copy_is_made_before_it_is_written() -> None:
    value = torch.ones(4, device="chip")
    copy = torch._lazy_clone(value)
    copy.mul_(3)
    assert value.tolist() == [1.0] * 4 and copy.tolist() == [3.0] * 4


@pytest.mark.parametrize("tracks", [False, True])
def test_running_statistics_are_written_as_from_a_stack(tracks: bool) -> None:
    """The schema of native_batch_norm does not declare them as written; a lazy copy is made before."""
    value, results = torch.arange(12.0, device="chip").view(4, 3), []
    operator = torch.ops.aten.native_batch_norm.default
    for way in (boxed, lambda call, *arguments: call(*arguments)):
        original = torch.ones(3, device="chip")
        mean, variance = torch._lazy_clone(original), torch.ones(3, device="chip")
        tracked = (mean, variance) if tracks else (None, None)
        result = way(operator, value, None, None, *tracked, True, 0.5, 1e-5)
        assert original.tolist() == [1.0] * 3 and (mean.tolist() != [1.0] * 3) == tracks
        results.append([*(each.tolist() for each in result), mean.tolist(), variance.tolist()])
    assert results[0] == results[1]


def test_gradients_are_recorded() -> None:
    value = torch.arange(3.0, device="chip", requires_grad=True)
    (torch.sigmoid(value) * value).sum().backward()
    host = torch.arange(3.0, requires_grad=True)
    (torch.sigmoid(host) * host).sum().backward()
    assert value.grad is not None and host.grad is not None
    assert torch.equal(value.grad.cpu(), host.grad)


def test_inference_mode_keeps_its_tensors() -> None:
    with torch.inference_mode():
        value = torch.ones(3, device="chip")
        assert value.mul_(2).is_inference() and (value + 1).is_inference()
    assert not (torch.ones(3, device="chip") + 1).is_inference()


def test_a_list_of_tensors_and_several_results() -> None:
    value = torch.arange(6.0, device="chip")
    joined = torch.cat([value[:2], torch.empty(0, device="chip"), value[4:]])
    assert joined.tolist() == [0.0, 1.0, 4.0, 5.0]
    largest, where = torch.topk(value, 2)
    assert largest.tolist() == [5.0, 4.0] and where.tolist() == [5, 4]
    assert where.device.type == "chip"


def test_a_failed_kernel_leaves_nothing_behind() -> None:
    first, second = torch.ones(2, 3, device="chip"), torch.ones(2, 3, device="chip")
    torch.mm(first, second.t())
    gc.collect()
    before = torch.chip.memory_allocated(), _C.host_view_blocks()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(first, second)
    assert (torch.chip.memory_allocated(), _C.host_view_blocks()) == before
    assert torch.mm(first, second.t()).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_a_kernel_of_the_user_may_keep_its_arguments() -> None:
    kept: list[torch.Tensor] = []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept.append(value)
        return value.clone()

    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("floor", keep, "CPU")
        value = torch.full((4,), 1.5, device="chip")
        assert torch.floor(value).tolist() == [1.5] * 4
        value.add_(1)
        other = torch.zeros(4, device="chip")
        assert torch.floor(other).tolist() == [0.0] * 4
    finally:
        library._destroy()
    del value
    fresh = torch.zeros(4, device="chip")  # might take the memory, if nothing kept it
    torch.chip.synchronize()
    assert kept[0].tolist() == [2.5] * 4 and kept[0].device.type == "cpu"
    assert kept[0] is not kept[1] and fresh.tolist() == [0.0] * 4


def test_threads_call_at_once() -> None:
    import threading

    wrong: list[object] = []

    def work(seed: int) -> None:
        value = torch.full((7,), float(seed), device="chip")
        for _ in range(300):
            if not torch.equal(
                value * value + value, torch.full((7,), float(seed * seed + seed), device="chip")
            ):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
