"""A tiny GPT of megatron-core (examples/pretrain_gpt_core.py) in its parallelisms, right and with faults."""

import contextlib
import functools
import importlib
import shlex
import sys
from pathlib import Path
from unittest import mock

import torch.distributed as dist

from tests.accuracy.jobs import JOBS, Job

SMALL = "--hidden-size 32 --ffn-hidden-size 64 --seq-length 16 --vocab-size 64 --global-batch-size 4 --train-iters 2"
FLAGS = {
    "tp2": "--tensor-model-parallel-size 2",
    "sp2": "--tensor-model-parallel-size 2 --sequence-parallel",
    "pp2": "--pipeline-model-parallel-size 2",
    "cp2": "--context-parallel-size 2",
    "dp2": "",
    "tp2_pp2": "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
    "tp2_cp2": "--tensor-model-parallel-size 2 --context-parallel-size 2",
}


def train(flags, patch=None, change=None):
    sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))
    import pretrain_gpt_core as example

    args = example.parse_args(shlex.split(f"{SMALL} {flags}"))
    step = example.trainer(args)
    _, model, _, _ = step.args[:4]
    if change is not None:
        change(model[0].module)
    with patch() if patch else contextlib.nullcontext():
        for iteration in range(args.train_iters):
            step(iteration)


def _patched(module, name, make):
    """A context in which a function of Megatron is another, made from it."""

    def context():
        found = importlib.import_module(f"megatron.core.{module}")
        return mock.patch.object(found, name, make(getattr(found, name)))

    return context


def _once(wrong):
    """Replace one call, the third."""

    def make(right):
        count = [0]

        @functools.wraps(right)
        def function(*args, **options):
            count[0] += 1
            return wrong(*args, **options) if count[0] == 3 else right(*args, **options)

        return function

    return make


def _of_rank_1(change):
    return lambda model: change(model) if dist.get_rank() == 1 else None


def _epsilon(model):
    for name, module in model.named_modules():
        if name.endswith("layers.0.pre_mlp_layernorm"):
            module.eps = module.epsilon = 1e-2


def _scaled_weight(model):
    for name, parameter in model.named_parameters():
        if name.endswith("linear_fc1.weight"):
            parameter.data.mul_(1.01)
            return


def _nothing(right):
    return lambda *_, **__: None


def _first_positions(right):
    return lambda emb, dim, *_: emb.chunk(2, dim)[0]


def _job(name, calls, against_one, **options):
    way = next(way for way in sorted(FLAGS, key=len, reverse=True) if name.startswith(way))
    ranks = 2 ** (1 + way.count("_"))
    train_it = functools.partial(train, FLAGS[way], **options)
    JOBS[f"megatron_{name}"] = Job(
        train_it, ranks, f"megatron_{way}", calls, None, "megatron_one", against_one
    )


JOBS["megatron_one"] = Job(functools.partial(train, ""), 1)
for way, flags in FLAGS.items():
    JOBS[f"megatron_{way}"] = Job(
        functools.partial(train, flags), 2 ** (1 + way.count("_")), one="megatron_one"
    )
for way in ("tp2", "pp2", "tp2_pp2", "tp2_cp2"):
    _job(f"{way}_epsilon_of_rank_1", "add rms_norm _fused_rms_norm", "add rms_norm _fused_rms_norm",
         change=_of_rank_1(_epsilon))  # fmt: skip
    _job(f"{way}_weight_of_rank_1", "mul_", "mul_ mm t linear",
         change=_of_rank_1(_scaled_weight))  # fmt: skip
for way in ("tp2", "tp2_pp2", "tp2_cp2"):
    _job(f"{way}_not_reduced", "allreduce_", "add allreduce_",
         patch=_patched("tensor_parallel.mappings", "_reduce", _once(lambda x, *_: x)))  # fmt: skip
for name, function in (
    ("sp2_norm_gradients_not_reduced", "_allreduce_non_tensor_model_parallel_grads"),
    ("pp2_tied_gradients_not_reduced", "_allreduce_word_embedding_grads"),
):
    patch = _patched("distributed.finalize_model_grads", function, _nothing)
    _job(name, "allreduce_", "allreduce_ AdamW FusedAdam", patch=patch)
_job("cp2_positions_of_first_rank", "mul cos sin chunk split", "mul cos sin chunk split",
     patch=_patched("models.common.embeddings.rotary_pos_embedding", "get_pos_emb_on_this_cp_rank",
                    _first_positions))  # fmt: skip
