"""Judge one OpInfo compiled by the graph backend, or as Triton's kernels, against eager mode on the same chip."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import isthmus._C as core

from .compare import TOLERANCES, Outcome, attempt
from .runner import Judge, Report
from .table import _cell, _note
from .twin import CHIP, Copier, to_cpu, tree_map
from .verdict import Verdict

TRACED = "traced"  # part of the samples that equal the operators of the traced graph, not those of the script
_PROD = "autograd divides by the elements if none is zero; traced code cannot ask, and multiplies the others"
REASONS = {  # why only the traced graph is equal
    "addcdiv": "Dynamo replaces the call by a division, a product and a sum",
    "prod": _PROD,
    "masked.prod": _PROD,
}


class Way(NamedTuple):
    """A way to compile.

    Attributes:
        compile: the arguments of ``torch.compile``, as on the page.
        what: does it.
        exact: results are bit-equal to eager ones.
    """

    compile: dict[str, Any]
    what: str
    exact: bool = False


WAYS = {
    "compiled": Way({"backend": "isthmus", "options": {"fuse": False}}, "by the graph backend", exact=True),
    "fused": Way({"backend": "isthmus", "options": {"fuse": True}}, "by the graph backend"),
    "triton": Way({"backend": "inductor"}, "as kernels in Triton"),  # with ISTHMUS_COMPILE_CODEGEN=triton
}


class CompiledJudge(Judge):
    """Compares compiled results and gradients with eager ones: bit for bit, or within a tolerance.

    A sample that eager mode refuses is not of the operators that the chip claims. Where tracing replaces operators,
    whatever the backend, a sample has to equal the traced graph that runs in eager mode (``aot_eager``).
    """

    way = WAYS["compiled"]
    peer = ""  # the backend that gives the expected results; none: eager mode

    def run(self) -> Verdict:
        """Judge the operator and its gradients."""
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index, sample in self.samples():
                self.forward_backward(index, sample)
        self.verdict.seconds = round(time.monotonic() - start, 2)
        return self.verdict

    def without_samples(self, error: Exception) -> None:
        """Count them as one call that the chip refuses."""
        part = self.verdict.part("forward")
        part.agreed, part.raised = 1, 1

    def forward_backward(self, index: int, sample: Any) -> None:
        """Judge one sample against eager mode; if that differs, against the traced graph in eager mode."""
        whole = self.verdict
        eager = self._against("", index, sample)
        traced = self._against("aot_eager", index, sample) if eager.failures else eager
        raised = any(part.raised for part in traced.parts.values())
        chosen = eager if traced.failures or raised else traced
        for name, part in chosen.parts.items():
            whole.part(name).add(part)
        whole.part(TRACED).agreed += chosen is not eager
        self.verdict = whole

    def both(
        self, sample: Any, function: Callable[[Any, Any, Any], Any]
    ) -> tuple[Outcome, Outcome, tuple[Any, Any, Any], tuple[Any, Any, Any]]:
        """Call function(input, args, kwargs) compiled and in eager mode, on fresh copies of the sample."""
        arguments = (sample.input, sample.args, sample.kwargs)
        ours, theirs = Copier(CHIP)(arguments), Copier(CHIP)(arguments)
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False, **self.way.compile)
        expected = torch.compile(function, backend=self.peer, dynamic=False) if self.peer else function
        eager = attempt(lambda: expected(*theirs))
        if eager.error is not None:  # refused: there is nothing to compile
            return eager, eager, ours, theirs
        return attempt(lambda: compiled(*ours)), eager, ours, theirs

    def _against(self, peer: str, index: int, sample: Any) -> Verdict:
        """Judge one sample against a peer; results are compared on the CPU."""
        self.peer, self.verdict = peer, Verdict(self.verdict.op, self.verdict.dtype)
        where = f"sample {index}"
        self.report(f"forward {where}")
        compiled, eager, ours, theirs = self.both(sample, self.call)
        part = self.verdict.part("forward")
        returned = part.judge(_on_cpu(compiled), _on_cpu(eager), where, self.values, placed=False)
        if returned:
            self.judge_arguments(part, where, _moved(ours), _moved(theirs))
            self.backward("backward", where, sample, self.call, (compiled.value, ours), (eager.value, theirs))
        return self.verdict

    def judge_gradients(self, name: str, where: str, compiled: Outcome, eager: Outcome) -> None:
        """Compare gradients on the CPU; those that eager mode refuses are not claimed."""
        if eager.error is None or self.peer:
            ours, theirs = _contiguous(compiled), _contiguous(eager)
            self.verdict.part(name).judge(ours, theirs, f"{where} gradients", self.values, placed=False)


def _moved(value: Any) -> Any:
    return tree_map(lambda leaf: to_cpu(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def _contiguous(outcome: Outcome) -> Outcome:
    """Gradients without their strides, which are those of the traced gradients in compiled code."""
    value = tree_map(
        lambda leaf: leaf.contiguous() if isinstance(leaf, torch.Tensor) else leaf, outcome.value
    )
    return outcome if outcome.error else _on_cpu(Outcome(value=value))


def _on_cpu(outcome: Outcome) -> Outcome:
    return outcome if outcome.error else Outcome(value=_moved(outcome.value))


def judge(op: Any, dtype: torch.dtype, cap: int, report: Report, way: str) -> Verdict:
    """Judge one operator; see :func:`tools.opinfo.runner.judge`."""
    judged = CompiledJudge(op, dtype, cap, report, reference=False, forward=False)
    judged.way = WAYS[way]
    if not judged.way.exact and judged.values == "bits":
        judged.values = "near"
    return judged.run()


def counts(verdicts: list[Verdict]) -> list[str]:
    """Return the summary: an operator is claimed if eager mode serves at least one sample."""
    claimed = [v for v in verdicts if v.runs_on_cpu]
    equal = [v for v in claimed if not v.failures]
    traced = [v.op for v in equal if v.part(TRACED).agreed]
    forward, backward = ([v.part(name) for v in verdicts] for name in ("forward", "backward"))
    return [
        f"- judged: {len(verdicts)}; served by the chip in eager mode: {len(claimed)}; equal: {len(equal)}"
        f" ({len(equal) / max(1, len(claimed)):.1%}), of these {len(traced)} to the traced graph alone",
        f"- calls: {sum(p.agreed - p.raised for p in forward)} equal, {sum(p.failed for p in forward)} not"
        f" ({sum(p.raised for p in forward)} refused by the chip)",
        f"- gradients: {sum(p.agreed for p in backward)} equal, {sum(p.failed for p in backward)} not",
        f"- crashes and hangs: {sum('crash' in v.failures for v in verdicts)}",
    ]


def page(verdicts: list[Verdict], settings: str, name: str) -> str:
    """Return the page: the summary, and the operators that are not equal, or to the traced graph alone."""
    way = WAYS[name]
    call = ", ".join(f"{key}={value!r}" for key, value in way.compile.items()).replace("'", '"')
    near = f"equal within {TOLERANCES['near'][0]:g}, or {TOLERANCES['near'][1]:g} of the largest element"
    rows = [v for v in sorted(verdicts, key=lambda v: v.op.lower()) if v.failures or v.part(TRACED).agreed]
    return "\n".join(
        [
            f"# PyTorch's operator samples compiled {way.what} on the {core.driver()['name']} chip",
            "",
            f"Generated by `python -m tools.opinfo --compiled {name}`; do not edit. Samples of `torch.testing`'s",
            f"`op_db`, each compiled by `torch.compile({call})` and, from the same",
            "bytes, called in eager mode on the same chip. Results, gradients and modified arguments must be",
            f"{'equal to the bit' if way.exact else near}. Where tracing itself replaces operators (on the CPU,",
            'too, the results of `backend="aot_eager"` then differ from eager ones), they must equal those of the',
            "traced graph in eager mode on the chip; the table counts these samples.",
            f"{settings}",
            "",
            *counts(verdicts),
            "",
            "| operator | forward | gradients | samples equal to the traced graph alone | what differs |",
            "| --- | --- | --- | --- | --- |",
            *(
                f"| {v.op} | {_cell([v.part('forward')])} | {_cell([v.part('backward')])} |"
                f" {v.part(TRACED).agreed or ''} | {_why(v)} |"
                for v in rows
            ),
            "",
        ]
    )


def _why(verdict: Verdict) -> str:
    return _note([verdict]) if verdict.failures else REASONS.get(verdict.op, "not known")


def place(pages: Path, way: str) -> Path:
    """Return the file of the page, in the folder of pages."""
    return pages / f"opinfo-{way}-{core.driver()['name']}.md"
