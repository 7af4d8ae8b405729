"""Generates golden data from the opset, by PyTorch on the CPU."""

import hashlib
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus import opset
from isthmus.conformance import golden
from isthmus.conformance.arrays import Array
from isthmus.conformance.judge import FORMATS
from isthmus.conformance.selection import matching, split
from isthmus.opset import operator as spec
from isthmus.opset import reference, sampling
from isthmus.opset.derivation import cases_of
from isthmus.opset.rules import RuleError
from isthmus.opset.tiers import tiers_of
from isthmus_common.parent import end_with_parent

# Errors that PyTorch raises for a call that it does not support.
_REJECTED = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, AssertionError)
Progress = Callable[[str, int, int], None]
_FEW = 8  # operators
# Binary digits: of float64; of magnitudes, which bound errors; and of references, beyond those of the dtype.
_FULL, _DIGITS, _MORE_DIGITS = 53, 12, 16


class Generated(NamedTuple):
    """The numbers of cases written, and of derived calls that PyTorch rejected, by operator."""

    cases: int
    rejected: dict[str, int]


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
) -> Generated:
    """Write golden data, beside that of other operators; of more than a few, with a process per processor.

    Args:
        folder: output folder, created if absent.
        operators: patterns of operator names, such as ``aten::*softmax*``, separated by commas.
        seed: seed of the samples; the same seed and opset give the same bytes.
        progress: called with (operator, done, total).
        thorough: derive cases for every pair of values, and for every dtype all of them.

    Raises:
        UsageError: unknown operator.
        RuleError: a rule of the opset contradicts PyTorch.
    """
    named = matching(split([operators]), opset.operators())
    chosen = [name for name in opset.operators() if name in named]
    notes = {"torch": version("torch"), "numpy": np.__version__, "thorough": thorough}
    writer = golden.Writer(folder, digest(), seed, **notes)
    done = Generated(0, {})
    with _mapping(len(chosen)) as mapping:
        written = mapping(partial(_write, folder=folder, seed=seed, thorough=thorough), chosen)
        for name, (entry, files) in zip(chosen, written, strict=True):
            writer.operator(name, entry, files)
            done = Generated(done.cases + entry.cases, done.rejected | {name: entry.rejected})
            if progress:
                progress(name, len(done.rejected), len(chosen))
    writer.close()
    return done


@contextmanager
def _mapping(operators: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a ``map`` over processes, or of this process for few operators, which take less than their start."""
    if operators <= _FEW:
        import torch

        threads = torch.get_num_threads()
        _one_thread()
        try:
            yield map
        finally:
            torch.set_num_threads(threads)
        return
    # Forks of a process that has used PyTorch's threads could hang.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, operators), spawn, _start_process) as pool:
        yield pool.map


def _start_process() -> None:
    end_with_parent(signal.SIGKILL)  # the executor's processes would outlive a killed one
    _one_thread()


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # the order of summation changes the last bits


def _write(name: str, folder: Path, seed: int, thorough: bool) -> tuple[golden.OperatorEntry, dict[str, str]]:
    operator = opset.operators()[name]
    tally: Counter[str] = Counter()
    files = golden.write_cases(folder, name, golden_cases(operator, seed, thorough, tally=tally))
    schema, tiers = opset.records()[name]["schema"], tuple(sorted(tiers_of(name)))
    return golden.OperatorEntry(
        schema, operator.family, tiers=tiers, random=operator.law is not None, **tally
    ), files


def golden_cases(
    operator: spec.Operator,
    seed: int = 0,
    pairs: bool = False,
    dtypes: Sequence[str] = (),
    tally: Counter[str] | None = None,
) -> Iterator[golden.Case]:
    """Yield the cases of an operator with their expected results, without derived ones that PyTorch rejects.

    Args:
        pairs: derive cases for every pair of values.
        dtypes: those of the operator's dtypes whose cases are computed (default: all).
        tally: receives the number of "cases", of "derived" ones among them, and of "rejected" derived calls.
    """
    counts = Counter() if tally is None else tally
    for dtype in dtypes or operator.dtypes:
        for case in cases_of(operator, dtype, seed, pairs):
            try:
                made = _case(operator, case)
            except RuleError:
                raise
            except _REJECTED:
                if not case.label:
                    raise
                counts["rejected"] += 1
            else:
                counts["cases"] += 1
                counts["derived"] += bool(case.label)
                yield made


def _case(operator: spec.Operator, case: sampling.Case) -> golden.Case:
    schema = opset.schema_of(operator.name)
    outputs, written = _results_by_law(operator, case) if operator.law else _known_results(operator, case)
    limit = operator.tolerance[case.dtype]
    if limit.ulp or limit.accumulate:
        outputs = [_shortened(each) for each in outputs]
        written = {name: _shortened(each) for name, each in written.items()}
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


def _known_results(operator: spec.Operator, case: sampling.Case) -> tuple[list[Any], dict[str, Any]]:
    found = reference.compute_expected(operator, case)
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


def _shortened(result: golden.Result) -> golden.Result:
    """Cut digits of references and magnitudes that no tolerance shows, so that they are compressed."""
    if result is None or not isinstance(result, golden.Expected):
        return None if result is None else [_shortened(each) for each in result]  # type: ignore[misc]
    digits = FORMATS[result.dtype].precision + _MORE_DIGITS if result.dtype in FORMATS else _FULL
    magnitude = None if result.magnitude is None else _cut(result.magnitude, _DIGITS)
    reference = None if result.reference is None else _cut(result.reference, digits)
    return replace(result, reference=reference, magnitude=magnitude)


def _cut(values: Array, digits: int) -> Array:
    """Round float64 or complex128 numbers towards 0 to binary digits."""
    if digits >= _FULL:
        return values
    kept = np.uint64(2**64 - 2 ** (_FULL - digits))
    words = np.ascontiguousarray(values).reshape(-1).view(np.uint64) & kept
    return words.view(values.dtype).reshape(values.shape)


def _results_by_law(operator: spec.Operator, case: sampling.Case) -> tuple[list[Any], dict[str, Any]]:
    assert operator.law is not None
    laws = operator.law(case.arguments)
    schema = opset.schema_of(operator.name)
    outputs = [
        golden.Expected(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), law=laws[output.name])
        for output, tensor in zip(schema.outputs, reference.observe_outputs(case), strict=True)
    ]
    written = {
        a.name: golden.Expected(case.arguments[a.name].dtype, case.arguments[a.name].shape, law=laws[a.name])
        for a in schema.arguments
        if a.written
    }
    return outputs, written
