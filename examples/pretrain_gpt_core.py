"""Pretrain a GPT of megatron-core on synthetic tokens, in every parallelism that megatron-core has.

    isthmus run examples/pretrain_gpt_core.py
    isthmus run --nproc 2 examples/pretrain_gpt_core.py --tensor-model-parallel-size 2 --sequence-parallel
    isthmus run --nproc 4 examples/pretrain_gpt_core.py --tensor-model-parallel-size 2 --context-parallel-size 2

Without --bf16 or --fp16 the losses of all of them agree to rounding, with each other and with those of the plain
PyTorch model of --plain, for the weights depend on nothing but --seed. (Experts are trained by megatron-core only.)
"""

from __future__ import annotations

import isthmus.megatron  # noqa: F401 - the only line that is not Megatron's; must come first

# isort: split
import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from gpt_core import data, plain, weights
from gpt_core.flags import parse_args
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from megatron.core.utils import get_batch_on_this_cp_rank, get_model_config

from isthmus.megatron import recompute


def start_process_group() -> None:
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "RANK" not in os.environ:
        store = dist.TCPStore("localhost", 0, 1, is_master=True)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    else:
        dist.init_process_group("nccl")


def start_parallelism(args: argparse.Namespace) -> None:
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        create_gloo_process_groups=False,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(args.seed)


def transformer_config(args: argparse.Namespace) -> TransformerConfig:
    names = (
        "num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups normalization hidden_dropout "
        "attention_dropout tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
        "virtual_pipeline_model_parallel_size expert_model_parallel_size sequence_parallel bf16 fp16 "
        "recompute_granularity recompute_method recompute_num_layers"
    ).split()
    settings: dict[str, Any] = {name: getattr(args, name) for name in names}
    if args.context_parallel_size > 1:
        settings["cp_comm_type"] = args.cp_comm_type
    if args.num_experts:
        settings |= {
            "num_moe_experts": args.num_experts,
            "moe_router_topk": args.moe_router_topk,
            "moe_token_dispatcher_type": args.moe_token_dispatcher_type,
            "moe_aux_loss_coeff": 0.0,
            "moe_router_load_balancing_type": "none",
        }
    return TransformerConfig(
        **settings,
        params_dtype=torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32,
        pipeline_dtype=torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        gradient_accumulation_fusion=not args.no_gradient_accumulation_fusion,
        apply_rope_fusion=not args.no_rope_fusion,
    )


def build_stage(args: argparse.Namespace, config: TransformerConfig, chunk: int | None) -> GPTModel:
    """The layers of this rank; ``chunk`` is the index in an interleaved pipeline."""
    model = GPTModel(
        config,
        get_gpt_decoder_block_spec(
            config, use_transformer_engine=False, normalization=args.normalization, vp_stage=chunk
        ),
        vocab_size=args.vocab_size,
        max_sequence_length=args.seq_length,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=chunk),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=chunk),
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type="rope",
        rotary_percent=args.rotary_percent,
        vp_stage=chunk,
    )
    local_experts = (args.num_experts or 0) // args.expert_model_parallel_size
    weights.initialize(
        model,
        get_transformer_layer_offset(config, vp_stage=chunk),
        local_experts * parallel_state.get_expert_model_parallel_rank(),
        (
            parallel_state.get_tensor_model_parallel_rank(),
            parallel_state.get_tensor_model_parallel_world_size(),
        ),
        not args.untie_embeddings_and_output_weights,
        args.seed,
    )
    return model.cuda()


def build_model(args: argparse.Namespace, config: TransformerConfig) -> list[DistributedDataParallel]:
    """The pipeline stages of this rank, with data-parallel gradient reduction."""
    from megatron.core.transformer.module import Float16Module

    chunks = args.virtual_pipeline_model_parallel_size
    stages = [build_stage(args, config, chunk) for chunk in (range(chunks) if chunks else [None])]
    if args.bf16 or args.fp16:
        stages = [Float16Module(config, stage) for stage in stages]
    reduction = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=args.overlap_grad_reduce,
        overlap_param_gather=args.overlap_param_gather,
        use_distributed_optimizer=args.use_distributed_optimizer,
        bucket_size=10_000 if args.overlap_grad_reduce else None,
    )
    return [
        DistributedDataParallel(config, reduction, stage, disable_bucketing=index > 0)
        for index, stage in enumerate(stages)
    ]


def build_optimizer(args: argparse.Namespace, model: list[DistributedDataParallel]) -> Any:
    config = OptimizerConfig(
        optimizer="adam",
        lr=args.lr,
        weight_decay=args.weight_decay,
        adam_beta2=0.95,
        clip_grad=args.clip_grad,
        bf16=args.bf16,
        fp16=args.fp16,
        initial_loss_scale=2.0**16,
        params_dtype=get_model_config(model[0]).params_dtype,
        use_distributed_optimizer=args.use_distributed_optimizer,
        overlap_param_gather=args.overlap_param_gather,
    )
    return get_megatron_optimizer(config, model, use_gloo_process_groups=False)


