"""Pretrain a LLaMA from scratch on one GPU or NPU or, under torchrun, on several.

    python examples/pretrain_llama.py --output runs/llama
    python examples/pretrain_llama.py --output runs/llama --resume
    torchrun --nproc_per_node 8 examples/pretrain_llama.py --data books.jsonl --hidden-size 1024

The output folder receives checkpoints, metrics.jsonl, loss.png and the tokenizer. A resumed run continues to
the bit; where metrics.jsonl already holds the iterations that it repeats, it compares its losses with theirs.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pretraining import checkpoint
from pretraining.checkpoint import CheckpointError
from pretraining.corpus import (
    CorpusError,
    Windows,
    encode,
    fingerprint,
    load_or_train_tokenizer,
    read_documents,
    split_windows,
)
from pretraining.files import make_folder
from pretraining.flags import MODEL_FLAGS, RUN_FLAGS, parse_args
from pretraining.journal import Journal
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM

if hasattr(torch, "npu"):  # the vendor's way to run CUDA code on Ascend NPUs
    from torch_npu.contrib import transfer_to_npu  # noqa: F401

RANK = int(os.environ.get("RANK", "0"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))


class RunError(RuntimeError):
    """The run cannot start or continue; the message is one line with the remedy."""


# ---- Model, optimizer, data ----------------------------------------------------------------------------


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def build_model(args: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=args.hidden_size,
        intermediate_size=args.ffn_hidden_size,
        num_hidden_layers=args.num_layers,
        num_attention_heads=args.num_heads,
        num_key_value_heads=args.num_kv_heads,
        vocab_size=args.vocab_size,
        max_position_embeddings=args.seq_length,
        attention_dropout=args.dropout,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.cuda()
    return model


def build_optimizer(model: torch.nn.Module, args: argparse.Namespace) -> torch.optim.AdamW:
    matrices = [weight for weight in model.parameters() if weight.ndim >= 2]
    vectors = [weight for weight in model.parameters() if weight.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    decay = args.weight_decay
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), weight_decay=decay, fused=True)


def learning_rate(iteration: int, args: argparse.Namespace) -> float:
    """Linear warm-up, then half a cosine down to --min-lr; iterations count from 1."""
    if iteration <= args.warmup:
        return float(args.lr * iteration / args.warmup)
    progress = (iteration - args.warmup) / (args.iterations - args.warmup)
    return float(args.min_lr + (args.lr - args.min_lr) * 0.5 * (1 + math.cos(math.pi * progress)))


def sample_order(samples: int, first: int, args: argparse.Namespace) -> Iterator[list[int]]:
    """Endless iterator over the sample indices of this rank's micro-batches, from global position `first` on.

    Position p is item p of one long order, a permutation per epoch drawn from the seed and the epoch alone:
    it depends neither on where a run was resumed nor on its micro-batch size and number of ranks.
    """
    epoch, order = -1, torch.empty(0)
    start = first + RANK * args.micro_batch_size
    while True:
        batch = []
        for position in range(start, start + args.micro_batch_size):
            if position // samples != epoch:
                epoch = position // samples
                order = torch.randperm(samples, generator=torch.Generator().manual_seed(args.seed + epoch))
            batch.append(int(order[position % samples]))
        yield batch
        start += args.micro_batch_size * WORLD_SIZE


def prepare_data(args: argparse.Namespace) -> tuple[Windows, Windows]:
    """Windows for training and evaluation. Local rank 0 trains the tokenizer before the others load it."""
    documents = read_documents(args.data)
    name = str(args.data or "the Python reference")
    if LOCAL_RANK:
        checkpoint.barrier()
    tokenizer = load_or_train_tokenizer(documents, args.vocab_size, args.output)
    if not LOCAL_RANK:
        checkpoint.barrier()
    tokens = encode(tokenizer, documents)
    train, held_out = split_windows(tokens, args.seq_length, args.eval_fraction, name)
    say(f"data: {name}, {len(tokens)} tokens, {len(train)} samples for training, {len(held_out)} held out")
    args.corpus = fingerprint(documents)
    return train, held_out


# ---- Training ------------------------------------------------------------------------------------------


def loss_of(model: torch.nn.Module, batch: list[torch.Tensor], bf16: bool) -> torch.Tensor:
    """Mean cross-entropy of a batch (inputs, targets) on the host, each int64 of (samples, seq_length)."""
    inputs, targets = (part.to("cuda", non_blocking=True) for part in batch)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
        logits = model(input_ids=inputs).logits
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def train_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Any], args: argparse.Namespace
) -> tuple[float, float]:
    """One iteration over all its micro-batches: the global loss and the gradient norm before clipping."""
    passes = args.global_batch_size // (args.micro_batch_size * WORLD_SIZE)
    total = torch.zeros((), device="cuda")
    for index in range(passes):
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = index == passes - 1
        loss = loss_of(model, next(batches), args.bf16) / passes
        loss.backward()
        total += loss.detach()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if WORLD_SIZE > 1:
        dist.all_reduce(total)
    return float(total) / WORLD_SIZE, float(norm)


@torch.no_grad()
def evaluate(model: torch.nn.Module, windows: Windows, args: argparse.Namespace) -> float:
    """Mean loss over the held-out windows, at most --eval-samples of them; every rank computes it."""
    model.eval()
    total, samples = 0.0, min(len(windows), args.eval_samples)
    for start in range(0, samples, args.micro_batch_size):
        chosen = [windows[i] for i in range(start, min(samples, start + args.micro_batch_size))]
        batch = [torch.stack(part) for part in zip(*chosen, strict=True)]
        total += float(loss_of(model, batch, args.bf16)) * len(chosen)
    model.train()
    return total / samples


def resume(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, args: argparse.Namespace) -> int:
    """Restore model, optimizer and generators; the iteration after which the checkpoint was written."""
    path = checkpoint.find(args.output, args.resume or None)
    state = checkpoint.read(path)
    for flag, now in recorded_flags(args).items():
        then = state["flags"][flag]
        name = "the text of --data" if flag == "corpus" else "--" + flag.replace("_", "-")
        if now != then and flag in MODEL_FLAGS:
            raise RunError(f"{path}: written with {name} {then}, not {now}; resume with the same flags")
        if now != then:
            say(f"resume: {name} was {then}, now {now}: losses will differ from the earlier run")
    model.load_state_dict(state["weights"])
    optimizer.load_state_dict(state["optimizer"])
    if state["rng"] is None:
        say(f"resume: {path} has no generator state for rank {RANK}; starting from --seed")
    else:
        checkpoint.set_rng_state(state["rng"])
    say(f"resume: {path}")
    return int(state["iteration"])


def recorded_flags(args: argparse.Namespace) -> dict[str, Any]:
    return {flag: getattr(args, flag) for flag in MODEL_FLAGS + RUN_FLAGS}


# ---- Log -----------------------------------------------------------------------------------------------


def say(message: str) -> None:
    if RANK == 0:
        tqdm.write(message, file=sys.stdout)
        sys.stdout.flush()


def model_line(model: LlamaForCausalLM, args: argparse.Namespace) -> str:
    size = sum(weight.numel() for weight in model.parameters()) / 1e6
    precision = "bfloat16 autocast" if args.bf16 else "float32"
    return f"model: {size:.1f} M parameters, {WORLD_SIZE} x {torch.cuda.get_device_name()}, {precision}"


def flops_per_token(model: LlamaForCausalLM, args: argparse.Namespace) -> float:
    """Forward and backward: 6 for each weight of a matrix product, and 12 h s for attention in each layer."""
    weights = sum(w.numel() for n, w in model.named_parameters() if w.ndim == 2 and "embed_tokens" not in n)
    return 6.0 * weights + 12.0 * args.num_layers * args.hidden_size * args.seq_length


def iteration_line(
    iteration: int, loss: float, norm: float, *, seconds: float, flops: float, args: argparse.Namespace
) -> str:
    """The line that Megatron and ModelLink print; seconds of one iteration, flops of one token."""
    batch, samples = args.global_batch_size, iteration * args.global_batch_size
    tgs = batch * args.seq_length / seconds / WORLD_SIZE
    fields = [
        f" iteration {iteration:8d}/{args.iterations:8d}",
        f"consumed samples: {samples:12d}",
        f"consumed tokens: {samples * args.seq_length:12d}",
        f"elapsed time per iteration (ms): {seconds * 1000:.1f}",
        f"learning rate: {learning_rate(iteration, args):.3E}",
        f"global batch size: {batch:5d}",
        f"lm loss: {loss:.6E}",
        f"loss scale: {1.0:.1f}",
        f"grad norm: {norm:.3f}",
        f"actual seqlen: {args.seq_length:5d}",
        f"number of skipped iterations: {0:3d}",
        f"number of nan iterations: {0:3d}",
        f"samples per second: {batch / seconds:.3f}",
        f"TFLOPs: {tgs * flops / 1e12:.2f}",
        f"tgs (tokens/gpu/second): {tgs:.2f}",
    ]
    if args.peak_tflops is not None:
        fields.append(f"MFU: {tgs * flops / 1e12 / args.peak_tflops:.1%}")
    return " | ".join(fields)


# ---- The run -------------------------------------------------------------------------------------------


@dataclass
class Run:
    """State of the training loop; `wrapped` is the model itself, or its DistributedDataParallel."""

    args: argparse.Namespace
    model: LlamaForCausalLM
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    held_out: Windows
    journal: Journal


def train(args: argparse.Namespace) -> None:
    train_windows, held_out = prepare_data(args)
    seed_everything(args.seed)
    model = build_model(args)
    optimizer = build_optimizer(model, args)
    seed_everything(args.seed + RANK)
    first = resume(model, optimizer, args) if args.resume is not None else 0
    last = min(args.iterations, args.exit_iteration or args.iterations)
    if first >= last:
        raise RunError(f"nothing to do: the checkpoint is at iteration {first}, and the run ends at {last}")
    if args.overwrite and RANK == 0:
        set_earlier_run_aside(args.output)
    checkpoint.barrier()
    journal = Journal(args.output / "metrics.jsonl", writes=RANK == 0)
    wrapped = DistributedDataParallel(model, device_ids=[LOCAL_RANK]) if WORLD_SIZE > 1 else model
    order: Any = sample_order(len(train_windows), first * args.global_batch_size, args)
    # The loader has its own generator, so that it does not advance the restored one.
    generator = torch.Generator()
    loader = DataLoader(train_windows, batch_sampler=order, pin_memory=True, generator=generator)
    run = Run(args, model, wrapped, optimizer, held_out, journal)
    iterate(run, iter(loader), first, last)
    finish(journal, first + 1, last, args)


def iterate(run: Run, batches: Iterator[Any], first: int, last: int) -> None:
    """Iterations first + 1 to last: train, log, evaluate, save."""
    args, journal = run.args, run.journal
    repeated = min(last, max(journal.earlier, default=0))
    if args.verify_resume and repeated <= first:
        raise RunError(f"{journal.path}: no iteration after {first} to verify against; run past it first")
    say(model_line(run.model, args))
    show = RANK == 0 and args.progress
    times: list[float] = []
    for iteration in tqdm(range(first + 1, last + 1), initial=first, total=args.iterations, disable=not show):
        start = time.perf_counter()
        args.reached = iteration
        rate = learning_rate(iteration, args)
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        loss, norm = train_step(run.wrapped, run.optimizer, batches, args)
        times.append(time.perf_counter() - start)
        if not math.isfinite(loss):
            raise RunError(f"iteration {iteration}: the loss is {loss}; lower --lr, and resume or restart")
        journal.add(iteration, loss, lr=rate, grad_norm=norm, milliseconds=1000 * times[-1])
        if iteration % args.log_interval == 0 or iteration == last:
            flops = flops_per_token(run.model, args)
            say(iteration_line(iteration, loss, norm, seconds=mean(times), flops=flops, args=args))
            times.clear()
        evaluate_and_save(run, iteration, last)
        if args.resume is not None and iteration == repeated:
            report_repetition(journal, first + 1, repeated, args.verify_resume)


def evaluate_and_save(run: Run, iteration: int, last: int) -> None:
    args = run.args
    if len(run.held_out) and (iteration % args.eval_interval == 0 or iteration == last):
        loss = evaluate(run.wrapped, run.held_out, args)
        run.journal.add_evaluation(iteration, loss)
        say(f" evaluation at iteration {iteration} | lm loss: {loss:.6E} | perplexity: {math.exp(loss):.2f}")
    if iteration % args.save_interval == 0 or iteration == last:
        path = checkpoint.save(args.output, iteration, run.model, run.optimizer, recorded_flags(args))
        say(f"checkpoint: {path}")


def report_repetition(journal: Journal, first: int, last: int, strict: bool) -> None:
    equal, message = journal.compare(first, last)
    if strict and not equal:
        raise RunError(f"resume: {message}")
    say(f"resume: {message}")


def finish(journal: Journal, first: int, last: int, args: argparse.Namespace) -> None:
    """Plot the losses of metrics.jsonl, and summarize this run, iterations first to last."""
    if RANK == 0:
        journal.plot(args.output / "loss.png")
    losses, curve = journal.losses, args.output / "loss.png"
    peak = torch.cuda.max_memory_allocated() / 2**20
    say(
        f"done: loss {losses[first]:.3f} at iteration {first}, {losses[last]:.3f} at {last}; "
        f"peak memory {peak:.0f} MiB; curve in {curve}"
    )


def earlier_run(folder: Path) -> list[Path]:
    """Files written by a run, except the tokenizer, which depends only on the text."""
    patterns = ("metrics.jsonl", "loss.png", "checkpoint-*", ".checkpoint-*.incomplete")
    return [path for pattern in patterns for path in folder.glob(pattern)]


def prepare_output(args: argparse.Namespace) -> None:
    if args.resume is not None:  # report a missing checkpoint before tokenizing
        checkpoint.find(args.output, args.resume or None)
    make_folder(args.output)
    if earlier_run(args.output) and args.resume is None and not args.overwrite:
        raise RunError(
            f"{args.output}: contains an earlier run; add --resume, --overwrite or another --output"
        )


def set_earlier_run_aside(folder: Path) -> None:
    """Move a run with checkpoints to <folder>.previous, replacing an older one."""
    if checkpoint.newest(folder) is None:
        remove(earlier_run(folder))
        return
    previous = folder.resolve().with_name(folder.resolve().name + ".previous")
    make_folder(previous)
    remove(earlier_run(previous))
    for path in earlier_run(folder):
        shutil.move(path, previous / path.name)
    say(f"overwrite: the earlier run is now in {previous}")


def remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def end_by_interrupt(args: argparse.Namespace) -> None:
    """Print the progress of the run, then exit by SIGINT, so that a calling shell stops too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if RANK == 0:
        where = f"at iteration {args.reached}" if args.reached else "before the first iteration"
        newest = checkpoint.newest(args.output)
        then = f"newest checkpoint: {newest}; continue with --resume" if newest else "no checkpoint yet"
        tqdm.write(f"pretrain_llama.py: interrupted {where}; {then}", file=sys.stderr)
        sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    args = parse_args(WORLD_SIZE)
    args.reached = 0
    try:
        if not torch.cuda.is_available():
            raise RunError("no CUDA device; install a driver and a PyTorch built for it")
        torch.cuda.set_device(LOCAL_RANK)
        if WORLD_SIZE > 1:
            dist.init_process_group(backend="nccl")
        if RANK == 0:
            prepare_output(args)
        checkpoint.barrier()
        train(args)
    except (RunError, CorpusError, CheckpointError, OSError) as error:
        if LOCAL_RANK == 0:
            print(f"pretrain_llama.py: error: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    except KeyboardInterrupt:
        end_by_interrupt(args)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
