"""PyTorch's operators on chip tensors as a test target, compared with the same golden data as kernels.

This tests routes other than kernels: the host chip's delegate, decompositions, fallbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import isthmus
from isthmus import _C
from isthmus.chip.registration import libraries
from isthmus.conformance.arrays import Array
from isthmus.conformance.diagnosis import Seen, diagnose
from isthmus.conformance.executor import Outcome
from isthmus.conformance.golden import Case, Expected, Result, Tensor, Value
from isthmus.conformance.invalid import invalid_calls
from isthmus.conformance.judge import differing, judge
from isthmus.opset import dtypes as dt
from isthmus.opset.reference import from_torch, overload
from isthmus.opset.schema import Argument, Schema
from isthmus_common.text import first_line

_SEED = 0x5EED
FALLBACK = "no route but copies to the CPU (fallback)"


def _fallbacks() -> int:
    """Return the number of calls that the CPU has computed on copies, which says nothing of the chip."""
    return int(_C.dispatch_stats()["calls"].get("fallback", 0))


class PyTorchTarget:
    """The chip's first device, through ``torch.ops``.

    Raises:
        RuntimeError: the chip is not registered with PyTorch.
    """

    def __init__(self) -> None:
        status = isthmus.status()
        if not status.registered:
            raise RuntimeError(f"the chip is not registered with PyTorch: {status.reason}")
        self._chip = torch.device("chip", 0)

    def describe(self) -> dict[str, Any]:
        """Describe driver and device; the library is PyTorch, whose CPU kernels depend on the processor.

        The description names what computes: CPU kernels where they are the delegate, and the operator libraries.
        """
        chip: Any = torch.chip  # type: ignore[attr-defined]
        name = chip.get_device_name(0)
        float16 = "with" if torch.ops.mkldnn._is_mkldnn_fp16_supported() else "without"
        bfloat16 = "with" if torch.cpu._is_avx512_bf16_supported() else "without"
        machine = f"PyTorch's CPU kernels; oneDNN {float16} float16; AVX512 {bfloat16} BF16"
        delegates = [machine] if _C.driver()["delegate"] else []
        used = [*delegates, *(library.description for library in libraries())]
        routes = {
            "name": "pytorch",
            "description": f"PyTorch {torch.__version__}, every route: {'; '.join(used)}",
            "operators": {},
        }
        return {
            "driver": isthmus.status().driver,
            "description": name,
            "device": name,
            "devices": chip.device_count(),
            "libraries": [routes],
        }

    def calls(self, schema: Schema, case: Case) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Yield a function that runs a case on the default stream and on another."""
        yield "pytorch", lambda: self._judge_case(schema, case)

    def _judge_case(self, schema: Schema, case: Case) -> Outcome:
        chip: Any = torch.chip  # type: ignore[attr-defined]
        before = _fallbacks()
        try:
            first = _Call(schema, case, self._chip).run()
            if _fallbacks() > before:
                return Outcome("not claimed", FALLBACK)
            with chip.stream(chip.Stream()):
                second = _Call(schema, case, self._chip).run()
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            if _fallbacks() > before:  # the CPU's kernel raised it
                return Outcome("not claimed", FALLBACK)
            return Outcome("failed", f"{case.operator} raised {type(error).__name__}: {first_line(error)}")
        verdicts = [(label, judge(got, expected, case.tolerance)) for label, got, expected in first.results()]
        problems = [f"{label}: {verdict.problem}" for label, verdict in verdicts if verdict.problem]
        problems += first.modified()
        problems += self._accepted_indices(schema, case)
        for (label, got, expected), (_, again, _) in zip(first.results(), second.results(), strict=True):
            loose = expected.law is not None and expected.law.get("name") == "any"
            if not loose and differing(got, again).any():
                problems.append(f"{label}: the same call on another stream gave different bits")
        if not problems:
            return Outcome("passed", "", verdicts)
        seen = [
            Seen(label, got, expected, verdict.mask)
            for (label, got, expected), (_, verdict) in zip(first.results(), verdicts, strict=True)
        ]
        guess = diagnose(schema, case, seen, partial(self._results, schema))
        return Outcome("failed", "; ".join(problems), verdicts, seen, guess)

    def _results(self, schema: Schema, case: Case) -> dict[str, Array]:
        """Return the results of one call, by label; none if it is refused."""
        try:
            return {label: got for label, got, _ in _Call(schema, case, self._chip).run().results()}
        except (RuntimeError, TypeError, ValueError, IndexError):
            return {}

    def _accepted_indices(self, schema: Schema, case: Case) -> list[str]:
        """Report an index out of range that is accepted; not for CPU kernels, which are PyTorch's."""
        if _C.driver()["delegate"]:
            return []
        for text, invalid in invalid_calls(schema, case):
            try:
                _Call(schema, invalid, self._chip).run()
            except (RuntimeError, IndexError, ValueError):
                continue
            return [f"{text}: accepted, expected an error"]
        return []


