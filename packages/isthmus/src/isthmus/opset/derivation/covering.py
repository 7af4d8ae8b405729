"""Rows of values that cover each value of several dimensions, or each pair of values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Row = dict[str, Any]


def covering_rows(dimensions: Mapping[str, Sequence[Any]], pairs: bool = False) -> Iterator[Row]:
    """Yield rows with one value of each dimension.

    Args:
        dimensions: values of each dimension, none empty.
        pairs: cover every pair of values of two dimensions, instead of every value.
    """
    if not pairs:
        for i in range(max(map(len, dimensions.values()), default=0)):
            yield {name: values[i % len(values)] for name, values in dimensions.items()}
        return
    names = list(dimensions)
    open_pairs = [
        ((a, i), (b, j))
        for a, b in combinations(names, 2)
        for i, j in product(range(len(dimensions[a])), range(len(dimensions[b])))
    ]
    covered: set[tuple[tuple[str, int], tuple[str, int]]] = set()
    for n, pair in enumerate(open_pairs):
        if pair in covered:
            continue
        chosen = {name: n % len(values) for name, values in dimensions.items()} | dict(pair)
        chosen = _improve_row(chosen, dict(pair), dimensions, covered)
        covered |= set(combinations(chosen.items(), 2))
        yield {name: dimensions[name][i] for name, i in chosen.items()}


def _improve_row(
    row: dict[str, int], fixed: dict[str, int], dimensions: Mapping[str, Sequence[Any]], covered: set[Any]
) -> dict[str, int]:
    """Choose the other values one by one, so that most pairs are new."""
    for name in [name for name in row if name not in fixed]:
        row[name] = max(
            range(len(dimensions[name])),
            key=lambda i, name=name: len(set(combinations({**row, name: i}.items(), 2)) - covered),  # type: ignore[misc]
        )
    return row
