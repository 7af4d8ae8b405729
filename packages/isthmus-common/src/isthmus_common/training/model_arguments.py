"""Sizes of a model, from the arguments of its training program, named as by Megatron-LM and ModelLink."""

from __future__ import annotations

import re
from dataclasses import dataclass

from isthmus_common.training.iteration_lines import IterationRecord
from isthmus_common.training.metrics import ModelShape, flops_per_iteration

# Megatron pads the vocabulary to a multiple of this, times the tensor parallel size.
_VOCABULARY_STEP = 128
_ARGUMENT = re.compile(
    r"\s*(hidden_size|num_layers|padded_vocab_size|seq_length|global_batch_size) \.+ (\d+)\s*"
)
_PADDED = re.compile(r"padded vocab \(size: \d+\).*\(new size: (\d+)\)")


def option_numbers(text: str, name: str) -> list[int]:
    """Return the numbers of an option of Megatron in a command line or launch script, in their order.

    Args:
        text: the command line or script.
        name: of the option, such as ``hidden-size``; the text may have underscores.
    """
    pattern = rf"(?<![\w-])--{name.replace('-', '[-_]')}[=\s]+(\d+)"
    return [int(number) for number in re.findall(pattern, text)]


@dataclass
class ModelArguments:
    """Sizes of the model and its batch; None for unknown."""

    hidden_size: int | None = None
    num_layers: int | None = None
    vocab_size: int | None = None
    seq_length: int | None = None
    global_batch_size: int | None = None

    @classmethod
    def read(cls, program: list[str]) -> ModelArguments:
        """Read them from a command line: ``--hidden-size 1024``, ``--hidden-size=1024`` or ``--hidden_size 1024``."""
        text = " ".join(program)

        def number(name: str) -> int | None:
            return next(reversed(option_numbers(text, name)), None)

        vocabulary = number("vocab-size")
        if vocabulary is not None:
            step = (number("make-vocab-size-divisible-by") or _VOCABULARY_STEP) * (
                number("tensor-model-parallel-size") or 1
            )
            vocabulary = -(-vocabulary // step) * step
        return cls(
            number("hidden-size"),
            number("num-layers"),
            number("padded-vocab-size") or vocabulary,
            number("seq-length"),
            number("global-batch-size"),
        )

    def read_line(self, line: str) -> None:
        """Read a size from a line that Megatron prints at its start: an argument, or the padded vocabulary."""
        if match := _PADDED.search(line):
            self.vocab_size = int(match[1])
        elif match := _ARGUMENT.fullmatch(line):
            setattr(self, match[1].removeprefix("padded_"), int(match[2]))

    def tokens(self, record: IterationRecord) -> float | None:
        """Tokens of an iteration on all devices."""
        batch = record.global_batch_size or self.global_batch_size
        length = record.seq_length or self.seq_length
        return batch * length if batch and length else None

    def flops(self, record: IterationRecord) -> float | None:
        """Operations of an iteration on all devices, without those of a recompute."""
        batch = record.global_batch_size or self.global_batch_size
        length = record.seq_length or self.seq_length
        if not (self.hidden_size and self.num_layers and self.vocab_size and batch and length):
            return None
        shape = ModelShape(self.hidden_size, self.num_layers, self.vocab_size, length)
        return flops_per_iteration(shape, batch)
