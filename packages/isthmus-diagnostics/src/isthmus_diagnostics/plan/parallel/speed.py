"""Time of a step: what each rank computes, sends and waits for, term by term."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_diagnostics.plan.parallel import memory
from isthmus_diagnostics.plan.parallel.cluster import Cluster
from isthmus_diagnostics.plan.parallel.layouts import Layout
from isthmus_diagnostics.plan.parallel.model import Model

_FORWARD = 0.4  # forward's share of the host's time for a layer: 60 operators, and 90 in the backward


@dataclass(frozen=True)
class Work:
    """The work of a rank for a micro-batch of one pipeline stage.

    Attributes:
        flops: of matrix products.
        bytes: read and written by other operators.
        host: seconds that the host adds.
        sent: seconds of collectives, by group.
    """

    flops: float
    bytes: float
    host: float
    sent: dict[str, float]

    def seconds_of_card(self, cluster: Cluster, dtype: str) -> dict[str, float]:
        """Return the seconds of a card that has its processor for itself, by term."""
        return {
            "matrix products": self.flops / cluster.rate(dtype),
            "memory-bound": self.bytes / cluster.bandwidth,
            "host": self.host,
        }


def step(model: Model, layout: Layout, cluster: Cluster) -> dict[str, float]:
    """Return the seconds of a step by term; their sum is the prediction.

    The ranks of a pipeline wait for its slowest stage. Where cards share processors, no step is shorter than the work
    of all cards over the processors; time in which a stage waits is then used by others.
    """
    stages = [_stage(model, layout, cluster, stage) for stage in sorted({0, 1 % layout.pp, layout.pp - 1})]
    computed = [each.seconds_of_card(cluster, model.dtype) for each in stages]
    middle = layout.pp - 2 if layout.pp > 2 else 0
    weights = [1, middle, 1] if layout.pp > 2 else [1] * len(stages)
    seconds = [sum(each.values()) for each in computed]
    slowest = max(range(len(stages)), key=lambda i: seconds[i] + sum(stages[i].sent.values()))
    m = layout.micro_batches
    terms: dict[str, float] = {name: m * size for name, size in computed[slowest].items()}
    terms.update({name: m * size for name, size in stages[slowest].sent.items()})
    whole = [second + sum(each.sent.values()) for second, each in zip(seconds, stages, strict=True)]
    behind = sum(w * t for w, t in zip(weights, whole, strict=True)) - whole[slowest]
    terms["pipeline bubble"] = behind / layout.vpp
    terms.update(_optimizer(model, layout, cluster))
    if cluster.cores:
        copies = layout.tp * layout.cp * layout.dp
        work = m * copies * sum(w * t for w, t in zip(weights, seconds, strict=True)) / cluster.cores
        alone = m * seconds[slowest] + terms["pipeline bubble"]
        terms["shared processors"] = max(0.0, work - alone)
    return {name: size for name, size in terms.items() if size}


def _stage(model: Model, layout: Layout, cluster: Cluster, stage: int) -> Work:
    """Return what a rank of a stage does for a micro-batch, with all parts of the model that it has."""
    layers = model.layers / layout.pp
    again = 1 if layout.recompute == "full" else 0
    flops = layers * (
        _layer_flops(model, layout) * (3 + again) + _attention_flops(model, layout) * (3.5 + again)
    )
    forward, backward = _layer_bytes(model, layout)
    size = layers * (forward * (1 + again) + backward)
    # Products read their weights, and add to the gradients in float32.
    size += (2 * model.width + 8) * sum(memory.parameters(model, layout, stage).values())
    host = layers * _host(model, layout, cluster) * (1 + _FORWARD * again)
    tokens, table = layout.tokens(model), memory.vocab(model, layout) / layout.tp
    if stage == layout.pp - 1:
        flops += 3 * 2 * tokens * model.hidden * table
        size += 10 * 4 * tokens * table
    if stage == 0:
        size += 3 * model.width * model.hidden * table + 4 * model.width * tokens * model.hidden
    return Work(flops, size, host, _seconds_sending(model, layout, cluster, layers, again))


def _host(model: Model, layout: Layout, cluster: Cluster) -> float:
    """Return the seconds of the host for the forward and backward of a layer."""
    names = {"TP": layout.tp, "CP": layout.cp}
    seconds = cluster.delay("dense")
    if model.experts:
        names = {"experts_TP": layout.tp, "CP": layout.cp, "EP": layout.ep}
        seconds = cluster.delay("experts") + cluster.delay("expert") * model.experts / layout.ep
    return seconds + sum(cluster.delay(name, ranks) for name, ranks in names.items() if ranks > 1)


def _layer_flops(model: Model, layout: Layout) -> float:
    """Return the operations of the products with weights in the forward of a layer."""
    weights = model.attention + model.mlp * max(1, model.topk)
    return 2 * layout.tokens(model) * weights / layout.tp


def _attention_flops(model: Model, layout: Layout) -> float:
    """Return the operations of causal attention in the forward of a layer."""
    return 2 * layout.tokens(model) * model.seq * model.query / layout.tp


def _layer_bytes(model: Model, layout: Layout) -> tuple[float, float]:
    """Return the bytes of all operators but products in the forward and in the backward of a layer, run eagerly."""
    rows = model.width * layout.tokens(model) / layout.tp
    heads = model.query + model.key
    wide = model.ffn * max(1, model.topk)
    routed = 6 * model.hidden * model.topk
    forward = rows * (10 * model.hidden + 6 * heads + 6 * wide + routed)
    backward = rows * (14 * model.hidden + 8 * heads + 24 * wide + routed)
    return forward, backward


def _seconds_sending(
    model: Model, layout: Layout, cluster: Cluster, layers: float, again: int
) -> dict[str, float]:
    """Return the seconds of the collectives of a micro-batch, by group."""
    tp, cp, ep = layout.tp, layout.cp, layout.ep
    full = model.width * layout.tokens(model) * model.hidden
    gather = cluster.seconds("all_gather", full, tp, tp, of_layer=True)
    scatter = cluster.seconds("reduce_scatter", full, tp, tp, of_layer=True)
    # Forward: two of each. Backward: two of each, and the inputs of two linear layers are gathered again.
    tensor = layers * (gather * (6 + 2 * again) + scatter * (4 + 2 * again)) if tp > 1 else 0.0
    ring = 0.0
    if cp > 1:
        pair = 2 * model.width * layout.tokens(model) * model.key / tp
        ring = layers * (cp - 1) * cluster.seconds("send", pair, cp, tp * cp, of_layer=True) * (3 + again)
    routed = full / tp * model.topk
    exchange = cluster.seconds("all_to_all", routed, ep, tp * cp * layout.dp, of_layer=True)
    experts = layers * exchange * (4 + 2 * again)
    stages = 0.0
    if layout.pp > 1:
        stages = 2 * layout.vpp * cluster.seconds("send", full / tp, 2, layout.cards)
    return {"TP": tensor, "CP": ring, "EP": experts, "PP": stages}


def _optimizer(model: Model, layout: Layout, cluster: Cluster) -> dict[str, float]:
    """Return the seconds after the last backward: gradients are reduced, states and weights updated."""
    counts = memory.parameters(model, layout, 0), memory.parameters(model, layout, layout.pp - 1)
    most = max(counts, key=lambda each: sum(each.values()))
    replicas = layout.dp * layout.cp
    groups = {"dense": replicas, "experts": replicas // layout.ep}
    sent, shard = 0.0, 0.0
    for name, count in most.items():
        span = layout.tp * replicas
        sent += cluster.seconds("reduce_scatter", 4 * count, groups[name], span) if count else 0.0
        sent += cluster.seconds("all_gather", model.width * count, groups[name], span) if count else 0.0
        shard += count / groups[name]
    # Adam reads four and writes three; the norm of the gradient, its scaling, and zeros.
    update = (4 * (7 + 3) * shard + 4 * sum(most.values())) / cluster.bandwidth
    if cluster.cores:
        update *= max(1.0, layout.cards / cluster.cores)
    return {"DP": sent, "optimizer": update}
