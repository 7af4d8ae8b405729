"""Find the ATen operators that each public name of PyTorch reaches, by running its sample inputs on the CPU.

Samples are those of PyTorch's own tests (OpInfo, ModuleInfo, OptimizerInfo). A TorchDispatchMode records the calls of
autograd and composite operators, which are the operators a device needs. ``python -m`` this module writes the table;
it is a separate process because the samples use memory and set seeds.
"""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_common.files import write_file
from isthmus_common.progress import Bar

SAMPLES = 24  # samples per operator, evenly spaced over all
ALWAYS, SOMETIMES, BACKWARD = "always", "sometimes", "backward"
Call = Callable[[], Any]


class Entry(NamedTuple):
    """A public name and calls of it; ``whole`` is False if they cover only one variant."""

    name: str
    calls: Callable[[], Iterator[Call]]
    whole: bool = True


class Reach:
    """Operators called by the samples of a name.

    Attributes:
        whole: whether the samples cover more than one variant.
    """

    def __init__(self) -> None:
        self.whole = False
        self._forward: Counter[str] = Counter()
        self._backward: set[str] = set()
        self._calls = 0

    def run(self, call: Call) -> None:
        """Run a sample, and its gradient if it has one; samples that raise do not count."""
        try:
            result, operators = _record_call(call)
        except Exception:  # error samples, and those with missing dependencies
            return
        self._calls += 1
        self._forward.update(operators)
        with suppress(RuntimeError):  # no gradient for these arguments
            self._backward |= _record_call(partial(_differentiate, result))[1]

    def table(self) -> dict[str, str]:
        """Return for each operator whether every call reaches it, some do, or only the gradient."""
        found = dict.fromkeys(sorted(self._backward), BACKWARD)
        return found | {
            name: ALWAYS if self.whole and count == self._calls else SOMETIMES
            for name, count in sorted(self._forward.items())
        }


def probe(progress: Callable[[int, int], None]) -> dict[str, dict[str, str]]:
    """Return public name, such as ``"torch.Tensor.sum"`` -> ATen operator -> when it is reached.

    Args:
        progress: called with the number of entries done and their total.
    """
    found: dict[str, Reach] = {}
    entries = [*_functions(), *_modules(), *_optimizers()]
    for done, entry in enumerate(entries, 1):
        progress(done, len(entries))
        reach = found.setdefault(entry.name, Reach())
        reach.whole |= entry.whole
        for call in entry.calls():
            reach.run(call)
    tables = {name: reach.table() for name, reach in found.items()}
    return {name: table for name, table in sorted(tables.items()) if table}


def _functions() -> Iterator[Entry]:
    """Functions and methods of the OpInfo database."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        for name, function in _spellings(info):
            calls = partial(_function_calls, info, function, name.endswith("_"))
            yield Entry(name, calls, not info.variant_test_name)


def _spellings(info: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for each in (info, *info.aliases):
        name = each.name
        if name.startswith(("torch.", "_")):  # operators without a public name
            continue
        if _public_object(torch, name) is not None:
            yield f"torch.{name}", each.op
        variants = {name: each.method_variant, f"{name}_": each.inplace_variant}
        for method, variant in variants.items():
            if variant is not None and hasattr(torch.Tensor, method):
                yield f"torch.Tensor.{method}", variant


def _public_object(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def _function_calls(info: Any, function: Any, inplace: bool) -> Iterator[Call]:
    """Yield calls with sample inputs; in-place variants without gradients, since leaves cannot be modified."""
    dtype = _dtype(info.supported_dtypes("cpu"))
    if dtype is None:
        return
    gradient = bool(info.supports_autograd and (dtype.is_floating_point or dtype.is_complex))
    try:
        samples = _spread_samples(
            list(info.sample_inputs("cpu", dtype, requires_grad=gradient and not inplace))
        )
    except Exception:  # a sample that cannot be created here
        return
    for sample in samples:
        yield partial(function, sample.input, *sample.args, **sample.kwargs)


def _modules() -> Iterator[Entry]:
    """Classes of the ModuleInfo database."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = f"{info.module_cls.__module__}.{info.module_cls.__name__}"
        yield Entry(_short_name(name), partial(_module_calls, info))


def _short_name(name: str) -> str:
    """``torch.nn.Linear`` for ``torch.nn.modules.linear.Linear``."""
    import torch

    last = name.rpartition(".")[2]
    return f"torch.nn.{last}" if hasattr(torch.nn, last) else name


def _module_calls(info: Any) -> Iterator[Call]:
    import torch

    try:
        samples = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=True)
    except Exception:  # a sample that cannot be created here
        return
    for sample in _spread_samples(list(samples)):
        made, given = sample.constructor_input, sample.forward_input
        if given is not None:
            module = info.module_cls(*made.args, **made.kwargs)
            yield partial(module, *given.args, **given.kwargs)


def _optimizers() -> Iterator[Entry]:
    """Classes of the OptimizerInfo database: one step, as a loop and with ``foreach``."""
    from torch.testing._internal.common_optimizers import optim_db

    info: Any
    for info in optim_db:
        yield Entry(f"torch.optim.{info.optim_cls.__name__}", partial(_optimizer_calls, info))


def _optimizer_calls(info: Any) -> Iterator[Call]:
    import torch

    for sample in info.optim_inputs_func(device="cpu"):
        for foreach in (False, True) if "foreach" in info.supported_impls else (None,):
            options = {**sample.kwargs, **({} if foreach is None else {"foreach": foreach})}
            parameter = torch.nn.Parameter(torch.ones(2, 2))
            parameter.grad = torch.ones(2, 2)
            optimizer = info.optim_cls([parameter], **options)
            yield partial(optimizer.step, partial(torch.ones, ()))


# ---- one sample ----------------------------------------------------------------------------------------------
def _record_call(call: Call) -> tuple[Any, set[str]]:
    """Run a call; return its result and the names of the ATen operators it reaches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(func.name())
            return func(*args, **(kwargs or {}))

    seen: set[str] = set()
    with Recorder():
        result = call()
    return result, {name for name in seen if name.startswith("aten::")}


def _differentiate(result: Any) -> None:
    """Compute gradients of all differentiable outputs."""
    import torch
    from torch.utils._pytree import tree_leaves

    leaves = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor) and each.requires_grad]
    if leaves:
        torch.autograd.backward(leaves, [torch.ones_like(each) for each in leaves])


def _dtype(supported: Any) -> Any:
    import torch

    preferred = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return next((each for each in (*preferred, *supported) if each in supported), None)


def _spread_samples(samples: list[Any]) -> list[Any]:
    step = -(-len(samples) // SAMPLES) or 1
    return samples[::step]


def main(path: Path) -> None:
    """Write the table as JSON; progress goes to standard error where that is a terminal."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    with Bar("probing PyTorch") as bar:
        table = probe(bar.count)
    write_file(path, json.dumps(table, separators=(",", ":")).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
