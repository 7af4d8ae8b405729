"""The environment in which torch_npu finds the libraries of the reference runtime."""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
COMMANDS = FOLDER / "bin"  # npu-smi
HOME = FOLDER / "home"  # the folders that torch_npu looks for in an installation of CANN
LIBRARIES = HOME / "lib64"


class NotBuilt(RuntimeError):
    """The libraries of the reference runtime are absent."""


def variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set.

    Args:
        environment: the present variables; LD_LIBRARY_PATH and PATH are extended.

    Raises:
        NotBuilt: the libraries are absent.
    """
    if not (LIBRARIES / "libascendcl.so").exists():
        raise NotBuilt(f"no such file: {LIBRARIES / 'libascendcl.so'}; build it with `make build`")
    known = [path for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    ours = [str(LIBRARIES), *_pytorch()]
    others = [path for path in known if path not in ours]
    python = str(Path(sys.executable).parent)  # npu-smi runs python3 of this installation
    return {
        "ASCEND_HOME_PATH": str(HOME),
        "ASCEND_TOOLKIT_HOME": str(HOME),
        "ASCEND_OPP_PATH": str(HOME / "opp"),
        "LD_LIBRARY_PATH": os.pathsep.join([*ours, *others]),
        "PATH": os.pathsep.join([str(COMMANDS), python, environment.get("PATH", os.defpath)]),
        "ISTHMUS_DRIVER": "none",  # PyTorch has room for one backend of this kind: torch_npu's
    }


def _pytorch() -> list[str]:
    """Return the folder of PyTorch's libraries, for libopapi.so in a process that has not imported PyTorch."""
    spec = find_spec("torch")
    return [str(Path(place) / "lib") for place in (spec and spec.submodule_search_locations) or ()]
