"""The layouts of a model on a number of cards, and why some cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isthmus_diagnostics.plan.parallel.model import Model

RECOMPUTE = ("none", "full")


@dataclass(frozen=True)
class Layout:
    """The layout of a job over cards. Sequence parallelism is used with tensor parallelism.

    Attributes:
        tp, pp, vpp, cp, ep, dp: ranks of tensor, pipeline, context, expert and data parallelism; ``vpp`` are the
            parts of the model that each pipeline rank has. Ranks of experts are part of those of ``cp`` and ``dp``.
        micro_batch: samples of a micro-batch.
        global_batch: samples of a step.
        recompute: of layers, "none" or "full".
    """

    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    dp: int
    micro_batch: int
    global_batch: int
    recompute: str

    @property
    def cards(self) -> int:
        """Cards of the layout."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step in each data-parallel rank."""
        return self.global_batch // (self.micro_batch * self.dp)

    def tokens(self, model: Model) -> int:
        """Tokens of a micro-batch in each context-parallel rank."""
        return self.micro_batch * model.seq // self.cp


def layouts(model: Model, cards: int, global_batch: int) -> Iterator[Layout]:
    """Return every layout of some cards; :func:`problem` says which cannot run."""
    for tp in _divisors(cards):
        for pp in _divisors(cards // tp):
            for cp in _divisors(cards // tp // pp):
                dp = cards // tp // pp // cp
                for ep in _divisors(cp * dp) if model.experts else [1]:
                    for vpp in _divisors(max(1, model.layers // pp)) if pp > 1 else [1]:
                        for micro_batch in _powers(max(1, global_batch // dp)):
                            for recompute in RECOMPUTE:
                                yield Layout(tp, pp, vpp, cp, ep, dp, micro_batch, global_batch, recompute)


def problem(model: Model, layout: Layout) -> str:
    """Return why a layout cannot run, or "" if it can. Memory is not considered."""
    tp, pp, cp = layout.tp, layout.pp, layout.cp
    batch = layout.micro_batch * layout.dp
    parts = pp * layout.vpp
    checks = (
        (model.heads % tp, f"{model.heads} heads are not a multiple of TP {tp}"),
        (model.groups % tp, f"{model.groups} key and value heads are not a multiple of TP {tp}"),
        (model.ffn % tp, f"feed-forward width {model.ffn} is not a multiple of TP {tp}"),
        (model.layers % parts, f"{model.layers} layers are not a multiple of PP {pp} x VPP {layout.vpp}"),
        (cp > 1 and model.seq % (2 * cp), f"{model.seq} tokens are not a multiple of 2 x CP {cp}"),
        (model.seq // cp % tp, f"{model.seq} tokens over CP {cp} are not a multiple of TP {tp}"),
        (
            model.experts % layout.ep if model.experts else 0,
            f"{model.experts} experts are not a multiple of EP {layout.ep}",
        ),
        (
            layout.global_batch % batch,
            f"global batch {layout.global_batch} is not a multiple of micro-batch x DP {batch}",
        ),
        (
            layout.vpp > 1 and layout.micro_batches % pp,
            f"{layout.micro_batches} micro-batches are not a multiple of PP {pp}, as VPP needs",
        ),
    )
    return next((reason for failed, reason in checks if failed), "")


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _powers(most: int) -> list[int]:
    return [1 << each for each in range(most.bit_length())]
