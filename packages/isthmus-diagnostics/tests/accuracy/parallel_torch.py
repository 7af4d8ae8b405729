"""Training under pipeline, context and expert parallelism, and with DTensor, right and with faults."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.accuracy import llama
from tests.accuracy.faults import replace_forward
from tests.accuracy.jobs import JOBS, Job
from tests.accuracy.parallel import clipped_mlp, on_rank_1, reduce_gradients, scaled_rotary


def _steps(model, forward_backward, reduce=lambda model: None):
    """Two steps; the optimizer updates each parameter on its own, since some may be DTensors."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(2):
        forward_backward(*llama.batch(step))
        reduce(model)
        optimizer.step()
        optimizer.zero_grad()


def _model(make=llama.Llama):
    torch.manual_seed(1)
    return make()


# ---- Pipeline: the stages are parts of the model, as torch.distributed.pipelining runs them

PARTS = {
    2: (("embedding", "0"), ("1", "norm", "head")),
    4: (("embedding",), ("0",), ("1",), ("norm", "head")),
}


class Stage(llama.Llama):
    def keep(self, parts):
        self.layers = nn.ModuleDict({key: self.layers[int(key)] for key in parts if key.isdigit()})
        for name in ("embedding", "norm", "head"):
            if name not in parts:
                delattr(self, name)
        return self

    def forward(self, x):
        x = self.embedding(x) if hasattr(self, "embedding") else x
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


Stage.__name__ = "Llama"


def pipeline(change=None, loss=llama.loss_of, **options):
    stage, stages = dist.get_rank(), dist.get_world_size()
    model = _model(Stage).keep(PARTS[stages][stage])
    if change is not None:
        change(model, stage)
    # These weights keep a forward from running on uninitialized memory to find out their shapes.
    hidden = torch.zeros(2, llama.LENGTH, llama.HIDDEN, requires_grad=True)
    tokens = torch.zeros(2, llama.LENGTH, dtype=torch.int64)
    logits = torch.zeros(2, llama.LENGTH, llama.VOCABULARY, requires_grad=True)
    given, returned = (hidden if stage else tokens), (logits if stage == stages - 1 else hidden)
    part = PipelineStage(model, stage, stages, torch.device("cpu"), given, returned)
    schedule = ScheduleGPipe(part, 2, loss, **options)

    def forward_backward(tokens, labels):
        if stage == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=labels if stage == stages - 1 else None)

    _steps(model, forward_backward)


def _in_last(change):
    return lambda model, stage: change(model) if hasattr(model, "head") else None


def _in_layer(change, number="1"):
    return lambda model, stage: change(model.layers[number]) if number in model.layers else None


def _epsilon(norm):
    norm.eps = 1e-3


def _stale(layer):
    """The layer takes the first micro-batch twice."""
    seen = []

    def forward(inner, x):
        seen.append(x)
        return inner(seen[len(seen) - 2] if len(seen) % 2 == 0 else x)

    replace_forward(layer, forward)


def _halved_gradient(layer):
    def forward(inner, x):
        x.register_hook(lambda grad: grad * 0.5)
        return inner(x)

    replace_forward(layer, forward)


def _scaled_result(layer):
    replace_forward(layer, lambda inner, x: inner(x) * 1.01)


def _detached_gate(layer):
    replace_forward(layer.mlp.gate, lambda inner, x: inner(x.detach()))


def _open_mask(layer):
    layer.attention.mask = torch.zeros_like(layer.attention.mask)


def _pp(name, calls, module, **options):
    for ranks in (2, 4):
        job = Job(lambda: pipeline(**options), ranks, f"pp{ranks}", calls, module)
        JOBS[f"pp{ranks}_{name}"] = job


for number in (2, 4):
    JOBS[f"pp{number}"] = Job(pipeline, number)
_pp("epsilon", "add", "Llama.norm", change=_in_last(lambda model: _epsilon(model.norm)))
_pp("gradients_not_scaled", "div_", None, scale_grads=False)
_pp("stale_activation", "pow add mul", "layers.1.norm1", change=_in_layer(_stale))
_pp("gradient_halved", "mul", None, change=_in_layer(_halved_gradient))
_pp("result_scaled", "mul", None, change=_in_layer(_scaled_result, "0"))
_pp("labels_of_another", "roll", "", loss=lambda logits, labels: llama.loss_of(logits, labels.roll(1, 0)))
_pp("gate_detached", "detach", "layers.1.mlp.gate", change=_in_layer(_detached_gate))
_pp("mask_open", "zeros_like", "", change=_in_layer(_open_mask, "0"))


