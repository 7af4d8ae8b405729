"""Options of the example, named as Megatron-LM names them."""

from __future__ import annotations

import argparse

from isthmus.megatron.options import add_options


def _model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--num-layers", type=int, default=2)
    group.add_argument("--hidden-size", type=int, default=64)
    group.add_argument("--ffn-hidden-size", type=int, default=128)
    group.add_argument("--num-attention-heads", type=int, default=4)
    group.add_argument("--num-query-groups", type=int, default=2, help="key and value heads")
    group.add_argument("--vocab-size", type=int, default=256, help="padded for every tensor-parallel size")
    group.add_argument("--seq-length", type=int, default=64)
    group.add_argument("--normalization", choices=("RMSNorm", "LayerNorm"), default="RMSNorm")
    group.add_argument("--rotary-percent", type=float, default=1.0, help="fraction of a head that is rotated")
    group.add_argument("--hidden-dropout", type=float, default=0.0)
    group.add_argument("--attention-dropout", type=float, default=0.0)
    group.add_argument("--untie-embeddings-and-output-weights", action="store_true")
    group.add_argument("--num-experts", type=int, default=None)
    group.add_argument("--moe-router-topk", type=int, default=2)
    group.add_argument("--moe-token-dispatcher-type", choices=("allgather", "alltoall"), default="alltoall")


def _parallelism(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parallelism; what is left of the ranks is data parallel")
    group.add_argument("--tensor-model-parallel-size", type=int, default=1)
    group.add_argument("--pipeline-model-parallel-size", type=int, default=1)
    virtual = "--virtual-pipeline-model-parallel-size", "--num-virtual-stages-per-pipeline-rank"
    group.add_argument(*virtual, type=int, default=None)
    group.add_argument("--context-parallel-size", type=int, default=1)
    group.add_argument("--cp-comm-type", choices=("p2p", "all_gather", "a2a"), default="p2p")
    group.add_argument("--expert-model-parallel-size", type=int, default=1)
    group.add_argument("--sequence-parallel", action="store_true")
    group.add_argument("--use-distributed-optimizer", action="store_true")
    group.add_argument("--overlap-grad-reduce", action="store_true")
    group.add_argument("--overlap-param-gather", action="store_true")


def _training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument("--train-iters", type=int, default=20)
    group.add_argument("--micro-batch-size", type=int, default=2)
    group.add_argument("--global-batch-size", type=int, default=8)
    group.add_argument("--lr", type=float, default=1e-3)
    group.add_argument("--clip-grad", type=float, default=1.0)
    group.add_argument("--weight-decay", type=float, default=0.01)
    group.add_argument("--seed", type=int, default=1234)
    group.add_argument("--bf16", action="store_true")
    group.add_argument("--fp16", action="store_true", help="with a dynamic loss scale")
    group.add_argument("--recompute-granularity", choices=("full", "selective"), default=None)
    group.add_argument("--recompute-method", choices=("uniform", "block"), default=None)
    group.add_argument("--recompute-num-layers", type=int, default=None)
    group.add_argument("--no-rope-fusion", action="store_true")
    group.add_argument("--no-gradient-accumulation-fusion", action="store_true")
    group.add_argument(
        "--plain", action="store_true", help="train a plain PyTorch model with the same weights"
    )


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; Megatron checks combinations."""
    parser = argparse.ArgumentParser(description="Pretrain a GPT of megatron-core on synthetic tokens.")
    for add in (_model, _parallelism, _training):
        add(parser)
    return add_options(parser).parse_args(arguments)
