"""Sparse COO tensors on the chip give the results of sparse CPU tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.helpers import children

CASES: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "round trip": lambda s, device: s.cpu().to(device),
    "coalesce": lambda s, device: s.coalesce(),
    "values": lambda s, device: s.coalesce().values(),
    "indices": lambda s, device: s.coalesce().indices(),
    "dtype": lambda s, device: s.to(torch.float64),
    "clone": lambda s, device: s.clone().zero_() + torch.zeros_like(s),
    "transpose": lambda s, device: s.t().permute(1, 0).T,
    "shape": lambda s, device: torch.stack([s, s]).unsqueeze(0),
    "scale": lambda s, device: (2 * s / 3).mul_(torch.tensor(2.0, device=device)).div_(4),
    "unary": lambda s, device: (-s).abs().sqrt().pow(2),
    "add": lambda s, device: torch.add(s, s, alpha=3) - s,
    "add to dense": lambda s, device: torch.ones(2, 3, device=device).add_(s, alpha=-0.5),
    "add to a view": lambda s, device: torch.ones(3, 2, device=device).t().add_(s),
    "subtract": lambda s, device: torch.ones(2, 3, device=device) - s,
    "multiply": lambda s, device: s * torch.full((2, 3), 3.0, device=device) * s,
    "product": lambda s, device: s @ torch.eye(3, device=device),
    "product from the left": lambda s, device: torch.eye(2, device=device) @ s,
    "product with a vector": lambda s, device: s @ torch.ones(3, device=device),
    "product of two": lambda s, device: torch.sparse.mm(s, s.t()),
    "addmm": lambda s, device: torch.sparse.addmm(
        torch.ones(2, 3, device=device), s, torch.eye(3, device=device), beta=0.5, alpha=2
    ),
    "sums": lambda s, device: torch.sparse.sum(s, dim=0) + s.sum(0) * s.norm(),
    "mask": lambda s, device: torch.ones(2, 3, device=device).sparse_mask(s.coalesce()),
    "from dense": lambda s, device: torch.ones(3, 2, 4, device=device).tril().to_sparse(2),
    "made on the device": lambda s, device: torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device=device),
    "empty": lambda s, device: torch.sparse_coo_tensor(size=(2, 3), device=device).coalesce(),
}


def _sparse(device: str) -> torch.Tensor:
    made = torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 3), check_invariants=True)
    return made.to(device)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_cpu(case: str) -> None:
    expected, found = (CASES[case](_sparse(device), device) for device in ("cpu", "chip"))
    assert found.device.type == "chip" and found.layout == expected.layout and found.dtype == expected.dtype
    if found.is_sparse:
        expected, found = expected.to_dense(), found.to_dense()
    assert torch.equal(found.cpu(), expected)


def test_gradients_of_a_product() -> None:
    found = []
    for device in ("cpu", "chip"):
        sparse, dense = (
            _sparse(device).detach().clone().requires_grad_(),
            torch.arange(6.0).view(3, 2).to(device),
        )
        dense.requires_grad_()
        torch.sparse.mm(sparse, dense).square().sum().backward()
        assert sparse.grad is not None and dense.grad is not None
        found.append((sparse.grad.to_dense().cpu(), dense.grad.cpu()))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam])
def test_sparse_gradients_of_an_embedding(kind: type[torch.optim.Optimizer]) -> None:
    weights = []
    for device in ("cpu", "chip"):
        torch.manual_seed(0)
        module = nn.Embedding(6, 3, sparse=True).to(device)
        optimizer = kind(module.parameters(), lr=0.1)  # type: ignore[call-arg]
        for _ in range(3):
            optimizer.zero_grad()
            module(torch.tensor([1, 2, 2, 5], device=device)).square().sum().backward()
            assert module.weight.grad is not None and module.weight.grad.is_sparse
            optimizer.step()
        weights.append(module.weight.detach().cpu())
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-7)  # CPU fuses the product and the sum


def test_the_first_use_of_the_chip_prints_nothing() -> None:
    done = children.run("import torch; print(torch.eye(2).to_sparse().to('chip').device)")
    assert (done.stdout, done.stderr) == ("chip:0\n", "")


def test_other_operators_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"_sparse_softmax: sparse, .* not supported on chip"):
        torch.sparse.softmax(_sparse("chip"), 0)
