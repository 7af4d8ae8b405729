"""``.chip()`` on the parameters of lazy modules, which PyTorch moves by the methods of one list alone."""

import torch

from isthmus_common.patches import Scope

_scope = Scope("chip")


def install() -> None:
    """Let ``Tensor.chip``, which must exist, move a parameter that has no shape yet."""
    if not _scope.patches:
        _scope.replace(
            "torch.nn.parameter.UninitializedTensorMixin._allowed_methods",
            lambda allowed: [*allowed, vars(torch.Tensor)["chip"]],
            "parameters of lazy modules are moved by .chip() too",
        )


def uninstall() -> None:
    """Give PyTorch its own list back."""
    _scope.undo()
