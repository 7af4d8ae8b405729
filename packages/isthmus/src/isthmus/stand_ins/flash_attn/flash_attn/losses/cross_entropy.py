"""Cross entropy with the options of flash-attn."""

from typing import Any

from isthmus import ops


class CrossEntropyLoss(ops.CrossEntropyLoss):
    """:class:`isthmus.ops.CrossEntropyLoss` with flash-attn's order of arguments.

    Args:
        ignore_index: rows with this target have no loss and no gradient.
        reduction: "mean", "sum" or "none".
        label_smoothing: probability mass spread over all classes.
        logit_scale: factor of the logits.
        lse_square_scale: factor of the squared log-sum-exp in the loss.
        inplace_backward: write the gradient over the logits.
        process_group: for a vocabulary-parallel loss; not supported.
        return_z_loss: also return the z-loss.

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
                "CrossEntropyLoss: process_group is given, but a vocabulary-parallel loss is not supported; "
                "gather the logits and omit process_group"
            )
        super().__init__(
            ignore_index, reduction, label_smoothing, logit_scale, None, lse_square_scale, inplace_backward,
            return_z_loss,
        )  # fmt: skip
