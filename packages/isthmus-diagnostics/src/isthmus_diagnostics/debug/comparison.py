"""Compare calls with a float64 reference."""

from typing import Any

import torch

from isthmus_diagnostics.debug import intercept, reference
from isthmus_diagnostics.debug.call import Call, describe, same_bits, tensors_of
from isthmus_diagnostics.debug.call_origin import Origin, origin
from isthmus_diagnostics.debug.record import Findings
from isthmus_diagnostics.debug.verdict import Difference, judge

# Results of these are positions. Among equal values, any position is correct.
_POSITIONS = frozenset(
    "argmax argmin cummax cummin kthvalue max median min mode nanmedian sort topk argsort msort".split()
)


class Compare:
    """A probe that compares every element of each call with the same overload on CPU in float64.

    Args:
        findings: receives the verdicts.
    """

    name = "compare"
    nearest = False

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def around(self, call: Call, proceed: intercept.Proceed) -> Any:
        """Run one call and compare its results."""
        with intercept.hide_calls():
            reason = reference.why_none(call)
            before = {} if reason else reference.snapshot(call)
        if reason:
            self.findings.skip(call.name, reason)
            return proceed()
        where = origin(any(tensor.requires_grad for _, tensor in call.inputs()))
        returned = proceed()
        with intercept.hide_calls():
            self._judge(call, before, returned, where)
        return returned

    def _judge(self, call: Call, before: dict[str, Any], returned: Any, where: Origin) -> None:
        try:
            expected = reference.compute_expected(call.name, before)
        except reference.NoReference as why:
            self.findings.skip(call.name, str(why))
            return
        self.findings.count(call.name)
        got = [(name, tensor.detach().to("cpu")) for name, tensor in call.results(returned)]
        wrong = _find_modified(call, before)
        worst = -1.0
        if len(got) != len(expected.exact):
            wrong.append(Difference("", f"{len(got)} results, expected {len(expected.exact)}"))
        else:
            for index, (name, tensor) in enumerate(got):
                found, ulps = _judge_result(call, before, name, tensor, expected, index)
                worst = max(worst, ulps)
                wrong += [found] if found else []
        self.findings.verdict(_row(call, got, where, wrong, worst), failed=bool(wrong))


def _judge_result(
    call: Call, before: dict[str, Any], name: str, got: torch.Tensor, expected: reference.Expected, index: int
) -> tuple[Difference | None, float]:
    exact, native = expected.exact[index][1], expected.native[index]
    limit = reference.limit_of(call.name, got.dtype)
    found = judge(name, got, exact, native, limit, expected.magnitudes[index])
    if found[0] and got.dtype == torch.int64 and _is_tie(call, before, got, native):
        return None, 0.0
    return found


def _is_tie(call: Call, before: dict[str, Any], got: torch.Tensor, native: torch.Tensor) -> bool:
    """Return whether positions differ only among equal values."""
    values = before.get("self")
    base = call.name.partition("::")[2].partition(".")[0]
    if base not in _POSITIONS or not isinstance(values, torch.Tensor) or got.shape != native.shape:
        return False
    dim = before.get("dim")
    if dim is None:
        values, got, native, dim = values.flatten(), got.flatten(), native.flatten(), 0
    elif got.dim() < values.dim():
        got, native = got.unsqueeze(dim), native.unsqueeze(dim)
    if bool(((got < 0) | (got >= values.shape[dim])).any()):
        return False
    distinct = base not in ("sort", "argsort", "topk", "msort") or all(
        len(row.unique()) == len(row) for row in got.movedim(dim, -1).reshape(-1, got.shape[dim])
    )
    return distinct and torch.equal(values.gather(dim, got), values.gather(dim, native))


def _find_modified(call: Call, before: dict[str, Any]) -> list[Difference]:
    """Find inputs that the call modified without declaring it in its schema."""
    if not any(True for _ in call.inputs()):
        return []
    storages = {
        t.untyped_storage().data_ptr()
        for name in call.written
        for _, t in tensors_of(name, call.arguments[name])
    }
    found = []
    for name, value in call.arguments.items():
        for (label, now), (_, then) in zip(
            tensors_of(name, value), tensors_of(name, before[name]), strict=True
        ):
            if name not in call.written and now.untyped_storage().data_ptr() not in storages:
                changed = not same_bits(now.detach().to("cpu").resolve_conj().resolve_neg(), then)
                found += [Difference(label, "input was modified")] if changed else []
    return found


def _row(
    call: Call, got: list[tuple[str, torch.Tensor]], where: Origin, wrong: list[Difference], ulps: float
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "operator": call.name,
        "inputs": {name: describe(tensor) for name, tensor in call.inputs()},
        "results": {name: describe(tensor) for name, tensor in got},
        "line": where.line,
        "library": where.library,
        "backward": where.backward,
        "node": where.node,
        "ulps": ulps,
    }
    if wrong:
        row["wrong"] = [vars(difference) for difference in wrong]
        row["text"] = f"{call.name} {_shapes(row)} at {where}: {wrong[0].text}"
    return row


def _shapes(row: dict[str, Any]) -> str:
    inputs = list(row["inputs"].values())
    return f"({', '.join(inputs[:4])}{', ...' if len(inputs) > 4 else ''})"
