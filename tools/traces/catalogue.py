"""The ten published traces and the jobs that make them."""

import random

from isthmus.memory.trace import Trace, TraceError
from tools.traces.models import Shape
from tools.traces.recorder import Recorder
from tools.traces.training import Job, Lengths, Training


def _fixed(batch: int, length: int) -> Lengths:
    return lambda _: (batch, length)


def _varying(batch: int, shortest: int, longest: int) -> Lengths:
    """Draw lengths padded to eight tokens, short ones more often than long ones."""

    def draw(source: random.Random) -> tuple[int, int]:
        length = shortest + (longest - shortest) * source.random() ** 2
        return batch, int(length) // 8 * 8

    return draw


def _llama_7b(**changes: bool) -> Shape:
    return Shape(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, **changes)


def _llama_13b_stage(layers: int) -> Shape:
    return Shape(layers=layers, hidden=5120, heads=40, kv_heads=40, ffn=13824, tensor_parallel=2)


JOBS: dict[str, tuple[str, Job]] = {
    "dense-7b": (
        "LLaMA 7B, 1 x 4096 tokens, no recompute, optimizer states over 8 ranks",
        Job(shape=_llama_7b(), lengths=_fixed(1, 4096)),
    ),
    "dense-7b-full": (
        "LLaMA 7B, 4 x 4096 tokens, full recompute, optimizer states over 8 ranks",
        Job(shape=_llama_7b(), lengths=_fixed(4, 4096), recompute="full"),
    ),
    "dense-7b-selective": (
        "LLaMA 7B, 1 x 2048 tokens, unfused attention, recomputed, optimizer states over 8 ranks",
        Job(shape=_llama_7b(unfused_attention=True), lengths=_fixed(1, 2048), recompute="selective"),
    ),
    "variable-7b": (
        "LLaMA 7B, 2 micro-batches of 1 x 512 to 4096 tokens, optimizer states over 8 ranks",
        Job(shape=_llama_7b(), lengths=_varying(1, 512, 4096), micro_batches=2, steps=8),
    ),
    "shard-70b": (
        "LLaMA 70B, tensor parallel 8 with sequences divided, stage 1 of 4, 8 micro-batches of 1 x 4096 tokens, "
        "full recompute, fused kernels",
        Job(
            shape=Shape(
                layers=20, hidden=8192, heads=64, kv_heads=8, ffn=28672, tensor_parallel=8, fused=True
            ),
            lengths=_fixed(1, 4096),
            micro_batches=8,
            recompute="full",
            pipeline=4,
        ),
    ),
    "moe-8x7b": (
        "Mixture of 8 experts of which 2 are here, 16 layers of width 4096, 2 micro-batches of 1 x 4096 tokens, "
        "uneven routing",
        Job(
            shape=Shape(
                layers=16, hidden=4096, heads=32, kv_heads=8, ffn=14336, experts=8, expert_parallel=4
            ),
            lengths=_fixed(1, 4096),
            micro_batches=2,
            steps=8,
        ),
    ),
    "interleaved-13b": (
        "LLaMA 13B, tensor parallel 2, stage 1 of 4 in 5 interleaved chunks, 8 micro-batches of 1 x 4096 tokens",
        Job(
            shape=_llama_13b_stage(10),
            lengths=_fixed(1, 4096),
            micro_batches=8,
            pipeline=4,
            chunks=5,
            steps=4,
        ),
    ),
    "interleaved-variable-13b": (
        "LLaMA 13B, tensor parallel 2, stage 1 of 4 in 5 interleaved chunks, every second layer recomputed, "
        "8 micro-batches of 1 x 512 to 4096 tokens",
        Job(
            shape=_llama_13b_stage(10),
            lengths=_varying(1, 512, 4096),
            micro_batches=8,
            recompute="alternate",
            pipeline=4,
            chunks=5,
            steps=6,
        ),
    ),
    "accumulate-1b": (
        "LLaMA 1.3B, 4 micro-batches of 4 x 2048 tokens added up, AdamW with foreach, nothing divided",
        Job(
            shape=Shape(layers=24, hidden=2048, heads=16, kv_heads=16, ffn=5504),
            lengths=_fixed(4, 2048),
            micro_batches=4,
            optimizer="foreach",
        ),
    ),
    "gathered-13b": (
        "LLaMA 13B, weights over 16 ranks and gathered layer by layer on the communication stream, "
        "2 x 4096 tokens, full recompute",
        Job(
            shape=Shape(layers=40, hidden=5120, heads=40, kv_heads=40, ffn=13824),
            lengths=_fixed(2, 4096),
            optimizer="loop",
            data_parallel=16,
            gathered=True,
            steps=6,
        ),
    ),
}


def names() -> list[str]:
    """Return the names of the published traces."""
    return list(JOBS)


def generate(name: str) -> Trace:
    """Make a published trace, reproducible to the byte. Raises TraceError for an unknown name."""
    if name not in JOBS:
        raise TraceError(f"unknown trace {name!r}; expected one of {', '.join(JOBS)}")
    model, job = JOBS[name]
    return record(job, name=name, made=f"python -m tools.traces {name}", model=model)


def record(job: Job, *, name: str, made: str, model: str) -> Trace:
    """Run a job and return its trace."""
    recorder = Recorder()
    with recorder:
        training = Training(job, recorder)
        training.run()
        return recorder.trace(name=name, made=made, model=model)
