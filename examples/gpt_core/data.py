"""Synthetic tokens: sample i does not depend on the parallelism."""

from __future__ import annotations

import argparse
from typing import Any

import torch


def samples(args: argparse.Namespace, first: int, count: int) -> dict[str, Any]:
    """Samples first to first + count on the host: tokens and labels, int64 of [count, seq_length], and positions.

    A sample is an arithmetic sequence modulo the vocabulary with a tenth of the tokens drawn at random, so that
    there is something to learn.
    """
    rows = []
    for index in range(first, first + count):
        generator = torch.Generator().manual_seed(args.seed + index)
        start, step = torch.randint(0, args.vocab_size, (2,), generator=generator).tolist()
        row = (start + (step % 7 + 1) * torch.arange(args.seq_length + 1)) % args.vocab_size
        noise = torch.randint(0, args.vocab_size, row.shape, generator=generator)
        rows.append(torch.where(torch.rand(row.shape, generator=generator) < 0.1, noise, row))
    tokens = torch.stack(rows)
    positions = torch.arange(args.seq_length).expand(count, -1).contiguous()
    return {
        "tokens": tokens[:, :-1].contiguous(),
        "labels": tokens[:, 1:].contiguous(),
        "position_ids": positions,
    }
