"""Generates golden data from the opset, by PyTorch on the CPU."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isthmus import opset
from isthmus.conformance import golden
from isthmus.conformance.selection import matching, split
from isthmus.opset import operator as spec
from isthmus.opset import reference, sampling
from isthmus.opset.rules import RuleError
from isthmus.opset.tiers import tiers_of

# What PyTorch raises for a call that it does not support.
_REJECTED = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, AssertionError)
Progress = Callable[[str, int, int], None]


def digest() -> str:
    """Return the SHA-256 of the opset: its schemas, tiers and source files."""
    folder = Path(opset.__file__).parent
    hashed = hashlib.sha256()
    for file in sorted([*folder.rglob("*.py"), folder / "schemas.json", folder / "tiers.toml"]):
        hashed.update(file.relative_to(folder).as_posix().encode() + file.read_bytes())
    return hashed.hexdigest()


def generate(
    folder: Path,
    operators: str = "*",
    seed: int = 0,
    progress: Progress | None = None,
    thorough: bool = False,
) -> int:
    """Write golden data.

    Args:
        folder: output folder, created if absent.
        operators: patterns of operator names, such as ``aten::*softmax*``, separated by commas.
        seed: seed of the samples; the same seed and opset give the same bytes.
        progress: called with (operator, done, total).
        thorough: derive cases for every pair of values, and for every dtype all of them.

    Returns:
        The number of cases written.

    Raises:
        UsageError: unknown operator.
        RuleError: a rule of the opset contradicts PyTorch.
    """
    import torch

    named = matching(split([operators]), opset.operators())
    chosen = [operator for name, operator in opset.operators().items() if name in named]
    writer = golden.Writer(folder, digest(), seed)
    for each in chosen:
        schema = opset.records()[each.name]["schema"]
        writer.operator(each.name, schema, each.family, tiers_of(each.name), each.law is not None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of summation changes the last bits
    try:
        count = sum(_family(writer, family, chosen, seed, progress, thorough) for family in opset.FAMILIES)
    finally:
        torch.set_num_threads(threads)
    writer.close(torch=torch.__version__, numpy=np.__version__, thorough=thorough)
    return count


def _family(
    writer: golden.Writer,
    family: str,
    chosen: list[spec.Operator],
    seed: int,
    progress: Progress | None,
    thorough: bool,
) -> int:
    members = [each for each in chosen if each.family == family]

    def cases() -> Iterator[golden.Case]:
        for each in members:
            if progress:
                progress(each.name, chosen.index(each), len(chosen))
            yield from golden_cases(each, seed, thorough)

    return writer.family(family, cases()) if members else 0


def golden_cases(operator: spec.Operator, seed: int = 0, pairs: bool = False) -> Iterator[golden.Case]:
    """Yield the cases of an operator with their expected results, without derived ones that PyTorch rejects."""
    for dtype in operator.dtypes:
        for case in operator.cases(dtype, seed, pairs):
            try:
                yield _case(operator, case)
            except RuleError:
                raise
            except _REJECTED:
                if not case.label:
                    raise


def _case(operator: spec.Operator, case: sampling.Case) -> golden.Case:
    schema = opset.schema_of(operator.name)
    outputs, written = _lawful(operator, case) if operator.law else _known(operator, case)
    limit = operator.tolerance[case.dtype]
    return golden.Case(
        id="-".join(part for part in (str(case.index), case.kind, case.model, case.label) if part),
        operator=operator.name,
        dtype=case.dtype,
        layout="contiguous" if case.kind == "special" else case.kind,
        arguments=[_argument(case.arguments[a.name]) for a in schema.inputs],
        outputs=outputs,
        tolerance=golden.Tolerance(limit.ulp, limit.accumulate, limit.reason),
        written=written,
        output_layout=case.output,
    )


def _argument(value: Any) -> golden.Value:
    if isinstance(value, sampling.Array):
        return golden.Tensor(value.storage, value.shape, value.strides, value.offset)
    return [_argument(item) for item in value] if isinstance(value, list) else value  # type: ignore[return-value]


def _known(operator: spec.Operator, case: sampling.Case) -> tuple[list[Any], dict[str, Any]]:
    found = reference.expected(operator, case)
    schema = opset.schema_of(operator.name)
    outputs = [
        _result(values, dtypes, found.magnitudes.get(output.name))
        for output, values, dtypes in zip(schema.outputs, found.outputs, found.output_dtypes, strict=True)
    ]
    written = {
        name: _result(values, reference.dtypes_of(case.arguments[name]), found.magnitudes.get(name))
        for name, values in found.written.items()
    }
    return outputs, written


def _result(values: Any, dtypes: Any, magnitudes: Any) -> golden.Result:
    if values is None:
        return None
    if isinstance(values, list):
        sizes = magnitudes or [None] * len(values)
        return [_result(v, d, s) for v, d, s in zip(values, dtypes, sizes, strict=True)]  # type: ignore[misc]
    return golden.Expected(dtypes, values.shape, values, magnitudes)


def _lawful(operator: spec.Operator, case: sampling.Case) -> tuple[list[Any], dict[str, Any]]:
    assert operator.law is not None
    laws = operator.law(case.arguments)
    schema = opset.schema_of(operator.name)
    outputs = [
        golden.Expected(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), law=laws[output.name])
        for output, tensor in zip(schema.outputs, reference.observed(case), strict=True)
    ]
    written = {
        a.name: golden.Expected(case.arguments[a.name].dtype, case.arguments[a.name].shape, law=laws[a.name])
        for a in schema.arguments
        if a.written
    }
    return outputs, written
