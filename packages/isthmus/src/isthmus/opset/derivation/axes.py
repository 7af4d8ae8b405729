"""Ranks and dimensions of operators along a dimension, by tiling and permuting the axes of all their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.opset.derivation.calls import (
    MOST,
    Arguments,
    Scope,
    change_tensors,
    elements,
    in_layouts,
    rank_of,
)
from isthmus.opset.derivation.layouts import ALL
from isthmus.opset.sampling import Array, Case, place

_COPIES = (1, 2, 1, 2, 1, 1, 2)  # sizes of additional leading axes
_LONG = 4133  # size of an additional axis, outside or inside of all others


def ranks(scope: Scope) -> Iterator[Case]:
    """Derive cases of every rank to 8, with the dimension at every place and negative.

    Tensors of the highest rank get more leading axes, along which they repeat rolled by one, so that each copy
    differs, and their axes are permuted alike. It applies to operators with an argument ``dim``; without one the
    leading axes are added alone. Layouts vary alike.
    The smallest call is repeated thousands of times, along an axis outside of the others and along one inside.
    """
    schema = scope.maker.schema
    names = {a.name for a in schema.arguments if a.base == "int" and not a.is_list}
    moves = "dim" in names and "seq_dim" not in names
    bases = scope.bases()
    if not bases or not (moves or scope.operator.leading):
        return
    rows = []
    line = [_line(bases[0])] if moves and min(map(rank_of, bases)) > 1 else []
    for rank in range(1, 9):
        fit = [base for base in bases if rank_of(base) <= rank] or line
        for i, turn in enumerate(range(rank) if moves and rank < 6 else (rank // 2,)):
            if fit:
                base = fit[(rank + i) % len(fit)]
                rows.append((base, _COPIES[: rank - rank_of(base)], turn, (turn + rank) % 2 == 1))
    least = min(bases, key=lambda base: elements(base.arguments))
    most = min(MOST, scope.operator.longest)
    if scope.leading and _LONG * elements(least.arguments) <= most and rank_of(least) < 8:
        rows += [(least, (_LONG,), turn, True) for turn in range(1 + moves)]
    for i, (base, copies, turn, negative) in enumerate(scope.shared(iter(rows))):
        arguments = _turn_axes(base, copies, turn if moves else 0, negative, moves)
        label = f"{'long-' * (_LONG in copies)}rank{rank_of(base) + len(copies)}" + (
            f"-dim{arguments['dim']}" if moves else ""
        )
        if scope.operator.strided:
            layout = [*ALL][i % len(ALL)]
            arguments, label = change_tensors(arguments, in_layouts(layout)), f"{label}-{layout}"
        yield scope.case(arguments, label)


def _line(base: Case) -> Case:
    """Return a call with the dimension ``dim`` alone: the first row along it of each tensor of the highest rank."""
    rank = rank_of(base)
    axis = base.arguments["dim"] % rank

    def change(_: str, i: int, array: Array) -> Array:
        if len(array.shape) != rank:
            return array
        return place(array.view[tuple(slice(None) if i == axis else 0 for i in range(rank))])

    return replace(base, arguments={**change_tensors(base.arguments, change), "dim": 0})


def _turn_axes(base: Case, copies: tuple[int, ...], turn: int, negative: bool, moves: bool) -> Arguments:
    """Add leading axes, along which tensors repeat, and rotate all axes by a number of places."""
    rank, more = rank_of(base), len(copies)
    order = [*range(rank + more)]
    order = order[turn:] + order[:turn]

    def change(_: str, i: int, array: Array) -> Array:
        if len(array.shape) != rank:
            return array
        rolled = [np.roll(array.view, i, 0) if rank else array.view for i in range(math.prod(copies))]
        return place(np.stack(rolled).reshape(*copies, *array.shape).transpose(order))

    arguments: dict[str, Any] = change_tensors(base.arguments, change)
    if moves:
        dim = order.index(base.arguments["dim"] % rank + more)
        arguments["dim"] = dim - rank - more if negative else dim
    return arguments
