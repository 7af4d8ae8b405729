"""apex.amp, mixed precision in four levels, by PyTorch's autocast (O1) and by casting the model (O0, O2, O3).

Source: https://nvidia.github.io/apex/amp.html and https://nvidia.github.io/apex/advanced.html.
"""

from .frontend import initialize, load_state_dict, state_dict
from .functions import (
    disable_casts,
    float_function,
    half_function,
    promote_function,
    register_float_function,
    register_half_function,
    register_promote_function,
)
from .losses import scale_loss
from .optimizers import master_params

__all__ = [
    "disable_casts", "float_function", "half_function", "initialize", "load_state_dict", "master_params",
    "promote_function", "register_float_function", "register_half_function", "register_promote_function",
    "scale_loss", "state_dict",
]  # fmt: skip
