"""Registrations of operators' implementations by ``torch.library``."""

import ast

from isthmus_migrate.source.module import Module

_LIBRARY = ("torch.library.", "torch._custom_ops.")
_REGISTER = frozenset(("impl", "register_kernel"))  # methods of a torch.library.Library, of an operator
_FOR_CUDA = frozenset(("cuda", "autogradcuda"))
_PORTABLE = frozenset(("cpu", "privateuse1", "compositeimplicitautograd", "compositeexplicitautograd"))


def is_for_cuda(module: Module, call: ast.Call) -> bool:
    """Whether a call registers an operator or an implementation for CUDA only."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _REGISTER
    if not is_method and not (module.names.qualified(call.func) or "").startswith(_LIBRARY):
        return False
    types = {each.lower() for each in texts(call)}
    return bool(_FOR_CUDA & types) and not _PORTABLE & types


def operator(call: ast.Call) -> str:
    """Return the name of the operator that a registration for CUDA is of."""
    return next((each for each in texts(call) if each.lower() not in _FOR_CUDA), "an operator")


def texts(call: ast.Call) -> list[str]:
    """Return the strings among the arguments of a call, and in collections that are."""
    values = [*call.args, *(each.value for each in call.keywords)]
    parts = [
        part
        for each in values
        for part in (each.elts if isinstance(each, ast.List | ast.Tuple | ast.Set) else [each])
    ]
    return [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
