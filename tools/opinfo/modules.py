"""Judge one torch.nn module on PyTorch's own inputs (module_db): the chip against the CPU.

Bit for bit on the host chip; within a tolerance on other drivers, whose kernels round otherwise.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

import isthmus._C as core

from .compare import Compared, attempt, outcome_difference, value_difference
from .runner import gradients
from .twin import CHIP, Copier, tensors_of

VALUES: Compared = "bits" if core.driver()["name"] == "host" else "near"


def build(case: Any, info: Any, training: bool) -> torch.nn.Module:
    """Build the module on the CPU with seeded parameters."""
    torch.manual_seed(0)
    arguments = Copier("cpu")((case.constructor_input.args, case.constructor_input.kwargs))
    module: torch.nn.Module = info.module_cls(*arguments[0], **arguments[1])
    return module.to(torch.float32).train(training)


def difference_on(module: torch.nn.Module, forward: Any) -> str:
    """Return the difference between chip and CPU in results, gradients and buffers; "" if there is none.

    Args:
        module: a module on the CPU; it is copied.
        forward: (args, kwargs) of the call, with tensors on the chip.
    """
    ours, theirs = copy.deepcopy(module).to(CHIP), copy.deepcopy(module)
    here, there = Copier(CHIP)(forward), Copier("cpu")(forward)
    chip, cpu = attempt(lambda: ours(*here[0], **here[1])), attempt(lambda: theirs(*there[0], **there[1]))
    # Batch sizes stay on the CPU.
    packed = isinstance(cpu.value, tuple) and hasattr(cpu.value[0], "batch_sizes")
    if (found := outcome_difference(chip, cpu, VALUES, placed=not packed)) or cpu.error is not None:
        return found and f"forward: {found}"
    if found := value_difference(dict(ours.named_buffers()), dict(theirs.named_buffers()), VALUES):
        return f"buffers: {found}"
    if not any(t.requires_grad for t in tensors_of(cpu.value)):
        return ""
    leaves = [
        [*m.parameters(), *(t for t in tensors_of(arguments) if t.requires_grad)]
        for m, arguments in ((ours, here), (theirs, there))
    ]
    found = outcome_difference(
        attempt(lambda: gradients(chip.value, leaves[0])),
        attempt(lambda: gradients(cpu.value, leaves[1])),
        VALUES,
    )
    return found and f"gradients: {found}"


def judge_module(info: Any, training: bool) -> list[str]:
    """Return the differences for each input of module_db in float32; empty if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        cases = info.module_inputs_func(
            info, device=CHIP, dtype=torch.float32, requires_grad=True, training=training
        )
        differences = []
        for index, case in enumerate(cases):
            forward = (case.forward_input.args, case.forward_input.kwargs)
            if found := difference_on(build(case, info, training), forward):
                differences.append(f"input {index} ({case.desc or 'default'}): {found}")
    return differences
