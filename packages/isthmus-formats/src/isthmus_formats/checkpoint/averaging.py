"""The average of several checkpoints of one model, as a checkpoint to convert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from isthmus_formats.checkpoint.containers.file_tensors import name_of
from isthmus_formats.checkpoint.errors import CheckpointError, UsageError
from isthmus_formats.checkpoint.layout import Parameter
from isthmus_formats.checkpoint.source import Source


@dataclass(frozen=True)
class Average(Source):
    """The first checkpoint, with parameters averaged in float64.

    Attributes:
        sources: the checkpoints.
        weights: their weights, of sum 1.
    """

    sources: Sequence[Source] = ()
    weights: Sequence[float] = ()

    def files(self) -> list[Path]:
        """Return the files of all checkpoints."""
        return [path for source in self.sources for path in source.files()]

    def parameters(self, wanted: Iterable[Parameter]) -> dict[str, torch.Tensor]:
        """Return whole parameters."""
        wanted = list(wanted)
        total: dict[str, torch.Tensor] = {}
        for source, weight in zip(self.sources, self.weights, strict=True):
            for name, tensor in source.parameters(wanted).items():
                total[name] = (
                    total[name] + tensor.double() * weight if name in total else tensor.double() * weight
                )
        return {each.name: _cast(each.name, total[each.name], self.dtype(each)) for each in wanted}


def _cast(name: str, average: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    result = average.to(dtype)
    if (average.isfinite() & ~result.isfinite()).any():
        raise CheckpointError(
            f"{name}: the average exceeds the range of {name_of(dtype)}; give positive --weights"
        )
    return result


def average_checkpoints(sources: Sequence[Source], weights: str = "") -> Average:
    """Return the average of checkpoints.

    Args:
        sources: the checkpoints.
        weights: a number for each, by commas; empty if all have the same.

    Raises:
        CheckpointError: they are not of one model, or the weights do not fit.
    """
    try:
        numbers = [float(each) for each in weights.split(",")] if weights else [1.0] * len(sources)
    except ValueError:
        raise UsageError(f"--weights {weights}: expected numbers, such as 3,1") from None
    if len(numbers) != len(sources) or not sum(numbers) > 0:
        raise UsageError(f"--weights {weights}: expected {len(sources)} numbers with a positive sum")
    first = sources[0]
    for other in sources[1:]:
        if other.model.parameters != first.model.parameters:
            raise CheckpointError(f"{other.folder}: not the same model as {first.folder}")
    inherited = {each.name: getattr(first, each.name) for each in fields(Source)}
    return Average(**inherited, sources=sources, weights=[each / sum(numbers) for each in numbers])
