"""``libdevice`` functions in Triton's interpreter: NumPy's and the standard library's of the same mathematics."""

import functools
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

from triton.runtime import interpreter

from isthmus.drivers.libdevice import FUNCTIONS
from isthmus_common.patches import Scope

_CUDA = "triton.language.extra.cuda.libdevice"
_EITHER = "triton.language.extra.libdevice"  # declarations without a body


def install(scope: Scope) -> None:
    """Let kernels call the functions of both modules in the interpreter."""
    cuda, either = import_module(_CUDA), import_module(_EITHER)
    known = {name: each for name, each in vars(cuda).items() if isinstance(each, FunctionType)}
    before = {module: dict(vars(module)) for module in (cuda, either)}
    for module in (cuda, either):
        for name in known.keys() & vars(module).keys():
            setattr(module, name, _with_semantic(vars(module)[name], known[name]))

    def undo() -> None:
        for module, names in before.items():
            vars(module).update(names)

    scope.record(_EITHER, "its functions are compiled code for GPUs", undo)
    scope.replace(
        "triton.runtime.interpreter.InterpreterBuilder.create_extern_elementwise",
        lambda _: _compute,
        "calls compiled code for GPUs",
    )


def _with_semantic(original: Callable[..., Any], cuda: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called by the interpreter without the argument that Triton's compiler adds."""

    @functools.wraps(original)
    def call(*args: Any, _semantic: Any = interpreter.interpreter_semantic) -> Any:
        return cuda(*args, _semantic=_semantic)

    return call


def _compute(
    self: Any, library: str, path: str, symbol: str, arguments: list[Any], result: Any, pure: bool
) -> Any:
    name = symbol.removeprefix("__nv_")
    function = FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(
            f"libdevice function {symbol} cannot run in Triton's interpreter; use a function of triton.language, "
            "or run the kernel on a device with a Triton backend"
        )
    data = function(*(each.data for each in arguments))
    return interpreter.TensorHandle(data.astype(interpreter._get_np_dtype(result)), result.scalar)
