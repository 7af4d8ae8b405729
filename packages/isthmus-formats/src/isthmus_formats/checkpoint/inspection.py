"""Contents of a checkpoint, and differences between two of them, parameter by parameter."""

from __future__ import annotations

import re
from dataclasses import asdict
from math import isnan, prod
from typing import Any, NamedTuple

import torch

from isthmus_common.progress import Bar
from isthmus_formats.checkpoint.containers.file_tensors import name_of
from isthmus_formats.checkpoint.source import Source


class Difference(NamedTuple):
    """The difference of a parameter between two checkpoints.

    Attributes:
        name: its name.
        shape: its shape; of both if they differ.
        dtype: its data type; of both if they differ.
        max: largest absolute difference.
        relative: largest difference relative to the larger value.
        cosine: cosine of the angle between the two.
        problem: why they cannot be compared; empty if they can.
    """

    name: str
    shape: str
    dtype: str
    max: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    problem: str = ""

    def differs(self, tolerance: float) -> bool:
        """Return whether the difference exceeds a tolerance; one that is not a number does."""
        return bool(self.problem) or not self.max <= tolerance

    def cells(self) -> list[str]:
        """Return the row of a table."""
        if self.problem:
            return [self.name, self.shape, self.dtype, self.problem, "", ""]
        return [
            self.name,
            self.shape,
            self.dtype,
            f"{self.max:.3g}",
            f"{self.relative:.3g}",
            f"{self.cosine:.6f}",
        ]


def describe(source: Source, only: str = "", check: bool = False) -> dict[str, Any]:
    """Return format, architecture, layout and tensors of a checkpoint.

    Args:
        source: the checkpoint.
        only: only tensors whose names match this regular expression.
        check: read every tensor, which checks its hash.

    Raises:
        CheckpointError: a tensor is damaged.
    """
    if check:
        with Bar("check") as bar:
            for done, tensor in enumerate(source.tensors.values(), 1):
                tensor.read()
                bar.count(done, len(source.tensors))
    tensors = [
        {"name": name, "shape": tuple(tensor.shape), "dtype": name_of(tensor.dtype), "file": file}
        for (file, name), tensor in sorted(source.tensors.items())
        if re.search(only, name)
    ]
    return {
        "format": source.format.name,
        "architecture": source.model.type,
        "parameters": sum(prod(each.shape) for each in source.model.parameters),
        "layout": asdict(source.layout),
        "tensors": tensors,
    }


def compare(a: Source, b: Source) -> list[Difference]:
    """Return the difference of every parameter, those of one checkpoint alone included.

    Raises:
        CheckpointError: a tensor is damaged.
    """
    left = {each.name: each for each in a.model.parameters}
    right = {each.name: each for each in b.model.parameters}
    rows = []
    with Bar("diff") as bar:
        names = list(left | right)
        for done, name in enumerate(names, 1):
            if name not in left or name not in right:
                only, source = (left[name], a) if name in left else (right[name], b)
                side = "A" if name in left else "B"
                rows.append(
                    Difference(
                        name, _shape(only.shape), name_of(source.dtype(only)), problem=f"only in {side}"
                    )
                )
            else:
                x = a.parameters([left[name]])[name]
                y = b.parameters([right[name]])[name]
                rows.append(_difference(name, x, y))
            bar.count(done, len(names))
    return rows


def _difference(name: str, x: torch.Tensor, y: torch.Tensor) -> Difference:
    dtype = name_of(x.dtype) if x.dtype == y.dtype else f"{name_of(x.dtype)}, {name_of(y.dtype)}"
    if x.shape != y.shape:
        return Difference(name, f"{_shape(x.shape)}, {_shape(y.shape)}", dtype, problem="shapes differ")
    if torch.equal(x, y):
        return Difference(name, _shape(x.shape), dtype)
    largest = relative = 0.0
    dot = length_x = length_y = 0.0
    for left, right in zip(x.reshape(-1).split(1 << 22), y.reshape(-1).split(1 << 22), strict=True):
        one, other = left.double(), right.double()
        distance = (one - other).abs()
        largest = _larger_or_nan(largest, distance.max().item())
        scale = torch.maximum(one.abs(), other.abs())
        relative = _larger_or_nan(relative, torch.where(scale > 0, distance / scale, 0).max().item())
        dot += (one @ other).item()
        length_x += (one @ one).item()
        length_y += (other @ other).item()
    cosine = dot / (length_x * length_y) ** 0.5 if length_x and length_y else 0.0
    return Difference(name, _shape(x.shape), dtype, largest, relative, cosine)


def _larger_or_nan(a: float, b: float) -> float:
    """Return the larger number, or NaN if one is."""
    return b if isnan(b) or b > a else a


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape))
