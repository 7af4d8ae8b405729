"""Tensors that collectives read and write; results are recorded once the job uses them."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils import _pytree as pytree

from isthmus_diagnostics.accuracy.tensors import extent
from isthmus_diagnostics.debug.call import Call

Named = list[tuple[str, torch.Tensor]]
FUNCTIONAL = ("_c10d_functional::", "_c10d_functional_autograd::")
WAIT = ("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd")
# These write the tensors that other collectives read too; broadcast's differ before it but on the root.
_ONLY_WRITTEN = ("recv", "broadcast")
_ONLY_READ = ("send", "barrier", "monitored_barrier", "check_for_nan")


def read(call: Call) -> Named:
    """Return the tensors that a collective reads, with names."""
    if call.name.startswith(FUNCTIONAL):
        return call.inputs()
    base = call.name.partition("::")[2]
    if base.startswith(_ONLY_WRITTEN) or "barrier" in base:
        return []
    return [each for name, found in _tensors(call) if "output" not in name for each in found]


def written_tensors(call: Call, returned: Any) -> Named:
    """Return the tensors that a collective will have written, with names."""
    if call.name.startswith(FUNCTIONAL):
        return call.results(returned)
    if call.name.partition("::")[2].startswith(_ONLY_READ):
        return []
    return [each for name, found in _tensors(call) if "input" not in name for each in found]


def _tensors(call: Call) -> Iterator[tuple[str, Named]]:
    for name, argument in call.arguments.items():
        values = enumerate(pytree.tree_leaves(argument))
        yield name, [(f"{name}[{i}]", value) for i, value in values if isinstance(value, torch.Tensor)]


def group(call: Call) -> list[int]:
    """Return the ranks of a call's process group."""
    if name := call.arguments.get("group_name"):
        return dist.get_process_group_ranks(torch._C._distributed_c10d._resolve_process_group(name))
    boxed = call.arguments.get("process_group")
    return [] if boxed is None else dist.get_process_group_ranks(dist.ProcessGroup.unbox(boxed))


def plain_arguments(call: Call) -> dict[str, Any]:
    """Return the root, the peer, and the reduction of a call."""
    kept = ("root_rank", "dst", "src")
    found: dict[str, Any] = {name: call.arguments[name] for name in kept if name in call.arguments}
    if (operation := call.arguments.get("reduce_op")) is not None:
        is_named = isinstance(operation, str)
        found["reduce_op"] = operation.upper() if is_named else dist.ReduceOp.RedOpType(operation.op()).name
    return found


class Pending:
    """Results of collectives that the job has not used."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, Named]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, call: int, written: Named) -> None:
        """Add the tensors that a call will have written."""
        for each in written:
            self._of.setdefault(_address(each[1]), []).append((call, [each]))

    def take_used(self, tensors: Iterable[torch.Tensor]) -> Iterator[tuple[int, Named]]:
        """Yield the calls whose results are in the memory of these tensors, and forget them.

        Others in the same storage stay: the job may not have waited for them.
        """
        for tensor in tensors:
            address = _address(tensor) if self._of else 0
            if address not in self._of:
                continue
            found: list[tuple[int, Named]] = []
            others: list[tuple[int, Named]] = []
            for call, written in self._of[address]:
                overlaps = any(_overlap(tensor, each) for _, each in written)
                (found if overlaps else others).append((call, written))
            self._of[address] = others
            if not others:
                del self._of[address]
            yield from _wait_for_results(found)

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether a call may still write a tensor."""
        calls = self._of.get(_address(tensor), []) if self._of else []
        return any(_overlap(tensor, each) for _, written in calls for _, each in written)

    def take_rest(self) -> Iterator[tuple[int, Named]]:
        """Yield all, and forget them."""
        rest, self._of = self._of, {}
        for calls in rest.values():
            yield from _wait_for_results(calls)


def _wait_for_results(calls: list[tuple[int, Named]]) -> list[tuple[int, Named]]:
    """Wait for results of functional collectives; jobs wait for others themselves."""
    for _, written in calls:
        for _, tensor in written:
            torch.ops._c10d_functional.wait_tensor(tensor)
    return calls


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors of one storage may share elements."""
    locals_ = _plain_local(a), _plain_local(b)
    if any(each.layout != torch.strided for each in locals_):
        return True
    (start, end), (first, last) = (extent(each) for each in locals_)
    return start < last and first < end


def _plain_local(tensor: torch.Tensor) -> torch.Tensor:
    local = getattr(tensor, "_local_tensor", tensor)
    return local.elem if isinstance(local, AsyncCollectiveTensor) else local


def _address(tensor: torch.Tensor) -> int:
    local = _plain_local(tensor)
    return local.untyped_storage()._cdata if local.layout == torch.strided else 0
