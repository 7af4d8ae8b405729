"""Judge one OpInfo with one dtype: all its variants, on the chip against the CPU."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

import isthmus._C as core

from .compare import Compared, Outcome, attempt, one_line, outcome_difference, value_difference
from .data import compared, placed_on_cpu
from .twin import CHIP, Copier, devices_of, tensors_of, tree_map
from .verdict import Part, Verdict
from .widened import Widened, has_rules

Report = Callable[[str], None]


def spaced_evenly(items: list[Any], limit: int) -> list[tuple[int, Any]]:
    """Return at most ``limit`` evenly spaced items with their positions, including first and last; all for 0."""
    if limit == 0 or len(items) <= limit:
        return list(enumerate(items))
    if limit == 1:
        return [(0, items[0])]
    picks = sorted({round(i * (len(items) - 1) / (limit - 1)) for i in range(limit)})
    return [(i, items[i]) for i in picks]


def gradients(
    outputs: Any, leaves: list[torch.Tensor], *, keeps_graph: bool = False
) -> list[torch.Tensor | None]:
    """Return gradients of all differentiable outputs with respect to leaves; grad_outputs are drawn on the CPU."""
    differentiable = [t for t in tensors_of(outputs) if t.requires_grad]
    generator = torch.Generator().manual_seed(1)
    upstream = []
    for tensor in differentiable:
        if tensor.layout != torch.strided or tensor.is_nested:
            upstream.append(tensor.detach().clone())
            continue
        drawn = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        upstream.append(drawn.to(tensor.dtype).to(tensor.device))
    return list(
        torch.autograd.grad(differentiable, leaves, upstream, allow_unused=True, retain_graph=keeps_graph)
    )


class Judge:
    """State of judging one operator with one dtype."""

    def __init__(
        self, op: Any, dtype: torch.dtype, cap: int, report: Report, reference: bool, forward: bool
    ) -> None:
        self.op, self.dtype, self.cap, self.report, self.forward = op, dtype, cap, report, forward
        self.make_samples = op.reference_inputs if reference else op.sample_inputs
        self.verdict = Verdict(op.full_name, short_name(dtype))
        self.values: Compared = compared(op.full_name)
        if forward and self.values == "bits":
            self.values = "near"
        self.placed = not placed_on_cpu(op.full_name)
        self.widens = has_rules(dtype)

    def run(self) -> Verdict:
        """Judge every part."""
        start = time.monotonic()
        core.reset_dispatch_stats()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index, sample in self.samples():
                self.forward_backward(index, sample)
            if not self.forward:
                self.other_variants()
        self.state()
        self.verdict.seconds = round(time.monotonic() - start, 2)
        return self.verdict

    def other_variants(self) -> None:
        """Judge the operator without gradients, in place, with out=, and where it must raise."""
        for index, sample in self.samples(limit=self.cap and max(2, self.cap // 3)):
            self.no_grad(index, sample)
            self.inplace(index, sample)
            self.out(index, sample)
        self.errors()

    def samples(self, limit: int | None = None) -> list[tuple[int, Any]]:
        """Return the capped samples, created on the chip by OpInfo and cached."""
        if not hasattr(self, "_samples"):
            self.report("samples")
            differentiable = self.dtype.is_floating_point or self.dtype.is_complex
            wants_grad = self.op.supports_autograd and differentiable and not self.forward
            torch.manual_seed(0)
            try:
                made = list(self.make_samples(CHIP, self.dtype, requires_grad=wants_grad))
            except Exception as error:
                self.without_samples(error)
                made = []
            self.verdict.samples = len(made)
            self._samples = spaced_evenly(made, self.cap)
            self.verdict.judged = len(self._samples)
        return self._samples if limit is None else [s for _, s in spaced_evenly(self._samples, limit)]

    def without_samples(self, error: Exception) -> None:
        """Judge the failure to make samples on the chip."""
        self.verdict.part("forward").fail(f"samples: {one_line(error)}")

    def call(self, input: Any, args: Any, kwargs: Any) -> Any:
        return self.op(input, *args, **kwargs)

    def both(
        self, sample: Any, function: Callable[[Any, Any, Any], Any]
    ) -> tuple[Outcome, Outcome, tuple[Any, Any, Any], tuple[Any, Any, Any]]:
        """Call function(input, args, kwargs) on the chip and on the CPU, on fresh copies of the sample.

        The CPU computes in the dtypes of the chip where its own results differ.
        """
        arguments = (sample.input, sample.args, sample.kwargs)
        ours, theirs = Copier(CHIP)(arguments), Copier("cpu")(arguments)
        chip = attempt(lambda: function(*ours))
        cpu = attempt(lambda: function(*theirs))
        if self.widens and outcome_difference(chip, cpu, self.values, placed=False):
            cpu, theirs = self.widened(sample, function)
        return chip, cpu, ours, theirs

    def widened(
        self, sample: Any, function: Callable[[Any, Any, Any], Any]
    ) -> tuple[Outcome, tuple[Any, Any, Any]]:
        """Call the function on the CPU in the dtypes in which the chip computes, on a fresh copy of the sample."""
        theirs = Copier("cpu")((sample.input, sample.args, sample.kwargs))
        with Widened():
            return attempt(lambda: function(*theirs)), theirs

    def judge_arguments(self, part: Part, where: str, ours: Any, theirs: Any) -> None:
        """Compare what the calls wrote to their arguments."""
        difference = value_difference(tensors_of(ours), tensors_of(theirs), self.values, placed=False)
        if difference:
            part.fail(f"{where}: argument {difference}")

    def belongs_on_chip(self, arguments: Any) -> bool:
        """Whether the results of a call belong on the chip: it names a device, or an argument is on the chip."""
        if not self.placed:
            return False
        named = devices_of(arguments)
        return named[0] == CHIP if named else any(t.device.type == CHIP for t in tensors_of(arguments))

    def forward_backward(self, index: int, sample: Any) -> None:
        """Judge the operator under autograd, then its gradients."""
        where = f"sample {index}"
        self.report(f"forward {where}")

        chip, cpu, ours, theirs = self.both(sample, self.call)
        part = self.verdict.part("forward")
        returned = part.judge(chip, cpu, where, self.values, self.belongs_on_chip(ours))
        self.judge_arguments(part, where, ours, theirs)
        if returned:
            self.backward("backward", where, sample, self.call, (chip.value, ours), (cpu.value, theirs))

    def backward(
        self,
        name: str,
        where: str,
        sample: Any,
        function: Callable[[Any, Any, Any], Any],
        chip: tuple[Any, Any],
        cpu: tuple[Any, Any],
    ) -> None:
        """Judge the gradients of (outputs, arguments) of a function."""
        outputs = [sample.output_process_fn_grad(side[0]) for side in (chip, cpu)]
        leaves = [[t for t in tensors_of(side[1]) if t.requires_grad and t.is_leaf] for side in (chip, cpu)]
        if not leaves[1] or not any(t.requires_grad for t in tensors_of(outputs[1])):
            return
        self.report(f"{name} {where}")
        chip_gradients = attempt(lambda: gradients(outputs[0], leaves[0]))
        cpu_gradients = attempt(lambda: gradients(outputs[1], leaves[1], keeps_graph=self.widens))
        if self.widens and outcome_difference(chip_gradients, cpu_gradients, self.values, placed=False):
            with Widened():
                cpu_gradients = attempt(lambda: gradients(outputs[1], leaves[1]))
        if self.widens and outcome_difference(chip_gradients, cpu_gradients, self.values, placed=False):
            forward, theirs = self.widened(sample, function)  # what it keeps for the gradients is wider, too
            if forward.error is None:
                output = sample.output_process_fn_grad(forward.value)
                inputs = [t for t in tensors_of(theirs) if t.requires_grad and t.is_leaf]
                with Widened():
                    cpu_gradients = attempt(lambda: gradients(output, inputs))
        self.judge_gradients(name, where, chip_gradients, cpu_gradients)

    def judge_gradients(self, name: str, where: str, chip: Outcome, cpu: Outcome) -> None:
        """Compare the gradients of both sides."""
        self.verdict.part(name).judge(chip, cpu, f"{where} gradients", self.values)

    def no_grad(self, index: int, sample: Any) -> None:
        """Judge the operator without gradients, where some take other paths."""
        self.report(f"no_grad sample {index}")
        chip, cpu, ours, _ = self.both(sample, torch.no_grad()(self.call))
        self.verdict.part("no_grad").judge(
            chip, cpu, f"sample {index}", self.values, self.belongs_on_chip(ours)
        )

    def inplace(self, index: int, sample: Any) -> None:
        """Judge the in-place variant on a copy of the input, and its gradients."""
        variant = self.op.inplace_variant
        if variant is None or not isinstance(sample.input, torch.Tensor):
            return
        where = f"in place, sample {index}"
        self.report(where)

        def call(input: Any, args: Any, kwargs: Any) -> Any:
            return variant(input.clone(), *args, **kwargs)

        chip, cpu, ours, theirs = self.both(sample, call)
        part = self.verdict.part("inplace")
        if part.judge(chip, cpu, where, self.values) and self.op.supports_inplace_autograd:
            self.backward("inplace", where, sample, call, (chip.value, ours), (cpu.value, theirs))

    def out(self, index: int, sample: Any) -> None:
        """Judge out= with tensors that fit, have another layout, are resized, and are rejected."""
        if not self.op.supports_out:
            return

        cpu = self.both(sample, torch.no_grad()(self.call))[1]
        if cpu.error is not None or not tensors_of(cpu.value):
            return
        for style, make in OUT_STYLES.items():
            where = f"out {style}, sample {index}"
            self.report(where)

            @torch.no_grad()
            def call(input: Any, args: Any, kwargs: Any, make: Callable[..., Any] = make) -> Any:
                device = CHIP if self.belongs_on_chip((input, args, kwargs)) else "cpu"
                out = tree_map(lambda t: make(t, device), cpu.value)
                result = self.op(input, *args, **kwargs, out=out)
                same = all(a is b for a, b in zip(tensors_of(result), tensors_of(out), strict=False))
                return out, same

            ours, theirs, *_ = self.both(sample, call)
            self.verdict.part("out").judge(ours, theirs, where, self.values, placed=False)

    def errors(self) -> None:
        """Judge OpInfo's error inputs: they must raise what they raise on the CPU."""
        if self.op.error_inputs_func is None or self.dtype != self.error_dtype():
            return
        part = self.verdict.part("errors")
        self.report("error inputs")
        try:
            cases = list(self.op.error_inputs(CHIP))
        except Exception as error:
            part.fail(f"error inputs: {one_line(error)}")
            return
        for index, case in enumerate(cases):
            self.error_input(index, case, part)

    def error_input(self, index: int, case: Any, part: Part) -> None:
        """Judge one error input; OpInfo gives the expected error if it mixes devices, which the CPU cannot do."""
        where = f"error input {index}"
        self.report(where)
        sample = case.sample_input

        ours, theirs, arguments, _ = self.both(sample, self.call)
        devices = {t.device.type for t in tensors_of((sample.input, sample.args, sample.kwargs))}
        if len(devices) > 1 and theirs.error is None and isinstance(ours.error, case.error_type):
            part.agreed += 1
            part.raised += 1
        else:
            part.judge(ours, theirs, where, self.values, self.belongs_on_chip(arguments))

    def error_dtype(self) -> torch.dtype:
        """Return the dtype under which error inputs are judged once, since they choose their own."""
        return dtypes_of(self.op)[0]

    def state(self) -> None:
        """Check that no fallback was taken and no CPU tensor holds the chip's memory."""
        part = self.verdict.part("state")
        self._samples = []
        operators = core.dispatch_stats()["operators"]
        copied = [name for name, row in operators.items() if row["route"] == "fallback"]
        held = core.host_view_blocks()
        if held:
            gc.collect()
            held = core.host_view_blocks()
        if copied:
            part.fail(f"fallback taken by {', '.join(copied)}")
        elif held:
            part.fail(f"{held} blocks of the chip's memory are held by CPU tensors")
        else:
            part.agreed += 1


