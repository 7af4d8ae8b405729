"""Random programs: the same steps on the CPU and on the chip, eagerly and as a graph."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NoReturn

import torch
from torch.utils import _pytree as pytree

from tools.fuzz.operations import DTYPES, LARGEST, Operations, Step, values

TOLERANCE = {"rtol": 2e-4, "atol": 1e-5}
EXACT = {"rtol": 0.0, "atol": 0.0}
# Errors of the CPU for dtypes that a chip may take; its results are then not compared.
DTYPES_REFUSED = re.compile(
    "not implemented for|[Ff]ound dtype|only supports? |Expected out tensor to have dtype|"
    "inputs not supported|does not support bool"
)
NO_ROUTE = "has no route"
POOL = 24  # tensors; a program replaces later ones


class Difference(AssertionError):
    """A difference between two runs of a program."""


def copy_tensors(tensors: Sequence[torch.Tensor], device: str) -> list[torch.Tensor]:
    """Return copies on a device that share storages as the tensors do."""
    storages: dict[int, torch.UntypedStorage] = {}
    result = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage._cdata not in storages:
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            storages[storage._cdata] = whole.to(device, copy=True).untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype, device=device)
        result.append(
            empty.set_(storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        )
    return result


def difference(found: torch.Tensor, expected: torch.Tensor, tolerance: dict[str, float]) -> str:
    """Return both tensors as text if their shapes, dtypes or values differ, else ""; nan equals nan."""
    found, expected = found.cpu(), expected.cpu()
    text = f": expected {expected.dtype} {expected.tolist()}, found {found.dtype} {found.tolist()}"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return text
    if tolerance is EXACT or not expected.dtype.is_floating_point:
        equal = bool(((found == expected) | ((found != found) & (expected != expected))).all())
    else:
        equal = torch.allclose(found, expected, equal_nan=True, **tolerance)
    return "" if equal else text


def outcome(step: Step, pool: list[torch.Tensor]) -> tuple[list[torch.Tensor], str]:
    """Run a step; return its tensors, or none and the text of its error."""
    try:
        result = step.function(pool)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError) as error:
        return [], f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)], ""


def fits(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether results may join the pool: small, real, and no quantized or sparse ones."""
    return all(each.numel() <= LARGEST and each.dim() <= 5 and each.dtype in DTYPES for each in tensors)


