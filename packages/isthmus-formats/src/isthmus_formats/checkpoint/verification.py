"""Two checkpoints run as models of transformers, on the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from isthmus_formats.checkpoint.convert import Target, convert
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats import find_format
from isthmus_formats.checkpoint.layout import Layout
from isthmus_formats.checkpoint.source import Source


def verify(a: Source, b: Source, tokens: int) -> dict[str, Any]:
    """Compare the logits of two checkpoints in float32.

    Args:
        a: a checkpoint.
        b: another.
        tokens: number of random tokens.

    Returns:
        ``max``, the largest absolute difference, and ``same``, the share of positions with the same next token.

    Raises:
        CheckpointError: transformers cannot load one of them.
    """
    vocabulary = min(each.model.config["vocab_size"] for each in (a, b))
    inputs = torch.randint(vocabulary, (1, tokens), generator=torch.Generator().manual_seed(0))
    x, y = (_logits(each, inputs)[..., :vocabulary] for each in (a, b))
    same = (x.argmax(-1) == y.argmax(-1)).double().mean().item()
    return {"max": (x - y).abs().max().item(), "same": same, "tokens": tokens}


def _logits(source: Source, inputs: torch.Tensor) -> torch.Tensor:
    try:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        remedy = "pip install 'isthmus-formats[checkpoint]'"
        raise CheckpointError(f"verify needs transformers ({error}); {remedy}") from None
    logging.disable_progress_bar()
    with _as_hugging_face(source) as folder:
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        except Exception as error:  # transformers raises no narrower type
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(f"{source.folder}: transformers cannot load it: {reason}") from None
    with torch.inference_mode():
        return model.eval()(inputs).logits


@contextmanager
def _as_hugging_face(source: Source) -> Iterator[Path]:
    """Return a folder that transformers reads."""
    if source.format.name == "huggingface":
        yield source.folder
        return
    with TemporaryDirectory(prefix="isthmus-verify-") as temporary:
        folder = Path(temporary) / "model"
        convert(source, Target(folder, find_format("huggingface"), Layout()))
        yield folder