def _fitting(like: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=device).fill_(1)


def _wrong_dtype(like: torch.Tensor, device: str) -> torch.Tensor:
    dtype = torch.int32 if like.dtype.is_floating_point or like.dtype.is_complex else torch.bool
    return torch.ones(like.size(), dtype=dtype, device=device)


OUT_STYLES: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "fitting": _fitting,
    "with another layout": lambda t, on: torch.ones([*t.shape, 2], dtype=t.dtype, device=on)[..., 0],
    "empty": lambda t, on: torch.empty(0, dtype=t.dtype, device=on),
    "of wrong size": lambda t, on: torch.ones([*t.shape, 3], dtype=t.dtype, device=on),
    "of wrong dtype": _wrong_dtype,
}

JUDGED_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)


def short_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without its module."""
    return str(dtype).removeprefix("torch.")


def dtypes_of(op: Any, wanted: Iterable[torch.dtype] = JUDGED_DTYPES) -> list[torch.dtype]:
    """Return the wanted dtypes that op supports on CPU, in order; its first dtype if it supports none of them."""
    supported = op.supported_dtypes("cpu")
    return [d for d in wanted if d in supported] or sorted(supported, key=str)[:1]


def judge(
    op: Any,
    dtype: torch.dtype,
    cap: int = 0,
    report: Report = lambda _: None,
    reference: bool = False,
    forward: bool = False,
) -> Verdict:
    """Judge one operator.

    Args:
        cap: at most this many samples, evenly spaced over those of OpInfo; 0 for all.
        report: called before each step, so that a crash can be attributed.
        reference: use OpInfo's reference inputs in place of its samples.
        forward: judge forward results alone, within a tolerance, for drivers whose kernels are not the CPU's.
    """
    return Judge(op, dtype, cap, report, reference, forward).run()
