"""The operator interface as data: schema, dtypes, shape rule, reference, tolerance and samples of each operator.

    operators()["aten::mm"].dtypes        # specified dtypes
    schema_of("aten::mm")                 # its schema
    canonical("aten::add_.Tensor")        # "aten::add.Tensor", which implements it

This package does not import PyTorch; references import it when computed (:mod:`isthmus.opset.reference`).
"""

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
    "llm_paged_attention",
    "llm_optimizer",
    "llm_softmax",
    "llm_loss",
    "llm_dropout",
)


class UnknownOperator(LookupError):
    """Unknown operator; the message lists similar names."""


@cache
def operators() -> dict[str, Operator]:
    """All operators of the opset by canonical overload, in the order of families."""
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
    """Contents of ``schemas.json``: schema, variants, tags, differentiable inputs and models of each operator."""
    return json.loads((Path(__file__).parent / "schemas.json").read_text())


@cache
def schema_of(name: str) -> Schema:
    """Schema of an operator.

    Raises:
        UnknownOperator: not in the opset.
    """
    try:
        return parse(records()[name]["schema"])
    except KeyError:
        raise UnknownOperator(_unknown_error(name)) from None


@cache
def _variants() -> dict[str, str]:
    return {variant: name for name, record in records().items() for variant in (name, *record["variants"])}


def forget() -> None:
    """Clear the caches, after schemas.json was written."""
    for cached in (records, schema_of, _variants):
        cached.cache_clear()


def canonical(overload: str) -> str | None:
    """The operator that implements an overload (in-place and ``out=`` included); None if not in the opset."""
    return _variants().get(overload)


def _unknown_error(name: str) -> str:
    served = canonical(name)
    if served:
        return f"{name} is implemented by the kernel of {served}; register that"
    if name in operators():
        return f"{name} is not in schemas.json yet; run `make docs`"
    near = difflib.get_close_matches(name, records(), n=3)
    return f"no operator {name!r} in the opset" + (f"; similar: {', '.join(near)}" if near else "")
