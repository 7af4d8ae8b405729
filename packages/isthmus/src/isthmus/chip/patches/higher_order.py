"""Higher-order operators (``torch.cond``, ``scan``, FlexAttention ...) under autocast on the chip.

PyTorch lets autocast fall through them for the devices of one list.
"""

from torch import _ops
from torch._C import DispatchKey

from isthmus_common.patches import Scope

AUTOCAST = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
_scope = Scope("chip")


def install() -> None:
    """Let autocast of the chip fall through existing and later operators, as that of the CPU and CUDA does."""
    if _scope.patches:
        return
    _scope.replace(
        "torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS",
        lambda keys: [*keys, AUTOCAST],
        "autocast of the chip falls through higher-order operators",
    )
    for operator in _ops._higher_order_ops.values():
        if AUTOCAST not in operator.py_kernels:
            operator.fallthrough(AUTOCAST)


def uninstall() -> None:
    """Restore PyTorch's list. Existing operators keep the fallthrough, which matters on the chip alone."""
    _scope.undo()
