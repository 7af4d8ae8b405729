"""Products of matrices in block-scaled formats: ``tt.dot_scaled``."""

from __future__ import annotations

import re

from isthmus_triton import products
from isthmus_triton.nests import Index, linear
from isthmus_triton.printer import Printer
from isthmus_triton.ttir import Operation, Type, Value


def dot(printer: Printer, operation: Operation) -> None:
    """``tt.dot_scaled``: two factors, each with or without its scales, and the accumulator.

    Both factors become arrays of floats: every element times its scale. Scales are exponents of 2, or numbers of 8
    bits; one is for as many neighbours along k as their shape states.
    """
    left, right, accumulator = re.findall(r"(%\S+?)(?: scale (%\S+?))?(?:,| )", operation.head.strip() + " ")[
        :3
    ]
    find = operation.block.find
    factors = []
    for (name, scale), side in ((left, "lhs"), (right, "rhs")):
        is_packed = f" {side} = e2m1" in operation.text
        by_k = operation.attribute(f"{side}_k_pack") != "false"
        axis = (-1 if side == "lhs" else -2) if by_k else (-2 if side == "lhs" else -1)
        factors.append(
            _factor(
                printer, find(name), find(scale) if scale else None, side == "lhs", axis if is_packed else 0
            )
        )
    product = Operation("tt.dot", operation.block, operation.position, "tt.dot")
    product.operands, product.results = [*factors, find(accumulator[0])], operation.results
    products.dot(printer, product)


def _factor(printer: Printer, value: Value, scale: Value | None, is_left: bool, packed: int) -> Value:
    """An array with the elements of a factor; two of those along the axis ``packed`` share a byte unless it is 0."""
    shape = list(value.shape)
    if packed:
        shape[packed] *= 2
    found = Value(Type(tuple(shape), "f32"), is_stored=True)
    found.code = printer.array(found.type)
    nest = printer.open(found.shape, [value, *([scale] if scale else [])])
    index = list(nest.index)
    if packed:
        index[packed] = Index(f"({nest.index[packed].code} / 2)", nest.index[packed].depth)
    code = printer.element(value, index, nest).code
    if packed:
        code = f"e2m1_to_float((uint8_t){code} >> {nest.index[packed].code} % 2 * 4)"
    if scale is not None:
        k = -1 if is_left else -2
        along = Index(f"({nest.index[k].code} / {shape[k] // scale.shape[-1]})", nest.index[k].depth)
        factor = printer.element(
            scale, [*nest.index[:-2], nest.index[-2 if is_left else -1], along], nest
        ).code
        code += f" * {factor if scale.type.element.startswith('f8') else f'e8m0_to_float({factor})'}"
    nest.add(f"{found.code}[{linear(found.shape, nest.index).code}] = {code};")
    nest.unfinished[found.number] = False
    return found
