"""Chooses a device and loads a model file to it."""

from pathlib import Path

import torch
from torch import Tensor

from isthmus.infer import programs
from isthmus.infer.model import InferError, Model, wait
from isthmus_common.text import count


def choose_device(name: str) -> torch.device:
    """Return the device that a user named; by default the current accelerator, else the CPU.

    Raises:
        InferError: it does not exist.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    try:
        device = torch.device(name) if name else accelerator or torch.device("cpu")
    except RuntimeError:
        raise InferError(f"--device {name}: not a device; expected cpu or such as chip:0") from None
    if device.type == "cpu":
        return device
    if accelerator is None or device.type != accelerator.type:
        raise InferError(f"--device {device}: no such device is available; run `isthmus doctor`")
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    if index >= torch.accelerator.device_count():
        raise InferError(f"--device {device}: {count(torch.accelerator.device_count(), 'device')} available")
    return torch.device(device.type, index)


def load(path: Path, device: torch.device) -> Model:
    """Load a model to a device.

    Args:
        path: ``.pt2``: an exported program (``torch.export.save``) or a package (``aoti_compile_and_package``),
            whose compiled code is executed; ``.onnx``: an ONNX model.
        device: as :func:`choose_device` returns it.

    Raises:
        InferError: the file cannot be read, is malformed, or is for another device.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise InferError(f"{path}: {error.strerror}; give a .pt2 or .onnx file") from None
    model = _load(path, device)

    @torch.no_grad()
    def run(tensors: list[Tensor]) -> list[Tensor]:
        try:
            outputs = model.run(tensors)
            wait(device)  # a chip may find a wrong input later
            return outputs
        except Exception as error:
            raise InferError.from_error(path, error) from error

    return model._replace(run=run)


def _load(path: Path, device: torch.device) -> Model:
    if path.suffix == ".onnx":
        try:
            from isthmus.infer import onnx_model
        except ModuleNotFoundError as error:
            if error.name != "onnx":
                raise
            raise InferError("ONNX models need the package onnx; pip install 'isthmus[onnx]'") from None
        return onnx_model.load(path, device)
    if path.suffix == ".pt2":
        return programs.load(path, device)
    raise InferError(f"{path}: unknown format; expected .pt2 or .onnx")
