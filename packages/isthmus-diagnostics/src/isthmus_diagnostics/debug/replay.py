"""Replay captured calls and compare the results with the captured ones and with a float64 reference."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from isthmus_diagnostics.debug import reference
from isthmus_diagnostics.debug.call import Call, replace_tensors, same_bits
from isthmus_diagnostics.debug.capturing import CALL, FORMAT, TENSORS
from isthmus_diagnostics.debug.intercept import KEY, call_on, overload_named
from isthmus_diagnostics.debug.verdict import Difference, Limit, judge


class ReplayError(ValueError):
    """A captured call cannot be replayed; the message is one line."""


@dataclass(frozen=True)
class Captured:
    """A captured call.

    Attributes:
        folder: its folder.
        name: overload.
        line: line of the program that made the call.
        random: whether its results depend on a generator.
        arguments: by name, tensors on CPU.
        results: names and tensors.
    """

    folder: Path
    name: str
    line: str
    random: bool
    arguments: dict[str, Any]
    results: list[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Outcome:
    """The result of a replay.

    Attributes:
        captured: the call.
        same: whether the results equal the captured ones bit for bit.
        repeatable: whether every run gave the same bits.
        wrong: differences beyond the tolerance from the reference and the captured results. Results that agree with
            the reference are right, whatever was captured; without a reference, those that agree with the captured
            ones.
        problem: why the call could not be judged, or "".
        differs: whether the results differ from the captured ones beyond the tolerance.
    """

    captured: Captured
    same: bool
    repeatable: bool
    wrong: tuple[Difference, ...]
    problem: str = ""
    differs: bool = False

    @property
    def is_deterministic(self) -> bool:
        """Whether no two runs gave different bits where they should have given the same."""
        return self.repeatable or self.captured.random

    @property
    def is_wrong(self) -> bool:
        """Whether the operator is at fault."""
        return bool(self.wrong) or not self.is_deterministic


def folders(root: Path) -> list[Path]:
    """Return the folders of captured calls: the root itself, or those in it.

    Raises:
        ReplayError: the root has no captured calls.
    """
    found = [root] if (root / CALL).is_file() else sorted(p.parent for p in root.glob(f"[!.]*/{CALL}"))
    if not found:
        raise ReplayError(
            f"{root}: contains no captured calls; create them with isthmus_diagnostics.debug.capture"
        )
    return found


def read(folder: Path) -> Captured:
    """Read one call.

    Raises:
        ReplayError: a file is missing, truncated or of another format.
    """
    try:
        document = json.loads((folder / CALL).read_text())
        tensors = safetensors.torch.load((folder / TENSORS).read_bytes())
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ReplayError(f"{folder}: cannot read the captured call: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReplayError(f"{folder / CALL}: not a captured call of format {FORMAT}")
    try:
        arguments = {name: _load(value, tensors) for name, value in document["arguments"].items()}
        results = [(entry["name"], _load(entry, tensors)) for entry in document["results"]]
        return Captured(
            folder, document["operator"], document["line"], document["random"], arguments, results
        )
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ReplayError(
            f"{folder / CALL}: incomplete or modified: {error}; capture the call again"
        ) from None


def _load(entry: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Any:
    if "tensor" in entry:
        row = tensors[entry["tensor"]]
        row = torch.view_as_complex(row) if entry["dtype"].startswith("complex") else row
        if str(row.dtype) != f"torch.{entry['dtype']}":
            raise TypeError(f"{entry['tensor']} is {row.dtype}, not {entry['dtype']}")
        return row.as_strided(entry["shape"], entry["strides"])
    if "list" in entry:
        return [_load(item, tensors) for item in entry["list"]]
    if "device" in entry:
        return torch.device(entry["device"])
    if "torch" in entry:
        return getattr(torch, entry["torch"])
    if "complex" in entry:
        return complex(*entry["complex"])
    if "float" in entry:
        return float(entry["float"])
    return entry.get("value")


def replay(captured: Captured, device: str, times: int, compare: bool) -> Outcome:
    """Replay a call.

    Args:
        captured: the call.
        device: ``cpu`` or ``chip``.
        times: number of runs; all must give the same bits.
        compare: compare with the float64 reference even if the results are the captured ones, and report why there
            is none.
    """
    try:
        op = overload_named(captured.name)
    except AttributeError:
        return Outcome(captured, False, True, (), f"this PyTorch has no operator {captured.name}")
    runs = []
    for _ in range(times):
        try:
            runs.append(run_on(device, op, captured.arguments))
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return Outcome(captured, False, True, (), str(error).splitlines()[0])
    repeatable = all(_are_same(runs[0], other) for other in runs[1:])
    if captured.random:
        return Outcome(captured, False, repeatable, (), "not judged: draws random numbers")
    same = _are_same(runs[0], captured.results)
    expected: reference.Expected | None = None
    problem = ""
    if compare or not same:
        try:
            expected = reference.compute_expected(captured.name, captured.arguments)
        except reference.NoReference as why:
            problem = str(why) if compare else ""
    magnitudes = expected.magnitudes if expected else []
    changed = [] if same else _compare_with_captured(captured.name, runs[0], captured.results, magnitudes)
    wrong = changed
    if expected and (compare or changed):
        off = _against_reference(captured.name, runs[0], expected)
        wrong = off and off + changed
    return Outcome(captured, same, repeatable, tuple(wrong), problem, bool(changed))


def _against_reference(
    name: str, got: list[tuple[str, torch.Tensor]], expected: reference.Expected
) -> list[Difference]:
    found = []
    for index, (label, tensor) in enumerate(got):
        limit = reference.limit_of(name, tensor.dtype)
        exact, native = expected.exact[index][1], expected.native[index]
        difference, _ = judge(label, tensor, exact, native, limit, expected.magnitudes[index])
        found += [difference] if difference else []
    return found


def run_on(device: str, op: Any, arguments: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """Run an overload on a device and return its results on CPU; raises what the overload raises."""

    def place(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device(device)
        return replace_tensors(value, lambda tensor: _copy_to(tensor, device))

    values = {name: place(value) for name, value in arguments.items()}
    args = [values[a.name] for a in op._schema.arguments if not a.kwarg_only]
    kwargs = {a.name: values[a.name] for a in op._schema.arguments if a.kwarg_only}
    returned = call_on(op, "CPU" if device == "cpu" else KEY, args, kwargs)
    return [(n, t.detach().to("cpu")) for n, t in Call(op.name(), op, tuple(args), kwargs).results(returned)]


def _copy_to(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Copy a tensor with its strides."""
    if tensor.numel() == 0:
        return tensor.to(device)
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    row = tensor.as_strided((span,), (1,)).to(device, copy=True)
    return row.as_strided(tensor.shape, tensor.stride())


