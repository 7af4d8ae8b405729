"""Sparse tensors on the chip give the results of sparse CPU tensors, to the bit."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.helpers import children

KERNELS_OF_CPU = pytest.mark.host("compressed layouts need kernels of the CPU")

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
    "softmax": lambda s, device: torch.sparse.log_softmax(torch.sparse.softmax(s, 1), 1),
    "made elsewhere": lambda s, device: torch.zeros_like(s.to("cpu"), device=device) + s,
    "empty": lambda s, device: torch.sparse_coo_tensor(size=(2, 3), device=device).coalesce(),
    "checked": lambda s, device: _checked(s.coalesce().indices(), s.coalesce().values()),
}


def _sparse(device: str) -> torch.Tensor:
    made = torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 3), check_invariants=True)
    return made.to(device)


def _checked(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, (2, 3), is_coalesced=True, check_invariants=True)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_cpu(case: str) -> None:
    expected, found = (CASES[case](_sparse(device), device) for device in ("cpu", "chip"))
    assert found.device.type == "chip" and found.layout == expected.layout and found.dtype == expected.dtype
    if found.is_sparse:
        expected, found = expected.to_dense(), found.to_dense()
    assert torch.equal(found.cpu(), expected)


def test_equal_indices_are_not_coalesced() -> None:
    indices, values = torch.tensor([[0, 0], [1, 1]], device="chip"), torch.ones(2, device="chip")
    with pytest.raises(RuntimeError, match="indices correspond to uncoalesced COO tensor"):
        _checked(indices, values)
    with pytest.raises(RuntimeError, match="indices correspond to uncoalesced COO tensor"):
        _checked(indices.flip(1) + torch.tensor([[1, 0], [0, 0]], device="chip"), values)


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
@KERNELS_OF_CPU
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
    assert torch.equal(*weights)


def test_the_first_use_of_the_chip_prints_nothing() -> None:
    done = children.run("import torch; print(torch.eye(2).to_sparse().to('chip').device)")
    assert (done.stdout, done.stderr) == ("chip:0\n", "")


COMPRESSED: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "round trip": lambda s, device: s.cpu().to(device),
    "from dense": lambda s, device: s.to_dense().sin().to_sparse(layout=s.layout, blocksize=_block(s.layout)),
    "elementwise": lambda s, device: (s * 2).sin_().clone().abs(),
    "sum": lambda s, device: s.sum() + s.values().sum(),
    "product": lambda s, device: s @ torch.eye(6, device=device)[:, :3],
    "zeros": lambda s, device: torch.zeros_like(s),
    "on CPU": lambda s, device: torch.zeros_like(s, device="cpu").to(device),
    "to COO": lambda s, device: s.to_sparse_coo(),
    "transposed": lambda s, device: s.transpose(0, 1),
}


def _block(layout: torch.layout) -> tuple[int, int] | None:
    return (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.strided:
        return [tensor.cpu()]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices().cpu(), tensor._values().cpu()]
    rows = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    indices = (
        [tensor.crow_indices(), tensor.col_indices()]
        if rows
        else [tensor.ccol_indices(), tensor.row_indices()]
    )
    return [part.cpu() for part in (*indices, tensor.values())]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("case", COMPRESSED)
@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
@KERNELS_OF_CPU
def test_compressed_layouts_give_the_results_of_cpu(layout: str, case: str) -> None:
    kind = getattr(torch, layout)
    dense = (torch.arange(24.0).view(4, 6) % 5 - 2).relu()
    sparse = dense.to_sparse(layout=kind, blocksize=_block(kind))
    if case == "product" and kind is torch.sparse_bsc:
        pytest.skip("no kernel on CPU")
    expected, found = (COMPRESSED[case](sparse.to(device), device) for device in ("cpu", "chip"))
    assert found.device.type == "chip" and found.layout == expected.layout and found.shape == expected.shape
    assert all(map(torch.equal, _parts(found), _parts(expected)))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_csr_tensors_made_on_the_chip_train_and_are_saved() -> None:
    gradients = []
    for device in ("cpu", "chip"):
        parts = [torch.tensor(part, device=device) for part in ([0, 2, 3], [0, 2, 1], [1.0, 2.0, 3.0])]
        sparse = torch.sparse_csr_tensor(*parts, (2, 3), check_invariants=True).requires_grad_()
        dense = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
        (sparse @ dense).square().sum().backward()
        assert sparse.grad is not None and dense.grad is not None
        gradients.append([*_parts(sparse.grad), dense.grad.cpu()])
    assert all(map(torch.equal, *gradients))
    file = io.BytesIO()
    torch.save(sparse.detach(), file)
    file.seek(0)
    assert str(torch.load(file)) == str(sparse.detach()) and "device='chip:0'" in str(sparse)


@pytest.mark.full
def test_embeddings_train_where_there_is_neither_delegate_nor_fallback() -> None:
    code = """
        import torch
        def trained(device):
            torch.manual_seed(0)
            layer = torch.nn.Embedding(9, 4, sparse=True).to(device)
            optimizer = torch.optim.SparseAdam(layer.parameters(), lr=0.1)
            for rows in ([1, 2, 2, 7], [2, 0, 7, 7]):
                optimizer.zero_grad()
                layer(torch.tensor(rows, device=device)).square().sum().backward()
                optimizer.step()
            return layer.weight.grad.coalesce().cpu(), layer.weight.detach().cpu()
        for got, want in zip(trained("chip"), trained("cpu")):
            torch.testing.assert_close(got, want)
    """
    children.output(code, ISTHMUS_DRIVER="numpy", ISTHMUS_STRICT="1")
