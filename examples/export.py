"""Train a small classifier on the accelerator and export it for inference without its code.

Writes to a folder: program.pt2 (torch.export), package.pt2 (compiled by AOTInductor), model.onnx where onnxscript is
installed, and inputs.safetensors with the outputs.safetensors of the trained model. Run them by `isthmus infer`.
"""

import importlib.util
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn


class Classifier(nn.Module):
    """Two layers of convolution and one of classes: images [batch, 1, 16, 16] to logits [batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3),
            nn.GELU(),
        )
        self.classes = nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits."""
        logits: Tensor = self.classes(self.features(images).mean((2, 3)))
        return logits


def train(model: nn.Module, device: torch.device) -> None:
    """Learn which quarter of an image is bright."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        labels = torch.randint(0, 4, (64,), device=device)
        images = torch.randn(64, 1, 16, 16, device=device)
        for quarter in range(4):
            row, column = 8 * (quarter // 2), 8 * (quarter % 2)
            images[labels == quarter, :, row : row + 8, column : column + 8] += 1
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"trained: loss {loss.item():.2f}")


def export(model: nn.Module, example: Tensor, folder: Path) -> None:
    """Write the model in every form; the size of the batch is dynamic."""
    batch = {0: torch.export.Dim("batch", max=256)}
    program = torch.export.export(model, (example,), dynamic_shapes={"images": batch})
    torch.export.save(program, folder / "program.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "package.pt2"))
    if importlib.util.find_spec("onnxscript"):
        onnx = torch.onnx.export(
            model,
            (example,),
            dynamo=True,
            dynamic_shapes=({0: "batch"},),
            output_names=["output_0"],
            verbose=False,
        )
        onnx.save(folder / "model.onnx")


def main() -> None:
    """Train, export, and write an input with its output."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    torch.manual_seed(0)
    model = Classifier().to(device)
    train(model, device)
    images = torch.randn(8, 1, 16, 16, device=device)
    with torch.no_grad():
        logits = model.eval()(images)
        export(model, images, folder)
    save_file({"images": images.cpu()}, folder / "inputs.safetensors")
    save_file({"output_0": logits.cpu()}, folder / "outputs.safetensors")


if __name__ == "__main__":
    main()