# ---- Context: each rank has a part of the sequence; keys and values are gathered


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, backwards):
        x, ranks = x.contiguous(), dist.get_world_size()
        parts = [torch.empty_like(x) for _ in range(ranks)]
        dist.all_gather(parts, x)
        return torch.cat(parts[::-1] if backwards else parts, 2)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size(), 2)[dist.get_rank()], None


class NotReduced(Gathered):
    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size(), 2)[dist.get_rank()], None


def _split_sequence(model, gather=Gathered, backwards=False, positions=True, rows=True):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for number, layer in enumerate(model.layers):
        attention, is_wrong = layer.attention, number == 1
        rotary = attention.rotary
        place = rank if positions or not is_wrong else 0
        rotary.cos, rotary.sin = (each.chunk(ranks)[place] for each in (rotary.cos, rotary.sin))
        attention.mask = attention.mask.chunk(ranks)[rank if rows or not is_wrong else 0]
        gathered = gather.apply if is_wrong else Gathered.apply

        def forward(_, x, attention=attention, gathered=gathered, turned=backwards and is_wrong):
            q, k, v = (attention.heads(each(x)) for each in (attention.q, attention.k, attention.v))
            q, k = attention.rotary(q), attention.rotary(k)
            k, v = gathered(k, turned), gathered(v, turned)
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            weights = scores.masked_fill(attention.mask, float("-inf")).softmax(-1)
            return attention.o((weights @ v).transpose(1, 2).flatten(2))

        replace_forward(attention, forward)


def context(change=None, divide=True, **options):
    model = _model()
    _split_sequence(model, **options)
    if change is not None:
        change(model)

    def forward_backward(tokens, labels):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        tokens, labels = (each.chunk(ranks, 1)[rank] for each in (tokens, labels))
        llama.loss_of(model(tokens), labels).backward()

    _steps(model, forward_backward, lambda model: reduce_gradients(model, divide=divide))


def _cp(name, calls, module, against_one, **options):
    for ranks in (2, 4):
        job = Job(lambda: context(**options), ranks, f"cp{ranks}", calls, module, "one", against_one)
        JOBS[f"cp{ranks}_{name}"] = job


for number in (2, 4):
    JOBS[f"cp{number}"] = Job(context, number, one="one")
_cp("positions_of_first_rank", "mul split", "layers.1.attention.rotary", "mul split", positions=False)
_cp("mask_of_first_rank", "masked_fill split", "layers.1.attention", "masked_fill split", rows=False)
_cp("gathered_backwards", "cat allgather_", "layers.1.attention", "cat allgather_", backwards=True)
_cp("gradient_not_reduced", "allreduce_", None, "add split mul", gather=NotReduced)
_cp("gradients_not_divided", "div_", "", "allreduce_ AdamW", divide=False)
_cp(
    "epsilon_differs", "add", "layers.1.norm2", "add",
    change=on_rank_1(lambda model: _epsilon(model.layers[1].norm2)),
)  # fmt: skip
_cp("rotary_scaled", "mul", "layers.0.attention.rotary", "mul", change=on_rank_1(scaled_rotary))
_cp("mlp_clipped", "clamp", "layers.1.mlp.down", "clamp", change=on_rank_1(clipped_mlp))


# ---- Experts: one on each rank, to which the others send tokens


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sent, received):
        ctx.counts = received, sent
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.counts), None, None


class Experts(nn.Module):
    """Instead of a layer's MLP: each token goes to one of as many experts as ranks."""

    def __init__(self, turned=False, gated=True, low=False):
        super().__init__()
        self.turned, self.gated, self.low = turned, gated, low
        ranks = dist.get_world_size()
        self.router = nn.Linear(llama.HIDDEN, ranks, bias=False)
        everyone = [llama.MLP() for _ in range(ranks)]
        self.expert = everyone[dist.get_rank()]

    def forward(self, x):
        flat = x.flatten(0, 1)
        scores = self.router(flat.bfloat16().float() if self.low else flat).softmax(-1)
        best, chosen = scores.max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=dist.get_world_size())
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        sent, received = counts.tolist(), incoming.tolist()
        out = Exchange.apply(self.expert(Exchange.apply(flat[order], sent, received)), received, sent)
        out = out[order.flip(0) if self.turned else order.argsort()]
        return (out * best[:, None] if self.gated else out).view_as(x)


