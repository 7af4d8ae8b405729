"""The graph backend: torch.compile on a chip with kernels and no compiler."""

from __future__ import annotations

from tests.helpers.children import output

TRAIN = """
    import torch
    from torch import nn

    def results(model, forward, inputs, target):
        loss = nn.functional.cross_entropy(forward(inputs), target)
        loss.backward()
        found = [loss.detach(), *(parameter.grad for parameter in model.parameters())]
        model.zero_grad()
        return [each.cpu() for each in found]

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to("chip")
    batch = torch.randn(5, 8, device="chip"), torch.randint(0, 4, (5,), device="chip")
    expected = results(model, model, *batch)
"""


def on_numpy(code: str, **environment: str) -> list[str]:
    return output(code, ISTHMUS_DRIVER="numpy", **environment).splitlines()


def test_an_unfused_training_step_is_equal_to_the_bit():
    code = (
        TRAIN
        + """
    unfused = torch.compile(model, backend="isthmus", options={"fuse": False}, fullgraph=True)
    for _ in range(2):
        assert all(map(torch.equal, results(model, unfused, *batch), expected))
    from torch._dynamo.utils import counters
    assert not any(name.startswith("fxgraph_cache") for name in counters["inductor"])
    """
    )
    on_numpy(code)
