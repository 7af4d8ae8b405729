"""The flags of a layout for Megatron-LM, torchtitan and DeepSpeed."""

from __future__ import annotations

import json

from isthmus_diagnostics.plan.files import PlanError
from isthmus_diagnostics.plan.parallel.layouts import Layout
from isthmus_diagnostics.plan.parallel.model import Model

TARGETS = ("megatron", "torchtitan", "deepspeed")


def emit(target: str, model: Model, layout: Layout) -> str:
    """Return the options of a layout: a command line, or for DeepSpeed its configuration in JSON.

    Raises:
        PlanError: the target does not exist, or does not have what the layout needs.
    """
    if target not in TARGETS:
        raise PlanError(f"--emit {target}: expected {', '.join(TARGETS)}")
    return {"megatron": _megatron, "torchtitan": _torchtitan, "deepspeed": _deepspeed}[target](model, layout)


def _megatron(model: Model, layout: Layout) -> str:
    """Options of Megatron-LM 0.16 to 0.20."""
    flags = [
        f"--tensor-model-parallel-size {layout.tp}",
        f"--pipeline-model-parallel-size {layout.pp}",
        f"--context-parallel-size {layout.cp}",
        f"--micro-batch-size {layout.micro_batch}",
        f"--global-batch-size {layout.global_batch}",
        f"--seq-length {model.seq}",
        "--use-distributed-optimizer",
    ]
    if layout.tp > 1:
        flags.append("--sequence-parallel")
    if layout.vpp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {layout.vpp}")
    if model.experts:
        flags.append(f"--expert-model-parallel-size {layout.ep}")
    if model.dtype != "float32":
        flags.append("--bf16" if model.dtype == "bfloat16" else "--fp16")
    if layout.recompute == "full":
        flags.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    return " ".join(flags)


def _torchtitan(model: Model, layout: Layout) -> str:
    """Options of torchtitan 0.2."""
    parallel = {
        "data_parallel_shard_degree": layout.dp,
        "tensor_parallel_degree": layout.tp,
        "pipeline_parallel_degree": layout.pp,
        "context_parallel_degree": layout.cp,
        "expert_parallel_degree": layout.ep,
    }
    if layout.pp > 1:
        parallel["pipeline_parallel_microbatch_size"] = layout.micro_batch
        parallel["pipeline_parallel_layers_per_stage"] = model.layers // (layout.pp * layout.vpp)
        parallel["pipeline_parallel_first_stage_less_layers"] = 0
        parallel["pipeline_parallel_last_stage_less_layers"] = 0
    # A pipeline takes all micro-batches of a rank at once; without one, gradients of several are accumulated.
    local = layout.global_batch // layout.dp if layout.pp > 1 else layout.micro_batch
    flags = [f"--parallelism.{name} {value}" for name, value in parallel.items()]
    if layout.pp > 1:
        schedule = "Interleaved1F1B" if layout.vpp > 1 else "1F1B"
        flags.append(f"--parallelism.pipeline_parallel_schedule {schedule}")
    flags += [
        f"--training.local_batch_size {local}",
        f"--training.global_batch_size {layout.global_batch}",
        f"--training.seq_len {model.seq}",
        f"--activation_checkpoint.mode {layout.recompute}",
    ]
    return " ".join(flags)


def _deepspeed(model: Model, layout: Layout) -> str:
    """Configuration of DeepSpeed 0.19 with ZeRO 1; stages of a PipelineModule are in code.

    Without the global batch size: DeepSpeed computes it from all ranks, also those of tensor parallelism.
    """
    if layout.vpp > 1 or layout.cp > 1:
        raise PlanError(
            "DeepSpeed has no interleaved pipeline and no ring of context parallelism; choose another row"
        )
    config = {
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_batches,
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": model.dtype == "bfloat16"},
        "fp16": {"enabled": model.dtype == "float16"},
    }
    if layout.tp > 1:
        config["tensor_parallel"] = {"autotp_size": layout.tp}
    return json.dumps(config, indent=2)
