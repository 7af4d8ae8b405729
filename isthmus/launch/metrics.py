"""Throughput of a training job: tokens per card and second, TFLOPs per card, model FLOPs utilisation.

Two counts of a model's floating-point operations:

- `flops_per_iteration`, the formula by which Megatron-LM and ModelLink print TFLOPs (Narayanan et al.,
  "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021, section 5.1). It
  knows the hidden size only: full multi-head attention, and a feed-forward block of two matrices of width 4h
  or, which costs the same, a SwiGLU block of width 8h/3. Published figures of such logs compare under it.
- `matmul_flops_per_iteration`, which counts every matrix product of the shape that the model really has:
  grouped queries, any feed-forward width, gated or not.

A multiplication and an addition are two operations, attention counts as if it were not causal, the backward
pass as twice the forward pass. A backward pass with full recompute repeats the forward pass once more.
Nothing here imports torch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelShape:
    """What the cost of a decoder-only transformer depends on.

    The last five are used by `matmul_flops_per_iteration` alone; None stands for what the formula of
    `flops_per_iteration` implies: as many key and value heads as heads, heads of hidden_size / num_heads, and
    a feed-forward width of 4 hidden_size, or 8/3 of it if gated.
    """

    hidden_size: int
    num_layers: int
    vocab_size: int
    seq_length: int
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_size: int | None = None
    ffn_hidden_size: int | None = None
    gated_ffn: bool = False


def flops_per_iteration(shape: ModelShape, global_batch_size: int, full_recompute: bool = False) -> float:
    """Operations of one iteration over all cards, by the formula of Megatron-LM.

    24 c B s L h^2 (1 + s / 6h + V / 16Lh), with c = 3 passes, or 4 under full recompute. The published term
    V / 16Lh is exact for c = 4; with c = 3 it counts three quarters of the output layer, as the logs do.
    """
    h, layers, s = shape.hidden_size, shape.num_layers, shape.seq_length
    passes = 4 if full_recompute else 3
    relative = 1 + s / (6 * h) + shape.vocab_size / (16 * layers * h)
    return 24.0 * passes * global_batch_size * s * layers * h**2 * relative


def matmul_flops_per_iteration(
    shape: ModelShape, global_batch_size: int, full_recompute: bool = False
) -> float:
    """Operations of all matrix products of one iteration over all cards, for the model's own shape.

    Full recompute repeats the layers, not the output layer.

    Raises:
        ValueError: num_kv_heads or head_size is given without num_heads.
    """
    h, s = shape.hidden_size, shape.seq_length
    query, key_value = _attention_widths(shape)
    ffn = shape.ffn_hidden_size or (8 * h / 3 if shape.gated_ffn else 4 * h)
    projections = 2 * h * (query + 2 * key_value) + 2 * query * h
    attention = 2 * (2 * s * query)
    feed_forward = 2 * h * ffn * (3 if shape.gated_ffn else 2)
    layers = shape.num_layers * (projections + attention + feed_forward)
    output = 2 * h * shape.vocab_size
    return float(global_batch_size * s * (layers * (4 if full_recompute else 3) + output * 3))


def _attention_widths(shape: ModelShape) -> tuple[float, float]:
    """Widths of all query heads and of all key heads together."""
    if shape.num_heads is None:
        if shape.num_kv_heads is not None or shape.head_size is not None:
            raise ValueError("num_kv_heads and head_size mean nothing without num_heads; give it as well")
        return shape.hidden_size, shape.hidden_size
    head_size = shape.head_size or shape.hidden_size / shape.num_heads
    return shape.num_heads * head_size, (shape.num_kv_heads or shape.num_heads) * head_size


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
    """Model FLOPs utilisation, a fraction of the card's peak; None where the peak is unknown.

    The peak is the data sheet's or a measured matrix product's, of the dtype that the job computes in. The
    operations of recompute are no use of the model: count the achieved ones without it.

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


@dataclass(frozen=True)
class TgsStatistics:
    """The tgs values of InternEvo's line, in tokens per card and second, rounded to two places.

    last_tgs_1 is of the last step; tgs_all is all tokens over all time; tgs_avg the mean of the steps' tgs;
    tgs_SMA their mean over the last 50; last_tgs_10 and last_tgs_50 are of the last full block of 10 and of
    50 steps, tokens over time, and 0 until there is one.
    """

    last_tgs_1: float
    tgs_all: float
    tgs_avg: float
    tgs_SMA: float
    last_tgs_10: float
    last_tgs_50: float


@dataclass
class _Window:
    """Tokens over time of the last full block of `length` steps."""

    length: int
    steps: int = 0
    tokens: float = 0.0
    seconds: float = 0.0
    closed: float = 0.0

    def update(self, tokens: float, seconds: float) -> None:
        self.steps += 1
        self.tokens += tokens
        self.seconds += seconds
        if self.steps == self.length:
            self.closed = self.tokens / self.seconds
            self.steps, self.tokens, self.seconds = 0, 0.0, 0.0


@dataclass
class TgsMeter:
    """Keeps the statistics of InternEvo's line over a run."""

    _steps: int = 0
    _tokens: float = 0.0
    _seconds: float = 0.0
    _sum: float = 0.0
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    _ten: _Window = field(default_factory=lambda: _Window(10))
    _fifty: _Window = field(default_factory=lambda: _Window(50))

    def update(self, tokens: float, seconds: float, cards: int) -> TgsStatistics:
        """Add a step in which all cards together took `tokens` in `seconds`.

        Raises:
            ValueError: seconds or cards is not positive.
        """
        last = tgs(tokens, seconds, cards)
        per_card = tokens / cards
        self._steps += 1
        self._tokens += per_card
        self._seconds += seconds
        self._sum += last
        self._recent.append(last)
        for window in (self._ten, self._fifty):
            window.update(per_card, seconds)
        return TgsStatistics(
            last_tgs_1=round(last, 2),
            tgs_all=round(self._tokens / self._seconds, 2),
            tgs_avg=round(self._sum / self._steps, 2),
            tgs_SMA=round(sum(self._recent) / len(self._recent), 2),
            last_tgs_10=round(self._ten.closed, 2),
            last_tgs_50=round(self._fifty.closed, 2),
        )
