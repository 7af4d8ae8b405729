"""The environment in which programs find the reference runtime, as set_env.sh of CANN makes it."""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from isthmus_ascend.cann_version import DEFAULT, version_files
from isthmus_ascend.options import TABLE
from isthmus_common.files import make_folder, user_cache, write_file
from isthmus_common.pytorch import Target, folder_name, installed_folder, version_of, versions_in

FOLDER = Path(__file__).resolve().parent
COMMANDS = FOLDER / "bin"  # npu-smi
HOME = FOLDER / "home"  # an installation of CANN, as far as clients look into it
LIBRARIES = HOME / "lib64"
PYTHON = HOME / "python"  # the module acl
PROFILER = HOME / "tools/profiler/bin"  # msprof, where torch_npu looks for the rest of it

SOURCED = """\
# Environment of the reference runtime of AscendCL: source "$(isthmus ascend env)"
if [ -z "${{ZSH_VERSION:-}}" ] && [ "$0" = {path} ]; then
  echo "set_env.sh sets variables of the shell: source $0" >&2
  exit 2
fi
"""


class NotBuilt(RuntimeError):
    """The libraries of the reference runtime are absent."""


def variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set.

    Args:
        environment: the present variables; lists of folders are extended.

    Raises:
        NotBuilt: the libraries are absent, or there are none for the installed PyTorch.
        ValueError: wrong ISTHMUS_ASCEND_CANN_VERSION.
        OSError: the folder of another release cannot be written.
    """
    home = _home(environment)
    found = _constants(home, environment)
    for name, folders in _searched(home).items():
        others = environment.get(name, os.defpath if name == "PATH" else "").split(os.pathsep)
        found[name] = os.pathsep.join([*folders, *(each for each in others if each and each not in folders)])
    return found


def set_env(environment: Mapping[str, str] = os.environ) -> Path:
    """Write a script that sets the variables in the shell which sources it, and return its path.

    Raises:
        NotBuilt, ValueError: as :func:`variables`.
        OSError: it cannot be written.
    """
    home = _home(environment)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in _constants(home, environment).items()]
    for name, folders in _searched(home).items():
        lines.append(f'export {name}={shlex.quote(os.pathsep.join(folders))}"${{{name}:+:${name}}}"\n')
    text = "".join(lines)
    path = user_cache() / "ascend" / f"env-{_digest(text)}" / "set_env.sh"
    make_folder(path.parent)
    write_file(path, (SOURCED.format(path=shlex.quote(str(path))) + text).encode(), mode=0o750)
    return path


def _constants(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    version = TABLE.text("ascend_cann_version", environment)
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "ISTHMUS_DRIVER": "none",  # PyTorch has room for one backend of this kind: torch_npu's
        **({} if version == DEFAULT else {TABLE.variable("ascend_cann_version"): version}),
    }


def _searched(home: Path) -> dict[str, list[str]]:
    """Return folders that come first in the variables which list folders."""
    libraries = [str(home / "lib64"), *_with_pytorch()]
    return {
        "LD_LIBRARY_PATH": libraries,
        "LIBRARY_PATH": libraries[:2],  # for -lascendcl and -lopapi
        "PYTHONPATH": [str(PYTHON)],
        # Their programs run python3 of this installation.
        "PATH": [str(COMMANDS), str(PROFILER), str(Path(sys.executable).parent)],
    }


def _home(environment: Mapping[str, str]) -> Path:
    """Return the installation that names the release; that of another one than the default is in the cache."""
    if not (LIBRARIES / "libascendcl.so").exists():
        raise NotBuilt(f"no such file: {LIBRARIES / 'libascendcl.so'}; build it with `make build`")
    version = TABLE.text("ascend_cann_version", environment)
    if version == DEFAULT:
        return HOME
    files = version_files(version)
    home = user_cache() / "ascend" / f"{version}-{_digest(str(HOME))}"
    for name, text in files.items():
        make_folder((home / name).parent)
        write_file(home / name, text.encode())
    own = {Path(name).parts[0] for name in files}
    for folder in HOME.iterdir():
        if folder.name not in own and not (home / folder.name).exists():
            (home / folder.name).unlink(missing_ok=True)
            (home / folder.name).symlink_to(folder)
    return home


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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
