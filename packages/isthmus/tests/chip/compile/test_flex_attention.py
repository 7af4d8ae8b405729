"""FlexAttention on the chip, eager and compiled, and higher-order operators under autocast."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

LENGTH, WINDOW = 160, 100
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def _window(b, h, i, j):
    return (i >= j) & (i - j < WINDOW)


def _inputs(dtype=torch.float64, device="chip") -> list[torch.Tensor]:
    """Query, key and value with grouped heads, and a slope for each head."""
    shapes = (2, 4, LENGTH, 16), (2, 2, LENGTH, 16), (2, 2, LENGTH, 16), (4,)
    return [torch.randn(shape, dtype=dtype).to(device) for shape in shapes]


def _flex(attend, q, k, v, slope, lse=True):
    """Output and logsumexp of attention in a window, with a bias of slope times distance."""
    mask = create_block_mask(_window, 2, 4, LENGTH, LENGTH, device=q.device)
    score = lambda s, b, h, i, j: s + slope[h] * (i - j)  # noqa: E731
    out, auxiliary = attend(
        q, k, v, score_mod=score, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=lse)
    )
    return (out, auxiliary.lse) if lse else (out,)


def _dense(q, k, v, slope):
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    i, j = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    scores = q @ k.transpose(-1, -2) / 4 + slope[:, None, None] * (i - j)
    scores = scores.masked_fill(~_window(0, 0, i, j), -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def _with_gradients(function, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    results = function(*inputs)
    sum(x.square().sum() for x in results).backward()
    return [x.detach().cpu() for x in (*results, *(each.grad for each in inputs))]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_forward_and_backward(compiled):
    inputs = _inputs()
    attend = torch.compile(flex_attention) if compiled else flex_attention
    with torch.no_grad():
        inference = [x.cpu() for x in _flex(attend, *inputs)]
    found = _with_gradients(lambda *each: _flex(attend, *each), inputs)
    wanted = _with_gradients(_dense, [x.cpu() for x in inputs])
    torch.testing.assert_close(inference, wanted[:2])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_inference_is_the_cpus(compiled):
    attend = torch.compile(flex_attention) if compiled else flex_attention
    inputs = _inputs(torch.float32, "cpu")
    (wanted,) = _flex(attend, *inputs, lse=False)
    (found,) = _flex(attend, *(x.to("chip") for x in inputs), lse=False)
    assert torch.equal(found.cpu(), wanted)


def test_autocast_as_on_the_cpu():
    inputs = _inputs(torch.float32, "cpu")
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("chip", torch.bfloat16):
        (wanted,) = _flex(flex_attention, *inputs, lse=False)
        (found,) = _flex(flex_attention, *(x.to("chip") for x in inputs), lse=False)
        branch = torch.cond(found.sum() > torch.inf, torch.sin, torch.cos, (found,))
    assert found.dtype is torch.bfloat16
    assert torch.equal(found.cpu(), wanted)
    assert torch.equal(branch.cpu(), wanted.cos())


def test_other_devices_are_still_refused():
    meta = [x.to("meta") for x in _inputs()[:3]]
    with pytest.raises(ValueError, match="Found input tensors on meta device"):
        flex_attention(*meta, enable_gqa=True)


@torch.no_grad()
def test_it_compiles_in_one_graph():
    q, k, v = (torch.randn(1, 2, 32, 8).to("chip") for _ in range(3))
    found = torch.compile(flex_attention, fullgraph=True, backend="aot_eager")(q, k, v)
    torch.testing.assert_close(found, flex_attention(q, k, v))