class _Call:
    """A call of a case with its results."""

    def __init__(self, schema: Schema, case: Case, device: torch.device) -> None:
        self._schema, self._case, self._device = schema, case, device
        self._storages: list[tuple[str, torch.Tensor, Array]] = []
        self._given: dict[str, Any] = {}
        for argument, value in zip(schema.inputs, case.arguments, strict=True):
            self._given[argument.name] = self._value(argument, value)
        self._outputs: list[Any] = []

    def run(self) -> _Call:
        # torch.manual_seed formats the stack once for each accelerator that PyTorch knows.
        torch.default_generator.manual_seed(_SEED)
        torch.chip.manual_seed(_SEED)  # type: ignore[attr-defined]
        returned = overload(self._schema.name)(**{**self._given, **self._omitted_arguments()})
        if len(self._schema.returns) == len(self._schema.outputs):
            several = len(self._schema.outputs) != 1
            self._outputs = list(returned) if several and returned is not None else [returned]
        torch.accelerator.synchronize()
        return self

    def results(self) -> list[tuple[str, Array, Expected]]:
        """Return (label, values, expected) of outputs and written arguments."""
        found: list[tuple[str, Array, Expected]] = []
        for output, got, expected in zip(
            self._schema.outputs, self._outputs, self._case.outputs, strict=False
        ):
            _pair(output.name, got, expected, found)
        for name, expected in self._case.written.items():
            _pair(name, self._given[name], expected, found)
        return found

    def modified(self) -> list[str]:
        """Report inputs whose memory, gaps included, was modified."""
        return [
            f"the input {label} was modified"
            for label, storage, before in self._storages
            if differing(to_numpy(storage), before).any()
        ]

    def _value(self, argument: Argument, value: Value) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(argument, argument.name, value)
        if isinstance(value, (list, tuple)) and argument.is_tensor:
            return [
                None if item is None else self._tensor(argument, f"{argument.name}[{i}]", item)
                for i, item in enumerate(value)
            ]
        return value

    def _tensor(self, argument: Argument, label: str, value: Tensor) -> torch.Tensor:
        storage = to_torch(value.storage, self._device)
        if not argument.written:
            self._storages.append((label, storage, value.storage))
        return storage.as_strided(value.shape, value.strides, value.offset)

    def _omitted_arguments(self) -> dict[str, Any]:
        """Return arguments that kernels do not take (dtype, device), from the expected results."""
        dtypes = [e.dtype for e in self._case.outputs if isinstance(e, Expected)]
        on_chip = any(isinstance(value, torch.Tensor) for value in self._given.values())
        found: dict[str, Any] = {}
        for argument in self._schema.arguments:
            if argument.base == "ScalarType" and dtypes:
                found[argument.name] = getattr(torch, dtypes[0])
            elif argument.base == "Device" and not on_chip:
                found[argument.name] = self._device
        return found


def to_torch(array: Array, device: torch.device) -> torch.Tensor:
    """Copy a 1-D array, ml_dtypes included, to a tensor on a device."""
    kind = getattr(torch, dt.name_of(array.dtype))
    if array.size == 0:
        return torch.empty(0, dtype=kind, device=device)
    raw = torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).copy())
    return raw.view(kind).to(device)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Copy a tensor to an array in row-major order; bfloat16 and float8 become ml_dtypes."""
    return from_torch(tensor.detach().resolve_conj().resolve_neg().cpu())


def _pair(label: str, got: Any, expected: Result, found: list[tuple[str, Array, Expected]]) -> None:
    if isinstance(expected, Expected):
        found.append((label, to_numpy(got), expected))
    elif isinstance(expected, Sequence):
        for i, (item, wanted) in enumerate(zip(got, expected, strict=True)):
            _pair(f"{label}[{i}]", item, wanted, found)
