"""What the Trainer of Hugging Face Transformers prints: a dictionary for each log, and a bar for the steps."""

from __future__ import annotations

import ast
import re

from isthmus.launch.iteration_lines import IterationRecord

# The bar of the steps has no title, unlike those of data sets and checkpoints.
_BAR = re.compile(r"\s*\d+%\|[^|]*\|\s*(\d+)/(\d+)\s*\[")


def parse_bar(text: str) -> tuple[int, int] | None:
    """Steps done and steps in all, of the last state of a progress bar; None for any other text."""
    match = _BAR.match(text)
    return (int(match[1]), int(match[2])) if match else None


def parse_trainer(line: str) -> IterationRecord | None:
    """The record of a log of the Trainer, ``{'loss': 3.41, 'epoch': 0.1}``; None for any other line.

    It does not say the iteration, which is 0 in the record.
    """
    text = line.strip()
    if not text.startswith("{'loss'"):
        return None
    try:
        values = {name: float(value) for name, value in ast.literal_eval(text).items()}
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError, MemoryError):
        return None
    tokens = values.get("num_input_tokens_seen")
    return IterationRecord(
        iteration=0,
        loss=values["loss"],
        learning_rate=values.get("learning_rate"),
        grad_norm=values.get("grad_norm"),
        consumed_tokens=None if tokens is None else int(tokens),
        epoch=values.get("epoch"),
    )
