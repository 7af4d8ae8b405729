"""Compare PyTorch's names before and after the shim: print changes and remaining proxies."""

import importlib
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType, ModuleType

import torch

from isthmus import shim

libraries, with_shim = sys.argv[2:], sys.argv[1] == "shim"


def namespaces():
    """(name, namespace) of every module of PyTorch and every class in it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            yield name, module
            for attribute, value in list(vars(module).items()):
                if issubclass(type(value), type) and str(value.__module__).partition(".")[0] == "torch":
                    yield f"{name}.{attribute}", value


def snapshot():
    return {name: (namespace, dict(vars(namespace))) for name, namespace in namespaces()}


def changed(before):
    """Return changed, removed and new attributes, except modules added by imports and integer counters."""
    for owner, (namespace, attributes) in before.items():
        now = vars(namespace)
        for name in attributes.keys() | now.keys():
            was, value = attributes.get(name), now.get(name)
            added = name not in attributes and isinstance(value, ModuleType)
            if value is not was and not added and not (type(was) is type(value) is int):
                yield f"{owner}.{name}"


def is_proxy(value):
    code = value.__code__ if type(value) is FunctionType else None
    return code is not None and "shim" in Path(code.co_filename).parts


def left():
    """Return names and tables of any module or class that contain a function of the shim."""
    for module_name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or module_name.partition(".")[0] == "isthmus":
            continue
        for name, value in list(vars(module).items()):
            if type(value) is dict:
                held = [*value.keys(), *value.values()]
            elif issubclass(type(value), type):
                held = vars(value).values()
            else:
                held = [value]
            if name not in ("shim", "is_proxy") and any(map(is_proxy, held)):
                yield f"{module_name}.{name}"


before = snapshot()
with shim.enter() if with_shim else nullcontext():
    inside = list(changed(before))
    for library in libraries:
        importlib.import_module(library)
    device = "cuda" if with_shim else "cpu"
    compiled = torch.compile(lambda x: x.to(device) + torch.ones(1, device=device), backend="eager")
    assert compiled(torch.ones(1)).item() == 2
print(json.dumps({"inside": inside, "after": sorted(changed(before)), "left": sorted(left())}))
