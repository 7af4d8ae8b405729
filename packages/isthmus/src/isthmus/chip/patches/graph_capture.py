"""Optimizers refuse the capture of a step that keeps numbers on the CPU, as they do on CUDA."""

from collections.abc import Callable
from typing import Any

import torch

from isthmus import _C
from isthmus.chip import torch_version
from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Let the optimizers' check of ``capturable`` know captures of the chip."""
    if torch_version.CAPTURE_IS_CHECKED_ON_CUDA_ALONE and not _scope.patches:
        _scope.replace(
            "torch.optim.Optimizer._accelerator_graph_capture_health_check",
            _check,
            "without capturable=True a captured step would be repeated with the same step number",
        )


def uninstall() -> None:
    """Give the optimizers their own check back."""
    _scope.undo()


def _check(original: Callable[[Any], None]) -> Callable[[Any], None]:
    def check(self: Any) -> None:
        original(self)
        if torch.compiler.is_compiling() or not _C.capturing():
            return
        if torch.accelerator.current_stream().is_capturing() and not all(
            group["capturable"] for group in self.param_groups
        ):
            raise RuntimeError(
                f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__} but "
                "param_groups' capturable is False."
            )

    return check
