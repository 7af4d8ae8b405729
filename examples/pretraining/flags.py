"""The command line of pretrain_llama.py."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from pretraining.corpus import SMALLEST_VOCABULARY

# Recorded in checkpoints: flags that must not change on resuming, and flags that affect the losses.
MODEL_FLAGS = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "ffn_hidden_size", "vocab_size")
RUN_FLAGS = (
    *("corpus", "eval_fraction", "seq_length", "micro_batch_size", "global_batch_size", "iterations", "seed"),
    *("lr", "min_lr", "warmup", "weight_decay", "clip_grad", "dropout", "bf16"),
)

# --tiny: defaults of the other flags.
TINY: dict[str, float] = {
    **{"hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "vocab_size": 512},
    **{"seq_length": 64, "micro_batch_size": 2, "global_batch_size": 4, "iterations": 20},
    **{"lr": 5e-3, "log_interval": 5, "eval_interval": 20, "eval_samples": 4},
}
WARMUP, TINY_WARMUP = 20, 2


def parse_args(world_size: int) -> argparse.Namespace:
    """The flags of the command line; errors exit with one line and status 2."""
    parser = argparse.ArgumentParser(description="Pretrain a LLaMA from scratch.")
    add_model_flags(parser.add_argument_group("model"))
    add_training_flags(parser.add_argument_group("training"))
    add_data_flags(parser.add_argument_group("data"))
    add_output_flags(parser.add_argument_group("output"))
    args = parser.parse_args()
    if args.tiny:
        parser.set_defaults(**TINY)
        args = parser.parse_args()
    if args.warmup is None:  # a run of a few iterations works without the flag
        args.warmup = min(TINY_WARMUP if args.tiny else WARMUP, args.iterations - 1)
    args.num_kv_heads = args.num_kv_heads or args.num_heads
    # SwiGLU has three matrices where a plain block has two of width 4h: 8h/3 costs the same.
    args.ffn_hidden_size = args.ffn_hidden_size or 32 * math.ceil(8 * args.hidden_size / 3 / 32)
    check(parser, args, world_size)
    return args


def add_model_flags(group: Any) -> None:
    group.add_argument(
        "--tiny", action="store_true", help="0.2 M parameters, 20 iterations: seconds on any device"
    )
    add(group, "--hidden-size", count, 256, "width of the model")
    add(group, "--num-layers", count, 4, "transformer layers")
    add(group, "--num-heads", count, 4, "attention heads")
    add(group, "--num-kv-heads", count, None, "key and value heads (default: --num-heads)")
    add(group, "--ffn-hidden-size", count, None, "width of the SwiGLU block (default: 8/3 of --hidden-size)")
    add(group, "--vocab-size", count, 2048, "rows of the embedding, and BPE tokens at most")
    add(group, "--dropout", float, 0.0, "of attention probabilities")


def add_training_flags(group: Any) -> None:
    add(group, "--iterations", count, 300, "length of the run and of the learning-rate schedule")
    add(group, "--micro-batch-size", count, 8, "samples per rank and forward pass")
    add(group, "--global-batch-size", count, 16, "samples per iteration, over all ranks and passes")
    add(group, "--lr", float, 3e-3, "peak learning rate")
    add(group, "--min-lr", float, 3e-4, "learning rate at the end of the cosine")
    meaning = f"iterations of linear warm-up (default: {WARMUP}, or all but one of a shorter run)"
    add(group, "--warmup", int, None, meaning)
    add(group, "--weight-decay", float, 0.1, "of the matrices")
    add(group, "--clip-grad", float, 1.0, "largest norm of the gradient")
    add(group, "--seed", int, 1234, "of weights, data order and dropout")
    switch = argparse.BooleanOptionalAction
    group.add_argument("--bf16", action=switch, default=True, help="bfloat16 autocast (default: on)")


def add_data_flags(group: Any) -> None:
    kinds = '.txt, .jsonl of {"text": ...} or Alpaca .json (default: the reference of the Python language)'
    add(group, "--data", Path, None, kinds, metavar="FILE")
    add(group, "--seq-length", count, 256, "tokens per sample")
    add(group, "--eval-fraction", float, 0.1, "of the tokens, held out for evaluation")
    add(group, "--eval-interval", count, 50, "iterations between evaluations")
    add(group, "--eval-samples", count, 64, "held-out samples to evaluate on, at most")


def add_output_flags(group: Any) -> None:
    add(
        group,
        "--output",
        Path,
        Path("runs/llama"),
        "folder of checkpoints and metrics, made if absent",
        metavar="DIR",
    )
    group.add_argument(
        "--overwrite", action="store_true", help="restart; an earlier run moves to DIR.previous"
    )
    newest = "continue from the checkpoint of an iteration, or from the newest"
    group.add_argument("--resume", nargs="?", type=count, const=0, metavar="ITERATION", help=newest)
    verify = "fail unless the resumed losses repeat the earlier run's to the bit"
    group.add_argument("--verify-resume", action="store_true", help=verify)
    add(group, "--save-interval", count, 100, "iterations between checkpoints; the last is always saved")
    add(
        group, "--exit-iteration", count, None, "stop after this one; the schedule stays that of --iterations"
    )
    add(group, "--log-interval", count, 10, "iterations per line of the log")
    add(group, "--peak-tflops", float, None, "of one device; adds its utilisation (MFU) to the log")
    switch, terminal = argparse.BooleanOptionalAction, sys.stderr.isatty()
    group.add_argument(
        "--progress", action=switch, default=terminal, help="progress bar (default: on a terminal)"
    )


def add(group: Any, name: str, kind: Any, default: Any, meaning: str, *, metavar: str = "") -> None:
    """Add a flag with a value; its help includes the default."""
    help_text = meaning if default is None else f"{meaning} (default: {default})"
    metavar = metavar or ("X" if kind is float else "N")
    group.add_argument(name, type=kind, default=default, metavar=metavar, help=help_text)


def count(text: str) -> int:
    """A positive whole number."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def check(parser: argparse.ArgumentParser, args: argparse.Namespace, world_size: int) -> None:
    """Exit if flags contradict each other."""
    per_pass = args.micro_batch_size * world_size
    if args.hidden_size % (2 * args.num_heads):
        parser.error(
            f"--hidden-size {args.hidden_size} must be a multiple of 2 x --num-heads {args.num_heads}"
        )
    if args.num_heads % args.num_kv_heads:
        parser.error(f"--num-heads {args.num_heads} must be a multiple of --num-kv-heads {args.num_kv_heads}")
    if args.global_batch_size % per_pass:
        parser.error(
            f"--global-batch-size {args.global_batch_size} must be a multiple of {per_pass}: "
            f"--micro-batch-size {args.micro_batch_size} x {world_size} ranks"
        )
    if args.vocab_size < SMALLEST_VOCABULARY:
        parser.error(
            f"--vocab-size {args.vocab_size} must be at least {SMALLEST_VOCABULARY}, all bytes and one"
        )
    if not (0 <= args.eval_fraction < 1 and 0 <= args.dropout < 1):
        parser.error("--eval-fraction and --dropout must be at least 0 and below 1")
    if not (args.lr > 0 and args.min_lr >= 0 and args.weight_decay >= 0 and args.clip_grad > 0):
        parser.error("--lr and --clip-grad must be above 0, --min-lr and --weight-decay at least 0")
    if not 0 <= args.warmup < args.iterations:
        parser.error(f"--warmup {args.warmup} must be at least 0 and below --iterations {args.iterations}")
    if args.seed < 0:
        parser.error(f"--seed {args.seed} must be at least 0")
    if args.overwrite and args.resume is not None:
        parser.error("--overwrite moves away what --resume needs; give one of them")
    if args.verify_resume and args.resume is None:
        parser.error("--verify-resume goes with --resume")