class Program:
    """A pool of tensors on the CPU and the chip, and the steps that ran on both.

    Args:
        seed: of every decision.
        tolerance: of floating-point values of the chip.

    Attributes:
        refused: calls that were not compared, because the CPU refused them or the chip had no route.
        without_route: those of them for which the chip had no route.
        replays: replays that were compared.
    """

    def __init__(self, seed: int, tolerance: dict[str, float]) -> None:
        self.draw, self.tolerance = random.Random(seed), tolerance
        self.refused = self.without_route = self.replays = 0
        shapes: list[list[int]] = [[4], [3, 5], [2, 3, 4], [], [5, 3], [1, 4], [0, 3], [7]]
        self.cpu = [
            values(
                self.draw, self.draw.choice(shapes), self.draw.choice(DTYPES[: self.draw.choice([2, 4, 8])])
            )
            for _ in range(8)
        ]
        self.chip = copy_tensors(self.cpu, "chip")
        self.names: list[str] = []

    def _add(self, constant: torch.Tensor) -> int:
        self.cpu.append(constant)
        self.chip.append(constant.to("chip"))
        return len(self.cpu) - 1

    def _fail(self, what: str) -> NoReturn:
        raise Difference(f"{what}; steps: {', '.join(self.names)}")

    def _compare(
        self,
        what: str,
        found: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        tolerance: dict[str, float],
    ) -> None:
        if len(found) != len(expected):
            self._fail(f"{what}: expected {len(expected)} results, found {len(found)}")
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            if text := difference(one, other, tolerance):
                self._fail(f"{what} {place}{text}")

    def eager(self, length: int) -> None:
        """Run random steps on both.

        A call is dropped if the CPU refuses its dtypes, or the chip has no route for it.

        Raises:
            Difference: one refuses a call that the other runs, or values differ.
        """
        operations = Operations(self.draw, self.cpu, self._add, errors=True)
        for _ in range(length):
            step = operations.step()
            self.names.append(step.name)
            expected, cpu_error = outcome(step, self.cpu)
            found, chip_error = outcome(step, self.chip)
            self.without_route += NO_ROUTE in chip_error
            if NO_ROUTE in chip_error or DTYPES_REFUSED.search(cpu_error):
                chip_error, cpu_error = chip_error or cpu_error, cpu_error or chip_error
            if "without overflow" in cpu_error and not any(each.numel() for each in found):
                chip_error = chip_error or cpu_error  # a number that nothing is filled with
            if bool(cpu_error) != bool(chip_error):
                self._fail(f"{step.name}: CPU: {cpu_error or 'runs'}; chip: {chip_error or 'runs'}")
            if cpu_error:  # the effects of a refused call are not defined
                self.refused += 1
                self.chip = copy_tensors(self.cpu, "chip")
                continue
            self._compare(f"{step.name}: result", found, expected, self.tolerance)
            self._compare(f"{step.name}: tensor", self.chip, self.cpu, self.tolerance)
            if fits(expected):
                self.cpu += expected
                self.chip += found
            self._shorten()
            if self.tolerance is not EXACT:
                self.chip = copy_tensors(self.cpu, "chip")

    def _shorten(self) -> None:
        while len(self.cpu) > POOL:
            place = self.draw.randrange(4, len(self.cpu))
            del self.cpu[place], self.chip[place]

    def captured(self, length: int) -> None:
        """Capture random steps as a graph and replay it on new values of the pool's tensors.

        Raises:
            Difference: the capture leaves other values than before, a replay differs from the same calls without a
                graph, or the capture of valid calls fails.
        """
        steps = self._with_routes(self._valid_steps(length))
        shapes, before = [tensor.shape for tensor in self.chip], [tensor.clone() for tensor in self.chip]
        graph = torch.chip.Graph()
        try:
            with torch.chip.graph(graph):
                results, _ = self._run(steps, self.chip)
        except RuntimeError as error:
            self._fail(f"capture: {error}")
        # An out= argument that was empty has a new shape now and, until the replay, no values.
        kept = [place for place, tensor in enumerate(self.chip) if tensor.shape == shapes[place]]
        self._compare("capture: tensor", [self.chip[i] for i in kept], [before[i] for i in kept], EXACT)
        for _ in range(2):
            self._refill()
            pool = copy_tensors(self.chip, "chip")
            expected, errors = self._run(steps, pool)
            if errors:  # values that a step refuses, such as an index that another has changed
                continue
            graph.replay()
            self._compare("replay: tensor", self.chip, pool, EXACT)
            self._compare("replay: result", results, expected, EXACT)
            self.replays += 1

    def _valid_steps(self, length: int) -> list[Step]:
        """Return steps that run on the CPU, one after the other."""
        state = copy_tensors(self.cpu, "cpu")

        def add(constant: torch.Tensor) -> int:
            state.append(constant.clone())
            return self._add(constant)

        operations, steps = Operations(self.draw, state, add, errors=False), []
        while len(steps) < length:
            step = operations.step()
            after = copy_tensors(state, "cpu")
            tensors, error = outcome(step, after)
            if not step.captured or error or not fits(tensors) or self._grown(state, after):
                continue
            state[:] = after
            steps.append(step)
            self.names.append(step.name)
        return steps

    def _with_routes(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps without those for which the chip has no route."""
        pool = copy_tensors(self.chip, "chip")
        return [step for step in steps if NO_ROUTE not in outcome(step, pool)[1]]

    @staticmethod
    def _grown(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
        """Whether memory with values moved: a replay repeats that, on CUDA too, with the values of the capture."""
        sizes = ([each.untyped_storage().nbytes() for each in tensors] for tensors in (before, after))
        return any(0 < one < other for one, other in zip(*sizes, strict=True))

    @staticmethod
    def _run(steps: Sequence[Step], pool: list[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
        outcomes = [outcome(step, pool) for step in steps]
        return [tensor for tensors, _ in outcomes for tensor in tensors], any(error for _, error in outcomes)

    def _refill(self) -> None:
        """Write new values into the storages of the pool, but not into indices."""
        for tensor in self.chip:
            if tensor.dtype is not torch.int64 and tensor.numel() and tensor.is_contiguous():
                tensor.copy_(values(self.draw, tensor.shape, tensor.dtype))
