"""A model file as a function of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.chip.compile.package import Input


class InferError(ValueError):
    """A model or a file of tensors cannot be used; the message is one line."""

    @classmethod
    def from_error(cls, what: object, error: BaseException) -> InferError:
        """Return an error with the first line of another one, which may begin with the same thing."""
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return cls(line if line.startswith(str(what)) else f"{what}: {line}")


class Model(NamedTuple):
    """A loaded model.

    Attributes:
        kind: what the file is, such as "exported program".
        device: where the model runs.
        inputs: what it takes, in order; None if the file does not say.
        outputs: names; empty if the file does not say.
        run: computes the outputs from as many tensors on their devices.
    """

    kind: str
    device: torch.device
    inputs: list[Input] | None
    outputs: list[str]
    run: Callable[[list[Tensor]], list[Tensor]]

    def place(self, position: int) -> torch.device:
        """Return the device of an input."""
        on_cpu = self.inputs is not None and self.inputs[position].device == "cpu"
        return torch.device("cpu") if on_cpu else self.device


def wait(device: torch.device) -> None:
    """Wait for the work of a device. Raises the errors that a chip finds late."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
