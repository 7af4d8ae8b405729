"""The operator interface as data: what each operator takes, gives, promises and is tested with.

    operators()["aten::mm"].dtypes        # what it is specified for
    schema_of("aten::mm")                 # its schema
    canonical("aten::add_.Tensor")        # "aten::add.Tensor", whose kernel serves it

Nothing here imports PyTorch; references do when they are computed (:mod:`isthmus.opset.reference`).
"""

from __future__ import annotations

import difflib
import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from isthmus.opset.operator import Operator
from isthmus.opset.schema import Schema, parse

FAMILIES = (
    "pointwise",
    "activation",
    "comparison",
    "reduction",
    "matmul",
    "softmax",
    "normalization",
    "loss",
    "indexing",
    "shape",
    "sorting",
    "convolution",
    "pooling",
    "spatial",
    "factory",
    "random",
    "foreach",
    "optimizer",
    "llm_moe",
    "llm_norm",
    "llm_activation",
    "llm_rotary",
    "llm_unpad",
    "llm_attention",
    "llm_optimizer",
    "llm_softmax",
    "llm_loss",
    "llm_dropout",
)


class UnknownOperator(LookupError):
    """The opset has no operator of that name; the message names the nearest."""


@cache
def operators() -> dict[str, Operator]:
    """Every operator of the opset by its canonical overload, family by family."""
    found: dict[str, Operator] = {}
    for family in FAMILIES:
        module = importlib.import_module(f"isthmus.opset.families.{family}")
        for operator in module.OPERATORS:
            if operator.name in found:
                raise ValueError(
                    f"{operator.name} is in the families {found[operator.name].family} and {family}"
                )
            found[operator.name] = operator.of_family(family)
    return found


@cache
def records() -> dict[str, dict[str, Any]]:
    """What ``schemas.json`` says of each operator: schema, variants, tags, differentiable inputs, models."""
    return json.loads((Path(__file__).parent / "schemas.json").read_text())


@cache
def schema_of(name: str) -> Schema:
    """Schema of an operator.

    Raises:
        UnknownOperator: the opset has none of that name.
    """
    try:
        return parse(records()[name]["schema"])
    except KeyError:
        raise UnknownOperator(_unknown(name)) from None


@cache
def _variants() -> dict[str, str]:
    return {variant: name for name, record in records().items() for variant in (name, *record["variants"])}


def forget() -> None:
    """Read schemas.json anew at the next question; for what has just written it."""
    for cached in (records, schema_of, _variants):
        cached.cache_clear()


def canonical(overload: str) -> str | None:
    """The operator whose kernel serves an overload, in-place and ``out=`` ones included; None if there is none."""
    return _variants().get(overload)


def _unknown(name: str) -> str:
    served = canonical(name)
    if served:
        return f"{name} is served by the kernel of {served}: register that"
    near = difflib.get_close_matches(name, records(), n=3)
    return f"no operator {name!r} in the opset" + (f" (near: {', '.join(near)})" if near else "")
