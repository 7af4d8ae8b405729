"""The aclnn functions that torch_npu looks up, and those that the reference runtime has."""

import re
from importlib.util import find_spec
from pathlib import Path

from isthmus_ascend.affected import AFFECTED
from isthmus_ascend.environment import operators

_NAME = re.compile(rb"(?<=\0)aclnn([A-Z]\w*?)GetWorkspaceSize(?=\0)")


def installed_folder() -> Path | None:
    """Return the folder of the installed torch_npu, or None."""
    spec = find_spec("torch_npu")
    locations = spec.submodule_search_locations if spec else None
    return Path(locations[0]) if locations else None


def named_by(folder: Path) -> set[str]:
    """Return the functions, without `aclnn`, that the libraries of a folder look up."""
    texts = [path.read_bytes() for path in folder.rglob("*.so")]
    return {
        match[1].decode()
        for text in texts
        for match in _NAME.finditer(text)
        if b"\0aclnn" + match[1] + b"\0" in text
    }


def implemented_functions() -> set[str]:
    """Return the functions, without `aclnn`, that libopapi.so exports."""
    text = (operators() / "libopapi.so").read_bytes()
    return {match[1].decode() for match in _NAME.finditer(text)}


def describe_missing(name: str) -> str:
    """Return a line that names a missing function, given without `aclnn`, and the operators that call it."""
    return "  ".join([f"aclnn{name}", ", ".join(AFFECTED.get(name, []))]).rstrip()
