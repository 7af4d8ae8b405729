"""Memory of a card under Megatron: what each rank holds at the peak of a step, term by term.

The formulas follow what the operators of megatron-core save for the backward, with flash attention, a fused SwiGLU
and gradients that are accumulated into a float32 buffer. In the backward of a linear layer autograd briefly holds a
gradient of the weight that is not used, because the product is accumulated into that buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_diagnostics.plan.parallel.layouts import Layout
from isthmus_diagnostics.plan.parallel.model import Model


@dataclass(frozen=True)
class Memory:
    """Bytes of the rank of a pipeline stage at the peak of a step.

    Attributes:
        stage: number of the stage.
        terms: bytes by name.
        in_flight: micro-batches, or parts of them, whose activations are alive.
        layer: bytes that one layer saves for one micro-batch, by operator.
    """

    stage: int
    terms: dict[str, float]
    in_flight: int
    layer: dict[str, float]

    @property
    def total(self) -> float:
        """Bytes in all."""
        return sum(self.terms.values())


def peak(model: Model, layout: Layout) -> Memory:
    """Return the memory of the pipeline stage that needs most."""
    stages = sorted({0, 1 % layout.pp, layout.pp - 1})
    return max((of_stage(model, layout, stage) for stage in stages), key=lambda found: found.total)


def of_stage(model: Model, layout: Layout, stage: int) -> Memory:
    """Return the memory of a rank of a stage."""
    layer = saved_bytes(model, layout)
    chunks = in_flight(layout, stage)
    layers = chunks * (model.layers // (layout.pp * layout.vpp))
    hidden = model.width * layout.tokens(model) * model.hidden / layout.tp
    terms = states(model, layout, stage)
    if layout.recompute == "full":
        terms["activations"] = layers * hidden
        terms["recomputed layer"] = sum(layer.values()) - hidden
    else:
        terms["activations"] = layers * sum(layer.values())
    used = _layer_backward(model, layout)
    if stage == layout.pp - 1:
        # Layers are recomputed only once the backward of the loss is over.
        head = _loss(model, layout)
        used = max(head - terms.get("recomputed layer", 0.0), used)
        terms["loss" if used == head else "backward"] = used
    else:
        terms["backward"] = used
    if layout.tp > 1:
        terms["gathered input"] = hidden * layout.tp
    return Memory(stage, terms, chunks, layer)


def in_flight(layout: Layout, stage: int) -> int:
    """Return the parts of micro-batches whose activations a stage holds at once, in 1F1B or its interleaved form."""
    behind = layout.pp - stage - 1
    warm_up = behind if layout.vpp == 1 else 2 * behind + (layout.vpp - 1) * layout.pp
    return min(warm_up + 1, layout.micro_batches * layout.vpp)


def parameters(model: Model, layout: Layout, stage: int) -> dict[str, float]:
    """Return the weights of a rank: those of experts, and others."""
    layers, experts = model.layers / layout.pp, model.experts / layout.ep
    dense = layers * (model.attention / layout.tp + 2 * model.hidden)
    expert = 0.0
    if model.experts:
        dense += layers * model.hidden * model.experts
        expert = layers * model.mlp * experts / layout.tp
    else:
        dense += layers * model.mlp / layout.tp
    table = vocab(model, layout) * model.hidden / layout.tp
    last = stage == layout.pp - 1
    tables = (stage == 0) + (last and not (model.tied and stage == 0))
    return {"dense": dense + table * tables + model.hidden * last, "experts": expert}


def vocab(model: Model, layout: Layout) -> int:
    """Return the vocabulary as Megatron pads it: to a multiple of 128 x TP."""
    unit = 128 * layout.tp
    return -(-model.vocab // unit) * unit


def states(model: Model, layout: Layout, stage: int) -> dict[str, float]:
    """Return weights, gradients and the states of Adam, sharded by the distributed optimizer."""
    counts = parameters(model, layout, stage)
    replicas = {"dense": layout.dp * layout.cp, "experts": layout.dp * layout.cp // layout.ep}
    total = sum(counts.values())
    shard = sum(count / replicas[name] for name, count in counts.items())
    master = 0 if model.width == 4 else 4
    return {"weights": model.width * total, "gradients": 4 * total, "optimizer states": (8 + master) * shard}


def saved_bytes(model: Model, layout: Layout) -> dict[str, float]:
    """Return the bytes that a layer saves for a micro-batch, by operator."""
    tokens, width = layout.tokens(model), model.width
    rows = width * tokens / layout.tp  # rows of one feature, on each tensor-parallel rank
    hidden, query, key = rows * model.hidden, rows * model.query, rows * model.key
    operators = {
        "norm of attention": hidden + 4 * tokens / layout.tp,
        "query, key, value": hidden,
        "rotary": query + key + 4 * 4 * model.seq // layout.cp * model.head,
        "attention": query + 2 * key + query + 4 * tokens * model.heads / layout.tp,
        "projection": query if layout.micro_batch > 1 else 0,  # else a view of the output of attention
        "norm of feed-forward": hidden + 4 * tokens / layout.tp,
    }
    if not model.experts:
        return operators | {
            "feed-forward 1": hidden,
            "SwiGLU": 2 * rows * model.ffn,
            "feed-forward 2": rows * model.ffn,
        }
    routed = rows * model.topk * (layout.tp if layout.ep > 1 or layout.tp > 1 else 1)
    return operators | {
        "router": hidden + 2 * rows * model.experts,
        "dispatch": routed * model.hidden,
        "SwiGLU": 2 * rows * model.topk * model.ffn,
        "feed-forward 2": rows * model.topk * model.ffn,
    }


def _layer_backward(model: Model, layout: Layout) -> float:
    """Return the most bytes that the backward of a layer's feed-forward part needs beyond what the layer saved."""
    tokens, width = layout.tokens(model) * max(1, model.topk), model.width
    wide = width * tokens * model.ffn / layout.tp
    full = width * layout.tokens(model) * model.hidden
    weight = width * model.hidden * model.ffn / layout.tp
    second = full * (layout.tp > 1) + wide + weight
    swiglu = 4 * wide  # its gradient in eager mode, less the input of the second product
    first = full + 2 * weight - wide
    return full / layout.tp + max(second, swiglu, first)


def _loss(model: Model, layout: Layout) -> float:
    """Return the bytes from the last norm to the backward of the output layer."""
    tokens, width = layout.tokens(model), model.width
    hidden = width * tokens * model.hidden
    classes = tokens * vocab(model, layout) / layout.tp
    softmax = 4 * classes if width == 4 else 6 * classes
    backward = width * classes + hidden + width * vocab(model, layout) * model.hidden / layout.tp
    return 2 * hidden / layout.tp + max(softmax, backward)