def build_scheduler(args: argparse.Namespace, optimizer: Any) -> OptimizerParamScheduler:
    """Constant learning rate; the scheduler excludes norms from weight decay."""
    steps = args.train_iters * args.global_batch_size
    return OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=args.lr,
        min_lr=args.lr,
        lr_warmup_steps=0,
        lr_decay_steps=steps,
        lr_decay_style="constant",
        start_wd=args.weight_decay,
        end_wd=args.weight_decay,
        wd_incr_steps=steps,
        wd_incr_style="constant",
    )


def batches(args: argparse.Namespace, iteration: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield this data-parallel rank's micro-batches of an iteration."""
    rank, size = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    first = iteration * args.global_batch_size
    for start in range(rank * args.micro_batch_size, args.global_batch_size, size * args.micro_batch_size):
        batch = data.samples(args, first + start, args.micro_batch_size)
        yield get_batch_on_this_cp_rank({name: each.cuda() for name, each in batch.items()})


def _sum_of(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    total, count = losses.float().sum(), torch.tensor(losses.numel(), dtype=torch.int, device=losses.device)
    return total, count, {"loss": torch.stack([total.detach(), count.float()])}


def forward_step(micro_batches: Any, model: Any) -> Any:
    batch = next(micro_batches)
    losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    return losses, _sum_of


def train_step(
    args: argparse.Namespace, model: list[Any], optimizer: Any, scheduler: Any, iteration: int
) -> tuple[float, float]:
    """Mean loss of an iteration, on the ranks of the last stage (others: nan), and the norm of the gradient."""
    for chunk in model:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    ranks = parallel_state.get_data_parallel_world_size()
    iterators = [batches(args, iteration) for _ in model]
    reports = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=iterators if len(model) > 1 else iterators[0],
        model=model if len(model) > 1 else model[0],
        num_microbatches=args.global_batch_size // args.micro_batch_size // ranks,
        seq_length=args.seq_length,
        micro_batch_size=args.micro_batch_size,
        forward_only=False,
    )
    is_updated, norm, _ = optimizer.step()
    if is_updated:  # False after a float16 overflow
        scheduler.step(args.global_batch_size)
    if not reports:
        return float("nan"), float(norm or 0)
    total = torch.stack([report["loss"] for report in reports]).sum(0)
    dist.all_reduce(total, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return float(total[0] / total[1]), float(norm or 0)


def trainer(args: argparse.Namespace) -> Callable[[int], tuple[float, float]]:
    """A function that performs step i and returns loss and gradient norm, on the ranks of the last stage."""
    start_parallelism(args)
    ranks = parallel_state.get_data_parallel_world_size()
    if args.global_batch_size % (args.micro_batch_size * ranks):
        raise ValueError(
            f"--global-batch-size {args.global_batch_size} must be a multiple of --micro-batch-size "
            f"{args.micro_batch_size} times {ranks} data-parallel ranks"
        )
    recompute.set_level(args.optimize_recomp_communication_level)
    config = transformer_config(args)
    model = build_model(args, config)
    optimizer = build_optimizer(args, model)
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if args.overlap_grad_reduce:
        no_sync = [chunk.no_sync for chunk in model]
        config.no_sync_func = no_sync if len(model) > 1 else no_sync[0]
    return functools.partial(train_step, args, model, optimizer, build_scheduler(args, optimizer))


def report(args: argparse.Namespace, step: Any, prints: bool) -> None:
    """Run the steps; one rank prints Megatron's log line for each."""
    for iteration in range(args.train_iters):
        began = time.perf_counter()
        loss, norm = step(iteration)
        elapsed = 1e3 * (time.perf_counter() - began)
        if prints:
            print(
                f" iteration {iteration + 1:8d}/{args.train_iters:8d} | "
                f"consumed samples: {(iteration + 1) * args.global_batch_size:12d} | "
                f"elapsed time per iteration (ms): {elapsed:.1f} | learning rate: {args.lr:.6E} | "
                f"global batch size: {args.global_batch_size:5d} | lm loss: {loss:.8E} | grad norm: {norm:.5f} |",
                flush=True,
            )


def main() -> None:
    args = parse_args()
    if not args.plain:
        start_process_group()
    try:
        step = plain.trainer(args) if args.plain else trainer(args)
    except ValueError as error:
        sys.exit(f"pretrain_gpt_core.py: {error}")
    if args.plain:
        report(args, step, True)
        return
    report(args, step, dist.get_rank() == dist.get_world_size() - 1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
