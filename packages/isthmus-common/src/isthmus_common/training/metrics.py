"""Throughput of a training job: tokens per card and second, TFLOPs per card, model FLOPs utilisation.

Floating-point operations are counted by the formula of Megatron-LM and ModelLink, so that figures compare with
published logs. Nothing here imports torch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a decoder-only transformer on which its cost depends."""

    hidden_size: int
    num_layers: int
    vocab_size: int
    seq_length: int


def flops_per_iteration(shape: ModelShape, global_batch_size: int) -> float:
    """Operations of one iteration over all cards, without those of recompute, by the formula of Megatron-LM.

    72 B s L h^2 (1 + s / 6h + V / 16Lh): Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
    Clusters Using Megatron-LM", 2021, section 5.1, with three passes in place of four. A multiplication and an
    addition are two operations, attention counts as if it were not causal, and the backward pass as twice the
    forward pass. The formula assumes full multi-head attention, and a feed-forward block of two matrices of width
    4h or, at the same cost, a SwiGLU block of width 8h/3. The published term V / 16Lh is exact for four passes; with
    three it counts three quarters of the output layer, as the logs do.
    """
    h, layers, s = shape.hidden_size, shape.num_layers, shape.seq_length
    relative = 1 + s / (6 * h) + shape.vocab_size / (16 * layers * h)
    return 24.0 * 3 * global_batch_size * s * layers * h**2 * relative


def tgs(tokens: float, seconds: float, cards: int) -> float:
    """Tokens per card ("gpu" in the logs) and second, when all cards together took `tokens` in `seconds`.

    Raises:
        ValueError: seconds or cards is not positive.
    """
    _check_positive(seconds=seconds, cards=cards)
    return tokens / seconds / cards


def tflops(flops: float, seconds: float, cards: int) -> float:
    """10^12 operations per card and second; `flops` is the sum over all cards.

    Raises:
        ValueError: seconds or cards is not positive.
    """
    _check_positive(seconds=seconds, cards=cards)
    return flops / seconds / cards / 1e12


def mfu(achieved_tflops: float, peak_tflops: float | None) -> float | None:
    """Model FLOPs utilisation, a fraction of the card's peak; None if the peak is unknown.

    The peak is that of the data sheet or of a measured matrix product, in the dtype that the job computes in.
    Recompute does not count: pass the achieved operations without it.

    Raises:
        ValueError: the peak is not positive.
    """
    if peak_tflops is None:
        return None
    _check_positive(peak_tflops=peak_tflops)
    return achieved_tflops / peak_tflops


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")