def experts(change=None, **options):
    model = _model()
    for number, layer in enumerate(model.layers):
        layer.mlp = Experts(**options if number == 1 else {})
    if change is not None:
        change(model)

    def forward_backward(tokens, labels):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        tokens, labels = (each.chunk(ranks)[rank] for each in (tokens, labels))
        llama.loss_of(model(tokens), labels).backward()

    own = [name for name, _ in model.named_parameters() if ".expert." in name]
    _steps(model, forward_backward, lambda model: reduce_gradients(model, skip=own))


def _swap_experts(model):
    for parameter in model.layers[1].mlp.expert.parameters():
        parts = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, parameter.data)
        parameter.data = parts[dist.get_rank() - 1]


def _ep(name, calls, module, **options):
    JOBS[f"ep_{name}"] = Job(lambda: experts(**options), 2, "ep", calls, module)


JOBS["ep"] = Job(experts, 2)
_ep("experts_swapped", "t mm allgather_", None, change=_swap_experts)
_ep("tokens_returned_in_other_order", "flip index argsort sort", "layers.1.mlp", turned=True)
_ep("gate_left_out", "mul", "layers.1.mlp", gated=False)
_ep("router_in_bfloat16", "_to_copy", "layers.1.mlp", low=True)


# ---- Tensor parallelism by DTensor, on four ranks with data parallelism


class Unreduced(RowwiseParallel):
    """The terms of the sum are used as they are."""

    @staticmethod
    def _prepare_output_fn(layouts, use_local, module, outputs, mesh):
        return outputs.to_local()


def dtensor(change=None, down=RowwiseParallel, reduces=True):
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    model = _model()
    names = dict.fromkeys(
        ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up"), ColwiseParallel
    )
    names |= {"attention.o": RowwiseParallel, "mlp.down": RowwiseParallel}
    plan = {f"layers.{n}.{name}": way() for n in range(llama.LAYERS) for name, way in names.items()}
    plan["layers.1.mlp.down"] = down()
    parallelize_module(model, mesh["tp"], plan)
    if change is not None:
        change(model)

    def forward_backward(tokens, labels):
        if ranks > 2:
            tokens, labels = (
                each.chunk(ranks // 2)[mesh["dp"].get_local_rank()] for each in (tokens, labels)
            )
        llama.loss_of(model(tokens), labels).backward()

    def reduce(model):
        for parameter in model.parameters() if ranks > 2 and reduces else ():
            grad = getattr(parameter.grad, "_local_tensor", parameter.grad)
            dist.all_reduce(grad, group=mesh["dp"].get_group())
            grad /= ranks // 2

    _steps(model, forward_backward, reduce)


def _scale_part(model):
    model.layers[1].mlp.up.weight.data._local_tensor.mul_(1.01)


def _exchange_parts(model):
    """The parts of a weight are on the other ranks."""
    weight = model.layers[1].mlp.up.weight.data
    half = weight.full_tensor().chunk(2)[1 - dist.get_rank() % 2]
    weight._local_tensor.copy_(half)


def _dtensor(name, calls, module, against_one, both=True, **options):
    for ranks in (2, 4)[not both :]:
        job = Job(lambda: dtensor(**options), ranks, f"dtensor{ranks}", calls, module, "one", against_one)
        JOBS[f"dtensor{ranks}_{name}"] = job


for number in (2, 4):
    JOBS[f"dtensor{number}"] = Job(dtensor, number, one="one")
_dtensor("not_reduced", "all_reduce", "layers.1.mlp", "add", down=Unreduced)
_dtensor("part_scaled", "mul_", None, "mul_", change=on_rank_1(_scale_part))
_dtensor("parts_exchanged", "split copy_", None, "split copy_", change=_exchange_parts)
_dtensor(
    "epsilon_differs", "add", "layers.1.norm2", "add",
    change=on_rank_1(lambda model: _epsilon(model.layers[1].norm2)),
)  # fmt: skip
_dtensor("gradients_not_reduced", "allreduce_", None, "AdamW", both=False, reduces=False)
_dtensor("rotary_scaled", "mul", "layers.0.attention.rotary", "mul", change=on_rank_1(scaled_rotary))
