"""Variables under which a Python of this machine builds extensions for another one, with Debian's cross compiler."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

MACHINES = ("aarch64",)
NAME = "_sysconfigdata_cross"
PRINT = (
    "import importlib, json, sysconfig;"
    "print(json.dumps(importlib.import_module(sysconfig._get_sysconfigdata_name()).build_time_vars))"
)


def programs(machine: str) -> dict[str, str]:
    """Return the compilers for a machine, by the variable that names them. Raises SystemExit if one is missing."""
    found = {"CC": f"{machine}-linux-gnu-gcc", "CXX": f"{machine}-linux-gnu-g++"}
    if missing := [name for name in found.values() if shutil.which(name) is None]:
        remedy = f"do `apt-get install g++-{machine}-linux-gnu` on Debian"
        raise SystemExit(f"make: {' and '.join(missing)}: not on PATH; {remedy}")
    return found


def translate(values: dict[str, object], machine: str) -> dict[str, object]:
    """Return what a Python of another machine would say in sysconfig: names of the machine and of its compilers."""

    def changed(value: object) -> object:
        if not isinstance(value, str):
            return value
        named = value.replace(f"{platform.machine()}-linux-gnu", f"{machine}-linux-gnu")
        return re.sub(r"^(gcc|g\+\+)(?= |$)", rf"{machine}-linux-gnu-\1", named)

    return {name: changed(value) for name, value in values.items()}


def variables(python: Path, folder: Path, machine: str) -> dict[str, str]:
    """Write the sysconfig of another machine into a folder; return the variables with which a Python reads it.

    Its headers are those of this machine's Python: between 64-bit Linuxes, nothing that extensions use differs.
    """
    compilers = programs(machine)
    own = json.loads(subprocess.run([python, "-c", PRINT], check=True, stdout=subprocess.PIPE).stdout)
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    text = f"build_time_vars = {translate(own, machine)!r}\n"
    (folder / f"{NAME}.py").write_text(text, encoding="utf-8")
    return {
        **compilers,
        "PYTHONPATH": str(folder),
        "_PYTHON_SYSCONFIGDATA_NAME": NAME,
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "ISTHMUS_KERNELS": "DEFAULT",
    }
