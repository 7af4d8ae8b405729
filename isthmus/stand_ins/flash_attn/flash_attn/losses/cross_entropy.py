"""Cross entropy with the options of flash-attn."""

from __future__ import annotations

from typing import Any

from isthmus import ops


class CrossEntropyLoss(ops.CrossEntropyLoss):
    """:class:`isthmus.ops.CrossEntropyLoss` with flash-attn's arguments, in its order.

    Args:
        ignore_index: a target whose row has no loss and no gradient.
        reduction: "mean", "sum" or "none".
        label_smoothing: share of the target that is spread over all classes.
        logit_scale: factor of the logits.
        lse_square_scale: factor of the square of the log-sum-exp in the loss.
        inplace_backward: the gradient is written over the logits.
        process_group: of a vocabulary in parts, which is not supported.
        return_z_loss: return the part of the loss that ``lse_square_scale`` makes too.

    Raises:
        NotImplementedError: ``process_group`` is given.
    """

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:
        if process_group is not None:
            raise NotImplementedError(
                "CrossEntropyLoss: process_group is given, and a vocabulary in parts is not supported here; "
                "gather the logits and leave process_group out"
            )
        super().__init__(
            ignore_index, reduction, label_smoothing, logit_scale, None, lse_square_scale, inplace_backward,
            return_z_loss,
        )  # fmt: skip
