"""Checkpoints: weights as safetensors, optimizer and generators as tensors and plain values, never code.

    checkpoint-000100/model.safetensors  config.json    what LlamaForCausalLM.from_pretrained reads
                      training_state.pt                 iteration, flags, optimizer
                      rng-00000.pt                      Python, NumPy, CPU and CUDA generators of one rank

A folder that bears this name is complete: it is written under another and renamed.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from pretraining.files import FILE_MODE, make_folder


class CheckpointError(RuntimeError):
    """A checkpoint is missing or unreadable; the message is one line with the remedy."""


def save(
    folder: Path,
    iteration: int,
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    flags: dict[str, Any],
) -> Path:
    """Write folder/checkpoint-<iteration>. Called by every rank; rank 0 writes all but the generators."""
    final = folder / f"checkpoint-{iteration:06d}"
    temporary = folder / f".{final.name}.incomplete"
    rank = dist.get_rank() if dist.is_initialized() else 0
    if rank == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        make_folder(temporary)
        weights = {name: weight.cpu().contiguous() for name, weight in model.state_dict().items()}
        save_file(weights, temporary / "model.safetensors", metadata={"format": "pt"})
        model.config.to_json_file(temporary / "config.json")
        state = {"iteration": iteration, "flags": flags, "optimizer": optimizer.state_dict()}
        torch.save(state, temporary / "training_state.pt")
    barrier()
    torch.save(rng_state(), temporary / f"rng-{rank:05d}.pt")
    barrier()
    if rank == 0:
        for file in temporary.iterdir():
            file.chmod(FILE_MODE)
            with file.open("rb") as written:
                os.fsync(written.fileno())
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
    barrier()
    return final


def find(folder: Path, iteration: int | None) -> Path:
    """The checkpoint of an iteration, or the newest for None."""
    found = _by_iteration(folder)
    wanted = max(found, default=None) if iteration is None else iteration
    if wanted not in found:
        which = "checkpoint" if iteration is None else f"checkpoint of iteration {iteration}"
        raise CheckpointError(
            f"{folder}: no {which} to resume from (available: {sorted(found) or 'none'}); "
            "start without --resume, or name the --output of an earlier run"
        )
    return found[wanted]


def newest(folder: Path) -> Path | None:
    """The checkpoint of the latest iteration, or None."""
    found = _by_iteration(folder)
    return found[max(found)] if found else None


def _by_iteration(folder: Path) -> dict[int, Path]:
    return {int(path.name[11:]): path for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()}


def read(path: Path) -> dict[str, Any]:
    """Load a checkpoint to the CPU: iteration, flags, optimizer, weights, and rng (None for a new rank)."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    own_rng = path / f"rng-{rank:05d}.pt"
    try:
        state: dict[str, Any] = torch.load(path / "training_state.pt", map_location="cpu", weights_only=True)
        state["weights"] = load_file(path / "model.safetensors")
        state["rng"] = (
            torch.load(own_rng, map_location="cpu", weights_only=True) if own_rng.exists() else None
        )
    except Exception as error:  # the errors of the formats have no common base class
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: cannot be read ({reason}); remove it to resume from an earlier"
        ) from None
    return state


def rng_state() -> dict[str, Any]:
    """The states of the four generators, of types that torch.load(weights_only=True) accepts."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore the states of rng_state()."""
    name, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state(state["cuda"])


def barrier() -> None:
    """Synchronize all ranks."""
    if dist.is_initialized():
        dist.barrier()
