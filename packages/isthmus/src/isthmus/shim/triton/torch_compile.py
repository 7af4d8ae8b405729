"""``torch.compile`` of functions that launch Triton kernels: they run eagerly, and what they call is compiled."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from isthmus_common.patches import Scope

_REASON = "Inductor cannot compile a Triton kernel for the host chip"
_WRAPPED = "torch._dynamo.variables.functions.TritonKernelVariable"


def install(scope: Scope) -> None:
    """Keep kernels out of graphs, once Dynamo and export are imported."""
    scope.when_imported("torch._dynamo", functools.partial(_install_in_dynamo, scope), _REASON)
    scope.when_imported(
        "torch.export._trace",
        functools.partial(
            scope.replace,
            "torch.export._trace.custom_triton_ops_decomposition_disabled",
            lambda _: lambda: True,
            "an operator of torch.library.triton_op stays one call: its kernel cannot be compiled",
        ),
        _REASON,
    )


def _install_in_dynamo(scope: Scope) -> None:
    for name in ("call_function", "call_method", "mp_subscript_impl"):
        scope.replace(f"{_WRAPPED}.{name}", lambda _: _leave, _REASON)
    for name in ("jit.JITFunction", "interpreter.InterpretedFunction"):
        scope.replace(f"triton.runtime.{name}.run", _outside_of_graphs, "Dynamo would trace the interpreter")


def _outside_of_graphs(run: Callable[..., Any]) -> Any:
    import torch._dynamo

    return torch._dynamo.disable(run, reason=_REASON)


def _leave(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Leave the frame that calls ``torch.library.wrap_triton`` to eager execution."""
    from torch._dynamo.exc import unimplemented

    unimplemented(
        gb_type="Triton kernel on the host chip",
        context=str(self),
        explanation=_REASON,
        hints=[],
        skip_frame=True,
    )