def _are_same(a: list[tuple[str, torch.Tensor]], b: list[tuple[str, torch.Tensor]]) -> bool:
    return len(a) == len(b) and all(same_bits(x, y) for (_, x), (_, y) in zip(a, b, strict=True))


def _compare_with_captured(
    name: str,
    got: list[tuple[str, torch.Tensor]],
    former: list[tuple[str, torch.Tensor]],
    magnitudes: list[torch.Tensor | None],
) -> list[Difference]:
    """Compare with the captured results; two correct results may be twice the tolerance apart."""
    if len(got) != len(former):
        return [Difference("", f"{len(got)} results, expected {len(former)}")]
    found = []
    for index, ((label, tensor), (_, then)) in enumerate(zip(got, former, strict=True)):
        one = reference.limit_of(name, tensor.dtype)
        limit = Limit(2 * one.ulp, 2 * one.accumulate, one.source, one.pointwise)
        magnitude = magnitudes[index] if index < len(magnitudes) else None
        difference, _ = judge(label, tensor, then, then, limit, magnitude)
        found += [replace(difference, reason=f"captured result: {difference.reason}")] if difference else []
    return found


def _faults(outcome: Outcome) -> list[str]:
    """Return descriptions of the faults, nondeterminism first."""
    found = [] if outcome.is_deterministic else ["not deterministic: two runs gave different bits"]
    return found + [each.text for each in outcome.wrong[:1]] + ([outcome.problem] if outcome.problem else [])


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON."""
    captured = outcome.captured
    return {
        "call": captured.folder.name,
        "operator": captured.name,
        "line": captured.line,
        "random": captured.random,
        "wrong": outcome.is_wrong,
        "deterministic": outcome.is_deterministic,
        "same": outcome.same,
        "differences": [each.text for each in outcome.wrong],
        "problem": outcome.problem,
    }


def line(outcome: Outcome) -> str:
    """Format an outcome as one line."""
    captured = outcome.captured
    head = f"{captured.name} ({captured.folder.name}, {captured.line or 'no line'})"
    if outcome.is_wrong:
        return f"WRONG {head}: {'; '.join(_faults(outcome))}"
    if outcome.problem:
        return f"      {head}: {outcome.problem}"
    if outcome.differs:
        return f"ok    {head}: right, and differs from the captured result"
    return f"ok    {head}: {'bit-equal' if outcome.same else 'within the tolerance'}"
