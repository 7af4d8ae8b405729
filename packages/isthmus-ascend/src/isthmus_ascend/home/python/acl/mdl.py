"""Offline models (``.om``), which the reference runtime does not execute: loading one fails with an aclError."""

from pathlib import Path

from acl._library import FEATURE_UNSUPPORTED, INVALID_FILE, INVALID_MODEL, TEXT, function, refuse, unknown

_PROBLEM = "offline models are not supported by the reference runtime of AscendCL; run the model in PyTorch"

init_dump = function("aclmdlInitDump")
set_dump = function("aclmdlSetDump", TEXT)
finalize_dump = function("aclmdlFinalizeDump")


def load_from_file(path: str) -> tuple[int, int]:
    """Return 0 as the model's number, and the aclError."""
    return 0, _refuse_file("mdl.load_from_file", path)


def load_from_file_with_mem(path: str, *memory: int) -> tuple[int, int]:
    """Return 0 as the model's number, and the aclError."""
    return 0, _refuse_file("mdl.load_from_file_with_mem", path)


def load_from_mem(pointer: int, size: int) -> tuple[int, int]:
    """Return 0 as the model's number, and the aclError."""
    return 0, refuse("mdl.load_from_mem", FEATURE_UNSUPPORTED, _PROBLEM)


def load_from_mem_with_mem(pointer: int, size: int, *memory: int) -> tuple[int, int]:
    """Return 0 as the model's number, and the aclError."""
    return 0, refuse("mdl.load_from_mem_with_mem", FEATURE_UNSUPPORTED, _PROBLEM)


def query_size(path: str) -> tuple[int, int, int]:
    """Return 0 and 0 as the sizes of workspace and weights, and the aclError."""
    return 0, 0, _refuse_file("mdl.query_size", path)


def unload(model: int) -> int:
    """Return the aclError of a model that is not loaded."""
    return refuse("mdl.unload", INVALID_MODEL, f"no model {model} is loaded")


def get_desc(description: int, model: int) -> int:
    """Return the aclError of a model that is not loaded."""
    return refuse("mdl.get_desc", INVALID_MODEL, f"no model {model} is loaded")


def execute(model: int, inputs: int, outputs: int) -> int:
    """Return the aclError of a model that is not loaded."""
    return refuse("mdl.execute", INVALID_MODEL, f"no model {model} is loaded")


def execute_async(model: int, inputs: int, outputs: int, stream: int) -> int:
    """Return the aclError of a model that is not loaded."""
    return refuse("mdl.execute_async", INVALID_MODEL, f"no model {model} is loaded")


def _refuse_file(name: str, path: str) -> int:
    if not Path(path).is_file():
        return refuse(name, INVALID_FILE, f"no such file: {path}")
    return refuse(name, FEATURE_UNSUPPORTED, _PROBLEM)


__getattr__ = unknown("acl.mdl")
