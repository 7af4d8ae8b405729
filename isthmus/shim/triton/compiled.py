"""``torch.compile`` of functions that launch Triton kernels: they run eagerly, and what they call is compiled."""

import functools
from typing import Any, NoReturn

from isthmus._support.patches import Scope
from isthmus.shim.triton.launch import say_once

_REASON = "Inductor cannot compile a Triton kernel for the host chip"
_KERNEL = "torch._dynamo.variables.functions.TritonKernelVariable"


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
    import torch._dynamo

    for name in ("call_function", "call_method", "mp_subscript_impl"):
        scope.replace(f"{_KERNEL}.{name}", lambda _: _leave, _REASON)
    for name in ("jit.JITFunction", "interpreter.InterpretedFunction"):
        scope.replace(
            f"triton.runtime.{name}.run", torch._dynamo.disable, "Dynamo would trace the interpreter"
        )


def _leave(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Leave the frame that launches the kernel to eager execution."""
    from torch._dynamo.exc import unimplemented

    say_once("torch.compile leaves functions that launch Triton kernels to eager execution")
    unimplemented(
        gb_type="Triton kernel on the host chip",
        context=str(self),
        explanation="Triton's interpreter runs it: the function that launches it runs eagerly.",
        hints=[],
        skip_frame=True,
    )
