"""Indices that CPU's kernels do not check: refused on the delegate route, before a kernel writes out of bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.host("other chips check indices in their kernels, which fail later")

aten = torch.ops.aten
LONG = torch.int64


def ones(*sizes: int) -> torch.Tensor:
    return torch.ones(sizes, device="chip")


def ints(*values: int, dtype: torch.dtype = LONG) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype).to("chip")


def window(bad: int, *sizes: int) -> torch.Tensor:
    indices = torch.zeros(sizes, dtype=LONG)
    indices.view(-1)[-1] = bad
    return indices.to("chip")


def pool2d(bad: int, **form: torch.memory_format) -> torch.Tensor:
    grad, x, indices = (
        each.contiguous(**form) for each in (ones(1, 2, 2, 2), ones(1, 2, 4, 4), window(bad, 1, 2, 2, 2))
    )
    return aten.max_pool2d_with_indices_backward(grad, x, 2, 2, 0, 1, False, indices)


def bag(bad: int, of: int = 0) -> torch.Tensor:
    none = torch.empty(0, dtype=LONG, device="chip")
    return aten._embedding_bag_dense_backward(
        ones(2, 8), ints(0, bad), ints(0, of), ints(2, 2), none, 4, False, 0, None
    )


def ctc(bad: int, tensors: bool = False) -> torch.Tensor:
    lengths = (ints(5), ints(2)) if tensors else ([5], [2])
    return aten._ctc_loss(ones(5, 1, 3), ints(1, bad).view(1, 2), *lengths)[0]


CALLS: dict[str, Callable[[int], torch.Tensor]] = {
    "embedding": lambda bad: aten.embedding_dense_backward(ones(2, 8), ints(0, bad), 4, 0, True),
    "embedding, int32": lambda bad: aten.embedding_dense_backward(
        ones(2, 8), ints(0, bad, dtype=torch.int32), 4, -1, True
    ),
    "bag": bag,
    "bag of an index": lambda bad: bag(0, bad),
    "weights of a bag": lambda bad: aten._embedding_bag_per_sample_weights_backward(
        ones(1, 8), ones(4, 8), ints(0, bad), ints(0), ints(0, 0), 0
    ),
    "max_pool2d": pool2d,
    "max_pool2d, channels_last": lambda bad: pool2d(bad, memory_format=torch.channels_last),
    "max_pool2d, out=": lambda bad: aten.max_pool2d_with_indices_backward.grad_input(
        ones(2, 2, 2), ones(2, 4, 4), 2, 2, 0, 1, False, window(bad, 2, 2, 2), grad_input=ones(2, 4, 4)
    ),
    "max_pool3d": lambda bad: aten.max_pool3d_with_indices_backward(
        ones(1, 2, 2, 2, 2), ones(1, 2, 4, 4, 4), 2, 2, 0, 1, False, window(bad, 1, 2, 2, 2, 2)
    ),
    "adaptive_max_pool2d": lambda bad: aten.adaptive_max_pool2d_backward(
        ones(1, 2, 2, 2), ones(1, 2, 4, 4), window(bad, 1, 2, 2, 2)
    ),
    "adaptive_max_pool3d": lambda bad: aten.adaptive_max_pool3d_backward(
        ones(1, 2, 2, 2, 2), ones(1, 2, 4, 4, 4), window(bad, 1, 2, 2, 2, 2)
    ),
    "nll_loss": lambda bad: aten.nll_loss_backward(
        ones(2), ones(2, 8), ints(0, bad), None, 0, -100, torch.tensor(1.0, device="chip")
    ),
    "nll_loss2d": lambda bad: aten.nll_loss2d_backward(
        ones(1, 4, 4), ones(1, 2, 4, 4), window(bad, 1, 4, 4), None, 0, -100, torch.tensor(1.0, device="chip")
    ),
    "ctc_loss": ctc,
    "ctc_loss, lengths in tensors": lambda bad: ctc(bad, True),
    "ctc_loss's gradient": lambda bad: aten._ctc_loss_backward(
        ones(1), ones(5, 1, 3), ints(1, bad), [5], [2], ones(1), ones(1, 5, 5), 0
    ),
    "segments by offsets": lambda bad: torch.segment_reduce(ones(4, 3), "sum", offsets=ints(0, bad)),
    "segments by lengths": lambda bad: torch.segment_reduce(
        ones(4, 3), "sum", lengths=ints(0, bad), unsafe=True
    ),
    "segments' gradient": lambda bad: aten._segment_reduce_backward(
        ones(2, 3), ones(2, 3), ones(4, 3), "sum", lengths=ints(4, bad)
    ),
}


@pytest.mark.parametrize("bad", [-1, 100, 2 * 10**9, -(2 * 10**9)])
@pytest.mark.parametrize("name", CALLS)
def test_indices_out_of_range_are_refused(name, bad):
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        CALLS[name](bad)
    CALLS[name](0)


def test_a_replay_checks_the_indices_of_its_time():
    index, graph = window(0, 1, 2, 2, 2), torch.chip.Graph()
    with torch.chip.graph(graph):
        found = aten.adaptive_max_pool2d_backward(ones(1, 2, 2, 2), ones(1, 2, 4, 4), index)
    index.fill_(3)
    graph.replay()
    assert found.sum((0, 2)).tolist() == [[0, 0, 0, 4]] * 2
    index.fill_(16)
    with pytest.raises(IndexError, match="index 16 is out of bounds for a size of 16"):
        graph.replay()


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [-1, 2])
def test_gradients_of_embeddings_with_padding(padding, scale):
    grad, indices = torch.randn(4, 8), torch.tensor([0, 2, 2, 3])
    expected = aten.embedding_dense_backward(grad, indices, 4, padding, scale)
    assert torch.equal(
        aten.embedding_dense_backward(grad.to("chip"), indices.to("chip"), 4, padding, scale).cpu(), expected
    )
    ignored = aten.embedding_dense_backward(
        grad.to("chip"), ints(0, -1, 2, 3), 4, -1, False
    )  # read as padding
    assert torch.equal(
        ignored.cpu(), aten.embedding_dense_backward(grad, ints(0, -1, 2, 3).cpu(), 4, -1, False)
    )


def gradients(
    function: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str
) -> list[torch.Tensor]:
    leaves = [each.to(device) for each in inputs]
    leaves = [each.requires_grad_() if each.is_floating_point() else each for each in leaves]
    function(*leaves).sum().backward()
    return [each.grad.cpu() for each in leaves if each.is_floating_point()]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (
            lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (5, 4), (2, 1), reduction="none"),
            (torch.randn(5, 2, 3), torch.tensor([[1, 2], [1, -7]])),  # beyond its length
        ),
        (
            lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (5, 4), (2, 1), reduction="none"),
            (torch.randn(5, 2, 3), torch.tensor([1, 2, 1])),
        ),
        (
            lambda x, t: F.nll_loss(x, t, reduction="none", ignore_index=-1),
            (torch.randn(3, 4), torch.tensor([0, -1, 3])),
        ),
        (
            lambda x, t: F.nll_loss(x, t, reduction="none", ignore_index=9),
            (torch.randn(2, 4, 3, 1), torch.tensor([[[0], [9], [3]]] * 2)),
        ),
        *(
            (
                lambda w, i, o, mode=mode, last=last: F.embedding_bag(
                    i, w, o, mode=mode, include_last_offset=last
                ),
                (torch.randn(5, 3), torch.tensor([0, 4, 4, 1]), torch.tensor([0, 0, 3, 4])),
            )
            for mode in ("sum", "mean", "max")
            for last in (False, True)
        ),
        (
            lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s, padding_idx=1),
            (torch.randn(5, 3), torch.tensor([0, 4, 4, 1]), torch.tensor([0, 2]), torch.randn(4)),
        ),
        (
            lambda x, o: torch.segment_reduce(x, "mean", offsets=o),
            (torch.randn(4, 2), torch.tensor([0, 1, 4])),
        ),
        (
            lambda x, n: torch.segment_reduce(x, "max", lengths=n, axis=1),
            (torch.randn(2, 4), torch.tensor([[1, 3], [2, 2]])),
        ),
    ],
)
def test_indices_in_range_give_the_gradients_of_the_cpu(function, inputs):
    expected = gradients(function, *(each.clone() for each in inputs), device="cpu")
    assert all(map(torch.equal, gradients(function, *inputs, device="chip"), expected))
