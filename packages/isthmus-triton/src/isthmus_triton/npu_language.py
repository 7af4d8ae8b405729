"""Functions that triton-ascend adds to Triton's language: parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl
from triton.language import core


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


def _take(tensor: Any, axis: int, index: Any, semantic: Any) -> Any:
    """The elements at places along one axis."""
    others = [at for at in range(len(tensor.shape)) if at != axis]
    shape = [_number(each) for each in tensor.shape]
    shape[axis] = _number(index.shape[0])
    for other in others:
        index = tl.expand_dims(index, other, _semantic=semantic)
    return tl.gather(tensor, tl.broadcast_to(index, shape, _semantic=semantic), axis, _semantic=semantic)


def _places(size: int, semantic: Any) -> Any:
    return semantic.arange(0, size)


@core.builtin  # type: ignore[untyped-decorator]
def extract_slice(
    ful: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any], _semantic: Any = None
) -> Any:
    """The elements of a tensor from ``offsets``, ``sizes`` of them, every ``strides``-th, along each axis."""
    for axis, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
        at = _semantic.mul(_places(_number(size), _semantic), _semantic.to_tensor(stride), False)
        at = _semantic.add(at, _semantic.to_tensor(offset), False)
        ful = _take(ful, axis, at, _semantic)
    return ful


@core.builtin  # type: ignore[untyped-decorator]
def insert_slice(
    ful: Any,
    sub: Any,
    offsets: Sequence[Any],
    sizes: Sequence[Any],
    strides: Sequence[Any],
    _semantic: Any = None,
) -> Any:
    """A tensor with the elements of another at those places."""
    inside = None
    for axis, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
        places = _places(_number(ful.shape[axis]), _semantic)
        past = _semantic.sub(places, _semantic.to_tensor(offset), False)
        step, end = _semantic.to_tensor(stride), _semantic.to_tensor(_number(size) * _number(stride))
        zero = _semantic.to_tensor(0)
        is_inside = _semantic.and_(_semantic.greater_equal(past, zero), _semantic.less_than(past, end))
        is_inside = _semantic.and_(is_inside, _semantic.equal(_semantic.mod(past, step), zero))
        at = _semantic.where(is_inside, _semantic.floordiv(past, step), zero)
        for other in range(len(ful.shape)):
            if other != axis:
                is_inside = tl.expand_dims(is_inside, other, _semantic=_semantic)
        sub = _take(sub, axis, at, _semantic)
        inside = is_inside if inside is None else _semantic.and_(inside, is_inside)
    return _semantic.where(inside, sub, ful)


@core.builtin  # type: ignore[untyped-decorator]
def get_element(src: Any, indice: Sequence[Any], _semantic: Any = None) -> Any:
    """One element of a tensor, as a scalar."""
    for axis, index in enumerate(indice):
        at = _semantic.add(_places(1, _semantic), _semantic.to_tensor(index), False)
        src = _take(src, axis, at, _semantic)
    return _semantic.unsplat(tl.reshape(src, (1,), _semantic=_semantic))
