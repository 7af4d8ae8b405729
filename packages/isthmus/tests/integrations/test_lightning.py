"""Lightning's Fabric and Trainer under the shim: accelerator="gpu" trains as accelerator="cpu" does."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch

from isthmus import shim

# pytest-xdist would import Lightning in its own process to report a warning of one of Lightning's classes.
pytestmark = pytest.mark.filterwarnings("ignore")

PRECISIONS = {"32": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@pytest.fixture(scope="module", autouse=True)
def cuda() -> Iterator[None]:
    with shim.enter():
        with warnings.catch_warnings(action="ignore"):
            pytest.importorskip("lightning_fabric")
            pytest.importorskip("pytorch_lightning")
        yield


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1))


def make_batches() -> list[torch.Tensor]:
    return [torch.randn(64, 8, generator=torch.Generator().manual_seed(1))] * 6


def train_with_fabric(accelerator: str, precision: str) -> tuple[list[float], torch.dtype, torch.nn.Module]:
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator=accelerator, devices=1, precision=precision)
    fabric.launch()
    model = make_model()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1.0))
    losses, dtypes = [], []
    for batch in fabric.setup_dataloaders(torch.utils.data.DataLoader(make_batches(), batch_size=None)):
        outputs = model(batch)
        with fabric.autocast():
            dtypes.append(torch.nn.functional.linear(batch, model.module[0].weight).dtype)
        loss = (outputs - batch.mean(1, keepdim=True)).square().mean() / 10
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, dtypes[-1], model.module


def train_with_trainer(accelerator: str, precision: str) -> tuple[list[float], torch.dtype, torch.nn.Module]:
    import pytorch_lightning

    losses, dtypes = [], []

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model()

        def training_step(self, batch, index):
            outputs = self.model(batch)
            dtypes.append(outputs.dtype)
            loss = (outputs.float() - batch.mean(1, keepdim=True)).square().mean() / 10
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    module = Module()
    quiet = dict.fromkeys(
        "enable_checkpointing enable_progress_bar enable_model_summary logger".split(), False
    )
    trainer = pytorch_lightning.Trainer(
        accelerator=accelerator, devices=1, precision=precision, max_epochs=1, **quiet
    )
    # The Trainer moves the module back to the CPU at the end.
    places = []
    module.on_train_end = lambda: places.append(copy.deepcopy(module.model))
    trainer.fit(module, torch.utils.data.DataLoader(make_batches(), batch_size=None))
    return losses, dtypes[-1], places[0]


@pytest.mark.parametrize("train", [train_with_fabric, train_with_trainer])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_is_that_of_the_cpu(train, precision):
    """Equal to the bit in float32; the CPU has no loss scaling, so float16 is compared with its float32."""
    losses, dtype, model = train("gpu", precision)
    assert len(losses) == 6 and losses[-1] < losses[0]
    assert dtype is PRECISIONS[precision]
    weight = model[0].weight
    assert (weight.device.type, weight.dtype) == ("cuda", torch.float32)
    expected, _, reference = train("cpu", "32" if precision == "16-mixed" else precision)
    if precision == "32":
        assert losses == expected
        assert torch.equal(weight.cpu(), reference[0].weight)
    else:
        assert losses == pytest.approx(expected, rel=2e-2)
