"""Rotary position embeddings of a configuration, in one form for all versions of config.json.

transformers 5 writes ``rope_parameters``; before, ``rope_theta`` and ``partial_rotary_factor`` were entries of their
own beside ``rope_scaling``, whose type was called ``type`` at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Layout, Parameter

_THETAS = {"mixtral": 1e6}  # defaults of transformers; 10,000 for other architectures
_KINDS = {"su": "longrope"}  # former names
_WITH_ORIGINAL = {"llama3", "yarn", "longrope"}
_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True)
class Rope:
    """Rotary position embeddings.

    Attributes:
        theta: base of the wavelengths.
        kind: type of scaling, ``"default"`` for none.
        scaling: parameters of the scaling by their names in transformers.
        partial: fraction of the rows of a head that rotate.
    """

    theta: float = 10_000.0
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)
    partial: float = 1.0

    def __str__(self) -> str:
        """Describe it in a message."""
        rest = "".join(f", {name} {value}" for name, value in self.scaling.items())
        return f"rope_theta {self.theta:g}, rope_type {self.kind}{rest}" + (
            f", partial_rotary_factor {self.partial:g}" if self.partial != 1 else ""
        )

    def has(self, **scaling: float) -> bool:
        """Return whether these are the values of the scaling."""
        return all(self.scaling.get(name) == value for name, value in scaling.items())


def rope(config: Mapping[str, Any]) -> Rope:
    """Return the rotary position embeddings of a config.json.

    Raises:
        CheckpointError: they differ by layer, or a value is not of its type.
    """
    # transformers 5 prefers rope_scaling, too, where a file has both
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise CheckpointError(f"config.json: rope_scaling or rope_parameters {given!r} is not an object")
    found = dict(given)
    if any(isinstance(value, Mapping) for value in found.values()):
        raise CheckpointError("config.json: rope_parameters that differ by layer are not supported")
    former, kind = found.pop("type", "default"), found.pop("rope_type", None)
    kind = str(kind or former)
    kind = _KINDS.get(kind, kind)
    theta = found.pop("rope_theta", None) or config.get("rope_theta")
    partial = found.pop("partial_rotary_factor", None) or config.get("partial_rotary_factor")
    if kind in _WITH_ORIGINAL:
        outside = config.get(_ORIGINAL) or found.get(_ORIGINAL) or config.get("max_position_embeddings")
        found[_ORIGINAL] = outside
    if kind in {"linear", "llama3"} and not isinstance(found.get("factor"), int | float):
        raise CheckpointError(f"config.json: rope scaling of type {kind} lacks a factor")
    try:
        return Rope(
            float(theta or _THETAS.get(str(config.get("model_type")), 10_000.0)),
            kind,
            {} if kind == "default" else found,
            float(partial or 1.0),
        )
    except (TypeError, ValueError):
        raise CheckpointError(
            f"config.json: rope_theta {theta!r} or partial_rotary_factor {partial!r} is not a number"
        ) from None


def check_pairs(config: Mapping[str, Any], parameters: Iterable[Parameter], layout: Layout) -> None:
    """Check that the rows of every head can be reordered to the rotary pairs of a layout.

    Raises:
        CheckpointError: a head has an odd number of rows, or not all of its rows rotate.
    """
    rows = {each.rotary for each in parameters if each.rotary}
    if not layout.interleaved or not rows:
        return
    if odd := next((each for each in rows if each % 2), 0):
        raise CheckpointError(f"heads of {odd} rows have no interleaved rotary pairs; give --rotary half")
    if (partial := rope(config).partial) != 1:
        raise CheckpointError(
            f"partial_rotary_factor {partial:g}: interleaved rotary pairs of partial heads are not supported; "
            "give --rotary half"
        )
