"""The environment in which torch_npu finds the libraries of the reference runtime."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from isthmus_common.pytorch import Target, folder_name, installed_folder, version_of, versions_in

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
        NotBuilt: the libraries are absent, or there are none for the installed PyTorch.
    """
    if not (LIBRARIES / "libascendcl.so").exists():
        raise NotBuilt(f"no such file: {LIBRARIES / 'libascendcl.so'}; build it with `make build`")
    known = [path for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    ours = [str(LIBRARIES), *_with_pytorch()]
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


def operators() -> Path:
    """Return the folder of libopapi.so for the installed PyTorch, which is not imported.

    Raises:
        NotBuilt: PyTorch is absent, or there is none for its version.
    """
    folder = installed_folder()
    if folder is None:
        raise NotBuilt("PyTorch is not installed; libopapi.so computes with its kernels")
    version = version_of(folder)
    found = HOME / folder_name(version)
    if not (found / "libopapi.so").exists():
        built = ", ".join(versions_in(HOME.glob("torch_*/libopapi.so"))) or "none"
        raise NotBuilt(
            f"no libopapi.so for PyTorch {version}; built for: {built}; build it with `make build`"
        )
    return found


def _with_pytorch() -> list[str]:
    """Return the folder of libopapi.so, and of PyTorch's libraries for a process that has not imported PyTorch."""
    folder = installed_folder()
    return [str(operators()), Target(folder).library_folder] if folder else []
