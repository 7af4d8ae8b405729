"""MindSpore's strategy files: which rank has which slice of each parameter, as protocol buffer or JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from isthmus_common.files import write_file
from isthmus_formats.checkpoint.containers import protobuf
from isthmus_formats.checkpoint.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Item:
    """The layout of a parameter.

    Attributes:
        devices: the shape of the matrix of a stage's devices.
        axes: for each dimension of the parameter, the axes of that matrix that split it, counted from the right; none
            if it is whole.
        shape: ``param_split_shape``, which MindSpore leaves empty for even splits.
        offsets: ``indices_offset``, of uneven splits.
        field: ``field``, of embeddings split by fields.
        step: distance of the ranks over which the optimizer's parallelism splits dimension 0 once more.
        size: number of those ranks; 0 if it does not.
    """

    devices: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    field: int = 0
    step: int = 0
    size: int = 0

    def position(self, rank: int) -> list[tuple[int, int]]:
        """Return which part of how many a rank of the stage has in each dimension."""
        found = []
        for axes in self.axes:
            index, count = 0, 1
            for axis in axes:
                length = self.devices[-1 - axis]
                index = index * length + rank // prod(self.devices[len(self.devices) - axis :]) % length
                count *= length
            found.append((index, count))
        if self.size > 1:
            index, count = found[0]
            found[0] = (index * self.size + rank // self.step % self.size, count * self.size)
        return found


@dataclass(frozen=True)
class Strategy:
    """A strategy file.

    Attributes:
        stage: its pipeline stage; of a merged file, 1.
        items: layouts by parameter; those of a merged file begin with the stage, as in ``"0-lm_head.weight"``.
        operators: for each operator its stage and the split of its inputs.
    """

    stage: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    operators: dict[str, tuple[int, tuple[tuple[int, ...], ...]]] = field(default_factory=dict)

    def of_stage(self) -> int:
        """Return the stage of an unmerged file."""
        return next((stage for stage, _ in self.operators.values()), self.stage)


def read(path: Path) -> Strategy:
    """Read a strategy file; JSON if its name ends with .json.

    Raises:
        CheckpointError: it is damaged, or of a kind that is not supported.
    """
    try:
        data = path.read_bytes()
        if not data:
            raise CheckpointError(f"{path}: empty; MindSpore has not finished writing it")
        strategy = _from_json(json.loads(data)) if path.suffix == ".json" else _from_protobuf(data)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except CheckpointError:
        raise
    except (protobuf.WireError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: not a strategy file of MindSpore, or damaged: {error}") from None
    for name, item in strategy.items.items():
        if any(axis >= len(item.devices) for axes in item.axes for axis in axes):
            raise CheckpointError(
                f"{path}: {name}: tensor_map has an axis that dev_matrix {item.devices} lacks"
            )
    return strategy


def write(path: Path, strategy: Strategy) -> None:
    """Write a strategy file; JSON if its name ends with .json.

    Raises:
        CheckpointError: the file exists.
    """
    if os.path.lexists(path):
        raise CheckpointError(f"{path}: already exists; delete it or give another name")
    write_file(path, as_json(strategy) if path.suffix == ".json" else _to_protobuf(strategy))


def merge(paths: Sequence[Path]) -> Strategy:
    """Merge the strategy files of pipeline stages, as MindSpore's merge_pipeline_strategys does.

    Files of several ranks of a stage count once.

    Raises:
        CheckpointError: there are none, or a stage is missing.
    """
    stages = {
        each.of_stage(): each for each in reversed([read(path) for path in sorted(paths, key=_natural_order)])
    }
    if not stages:
        raise CheckpointError(
            "no strategy files; MindSpore writes one for each rank, ckpt_strategy_rank_*.ckpt"
        )
    if missing := sorted(set(range(max(stages) + 1)) - set(stages)):
        raise CheckpointError(f"no strategy file of pipeline stage {missing[0]}; give those of all stages")
    merged = Strategy(stage=1)
    for stage, each in sorted(stages.items()):
        merged.items.update({f"{stage}-{name}": item for name, item in each.items.items()})
        merged.operators.update(each.operators)
    return merged


def files(folder: Path) -> list[Path]:
    """Return the strategy files of a folder."""
    return [path for path in folder.glob("*") if path.suffix in {".ckpt", ".json"}]


def by_stage(strategy: Strategy) -> dict[int, dict[str, Item]]:
    """Return the layouts of each stage of a file, merged or not."""
    stages: dict[int, dict[str, Item]] = {}
    for name, item in strategy.items.items():
        match = re.match(r"(\d+)-", name)
        stages.setdefault(int(match[1]) if match else 0, {})[name[match.end() :] if match else name] = item
    return stages


def _natural_order(path: Path) -> list[Any]:
    return [int(each) if each.isdigit() else each for each in re.split(r"(\d+)", path.name)]


def _from_json(content: dict[str, Any]) -> Strategy:
    items = {}
    for name, each in content.get("parallel_layout_item", {}).items():
        items[name] = Item(
            tuple(each["dev_matrix"]),
            tuple(_axes(axes) for axes in each["tensor_map"]),
            tuple(each.get("param_split_shape", ())),
            tuple(each.get("indices_offset", ())),
            each.get("field") or 0,
            each.get("opt_weight_shard_step") or 0,
            each.get("opt_weight_shard_size") or 0,
        )
    operators = {
        name: (each.get("stage", 0), tuple(map(tuple, each.get("parallel_strategy", ()))))
        for name, each in content.get("parallel_strategy_item", {}).items()
    }
    return Strategy(content.get("current_stage", 0), items, operators)


def _axes(axes: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in ([axes] if isinstance(axes, int) else axes) if axis >= 0)


def as_json(strategy: Strategy) -> bytes:
    """Return the content of a JSON file."""
    items = {
        name: {
            "dev_matrix": item.devices,
            "tensor_map": tensor_map(item),
            "param_split_shape": item.shape,
            "indices_offset": item.offsets,
            "field": item.field,
            "opt_weight_shard_step": item.step,
            "opt_weight_shard_size": item.size,
        }
        for name, item in strategy.items.items()
    }
    operators = {
        name: {"stage": stage, "parallel_strategy": split}
        for name, (stage, split) in strategy.operators.items()
    }
    content = {
        "current_stage": strategy.stage,
        "parallel_strategy_item": operators,
        "parallel_layout_item": items,
    }
    return json.dumps(content, indent=1).encode()


def tensor_map(item: Item) -> list[Any]:
    """Return the tensor map: a number for each dimension, or a list if one is split by several axes."""
    if any(len(axes) > 1 for axes in item.axes):
        return [list(axes) or [-1] for axes in item.axes]
    return [axes[0] if axes else -1 for axes in item.axes]


def _from_protobuf(data: bytes) -> Strategy:
    stage, items, operators = 0, {}, {}
    for number, value in protobuf.fields(data):
        if number == 1:
            stage = int(value)
        elif number == 2:
            name, message = _name_and_value(value)
            splits = _all_fields(message)
            splits_of_inputs = tuple(tuple(_numbers(each, 1)) for each in splits.get(2, ()))
            operators[name] = (_one_integer(splits, 1), splits_of_inputs)
        elif number == 3:
            name, message = _name_and_value(value)
            found = _all_fields(message)
            maps = [_numbers(each, 1) for each in found.get(2, ())]
            axes = maps if len(maps) > 1 else [[each] for each in (maps[0] if maps else ())]
            items[name] = Item(
                tuple(_numbers(found[1][0], 1)),
                tuple(_axes(each) for each in axes),
                tuple(each for message in found.get(3, ()) for each in _numbers(message, 1)),
                tuple(each for message in found.get(4, ()) for each in _numbers(message, 1)),
                _one_integer(found, 5),
                _one_integer(found, 6),
                _one_integer(found, 7),
            )
    return Strategy(stage, items, operators)


def _name_and_value(value: Any) -> tuple[str, Any]:
    found = _all_fields(value)
    return bytes(found[1][0]).decode(), found[2][0]


def _all_fields(message: Any) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in protobuf.fields(message):
        found.setdefault(number, []).append(value)
    return found


def _numbers(message: Any, number: int) -> list[int]:
    return [each for value in _all_fields(message).get(number, ()) for each in protobuf.integers(value)]


def _one_integer(found: dict[int, list[Any]], number: int) -> int:
    return int(protobuf.to_signed(found[number][0])) if number in found else 0


def _to_protobuf(strategy: Strategy) -> bytes:
    data = protobuf.encode_integer(1, strategy.stage)
    for name, (stage, split) in strategy.operators.items():
        message = protobuf.encode_integer(1, stage) + b"".join(_dims(2, each) for each in split)
        data += protobuf.encode_bytes(
            2, protobuf.encode_bytes(1, name.encode()) + protobuf.encode_bytes(2, message)
        )
    for name, item in strategy.items.items():
        axes = tensor_map(item)
        several = axes and isinstance(axes[0], list)
        message = _dims(1, item.devices)
        message += b"".join(_dims(2, each) for each in axes) if several else _dims(2, axes)
        message += _dims(3, item.shape) + _dims(4, item.offsets)
        message += b"".join(
            protobuf.encode_integer(5 + index, each)
            for index, each in enumerate((item.field, item.step, item.size))
        )
        data += protobuf.encode_bytes(
            3, protobuf.encode_bytes(1, name.encode()) + protobuf.encode_bytes(2, message)
        )
    return data


def _dims(number: int, values: Sequence[int]) -> bytes:
    return protobuf.encode_bytes(number, b"".join(protobuf.encode_integer(1, each) for each in values))
