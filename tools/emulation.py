"""Test wheels for another machine in user-mode qemu, on a root of Debian's packages that needs no privileges.

The root is in build/<machine>/root; pip installs beside it, into build/<machine>/torch-<version> once and into
build/<machine>/isthmus each time. Programs run through build/<machine>/python, and so do those that they start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.repository import ROOT
from tools.requirements import requirements
from tools.torches import has_torch, pip_options

PYTHON = "3.11"  # of Debian 12
PACKAGES = (f"python{PYTHON}", "libstdc++6", "libgomp1", "libatomic1")
DEBIAN = {"aarch64": "arm64"}
# Prints a line with the time after each part.
SMOKE = """\
import copy, sys, time
begun = time.monotonic()

def say(text):
    print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

import torch
import isthmus
assert isthmus.status().registered, isthmus.status().reason
say(f"import of torch {torch.__version__}, the chip registered; driver {isthmus.status().driver}")

torch.manual_seed(0)
a, b = torch.randn(8, 16), torch.randn(16, 16)
cases = {
    "add": lambda a, b: a + b[:8],
    "matmul": lambda a, b: a @ b,
    "softmax": lambda a, b: torch.softmax(a, -1),
    "layer_norm": lambda a, b: torch.nn.functional.layer_norm(a, (16,)),
    "sum": lambda a, b: a.sum(0),
    "sort": lambda a, b: a.sort(-1).values,
    "where": lambda a, b: torch.where(a > 0, a, -a),
    "bfloat16": lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
}
for name, function in cases.items():
    torch.testing.assert_close(function(a.to("chip"), b.to("chip")).cpu(), function(a, b), msg=name)
say(f"{len(cases)} operators equal to the CPU's")

from isthmus import ops
from isthmus.ops import cpu
assert not cpu.why_unavailable(), cpu.why_unavailable()
x, weight = torch.randn(4, 64), torch.rand(64)
torch.testing.assert_close(
    torch.ops.isthmus_cpu.rms_norm(x, weight, 1e-6)[0], torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)
)
say("the fused kernels")

def step(device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss = torch.nn.functional.mse_loss(model(a.to(device)), a.to(device))
    loss.backward()
    optimizer.step()
    return loss.detach().cpu(), [each.detach().cpu() for each in model.parameters()]

torch.testing.assert_close(step("chip"), step("cpu"))
say("one training step, equal to the CPU's")
"""

CONFORM = (
    "-m isthmus conform generate --output golden --operators aten::add.Tensor",
    "-m isthmus conform run --driver host --golden golden --operators driver::* --operators aten::add.Tensor",
)
# One of /proc/cpuinfo: a Neoverse N1.
PROCESSOR = """\
processor\t: {number}
Features\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""


def check_programs(machine: str) -> None:
    """Raise SystemExit if what the emulation starts is missing."""
    needed = {f"qemu-{machine}-static": "qemu-user-static", "apt-get": "apt", "dpkg": "dpkg"}
    if missing := [name for name in needed if shutil.which(name) is None]:
        packages = " ".join(needed[name] for name in missing)
        remedy = f"do `apt-get install {packages}` on Debian"
        raise SystemExit(f"make: {' and '.join(missing)}: not on PATH; {remedy}")


def make_root(machine: str) -> Path:
    """Return the path of a Python for the machine; make its root once. The system's apt and dpkg keep their state."""
    folder = ROOT / "build" / machine
    program = folder / "python"
    if program.is_file():
        return program
    state = folder / "apt"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {"State": state, "State::status": state / "status", "Cache": state}
    words = [f"-oDir::{name}={path}" for name, path in settings.items()]
    words += [f"-oAPT::{name}={DEBIAN[machine]}" for name in ("Architecture", "Architectures")]
    apt = ["apt-get", "-qq", *words]
    print(f"make: Debian's packages for {machine} into {folder.relative_to(ROOT)}/root", flush=True)
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "--no-install-recommends", "--download-only", *PACKAGES], check=True)
    root = folder / "root"
    root.mkdir(exist_ok=True)
    for package in sorted((state / "archives").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    write_cpuinfo(root)
    emulator = f"qemu-{machine}-static -L {root} -0 {program}"
    # With argument 0, sys.executable is this program.
    text = f'#!/bin/sh\nexec env PYTHONHOME={root}/usr {emulator} {root}/usr/bin/python{PYTHON} "$@"\n'
    program.write_text(text, encoding="utf-8")
    program.chmod(0o750)
    return program


def write_cpuinfo(root: Path) -> None:
    """Describe the machine's processors in the root: PyTorch reads /proc/cpuinfo, and older qemu shows the host's."""
    path = root / "proc" / "cpuinfo"
    path.parent.mkdir(exist_ok=True)
    count = os.cpu_count() or 1
    path.write_text("".join(PROCESSOR.format(number=number) for number in range(count)), encoding="utf-8")


def install_torch(torch: str, machine: str) -> Path:
    """Return a folder with a PyTorch for a machine, and what it and the packages require; download it once."""
    folder = ROOT / "build" / machine / f"torch-{torch}"
    if not has_torch(folder):
        projects = sorted((ROOT / "packages").glob("*/pyproject.toml"))
        pip_install(folder, machine, f"torch=={torch}", *dict.fromkeys(requirements(projects, [])))
    return folder


def pip_install(folder: Path, machine: str, *words: str) -> None:
    """Install packages for a machine into a folder."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, *pip_options(PYTHON, machine), "--target", str(folder), *words], check=True)


def check(wheels: list[Path], torches: list[str], machine: str) -> None:
    """Run the smoke test of wheels with each PyTorch, and the conformance suite on the driver; print their times."""
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 1e6:7.2f} MB {wheel.name}", flush=True)
    tag = f"cp{PYTHON.replace('.', '')}"
    if not any(f"-{tag}-" in wheel.name for wheel in wheels):
        print(f"make: not tested: Debian has no Python for {machine} but {PYTHON}")
        return
    check_programs(machine)
    python = make_root(machine)
    own = ROOT / "build" / machine / "isthmus"
    shutil.rmtree(own, ignore_errors=True)
    pip_install(own, machine, "--no-deps", *map(str, wheels))
    for torch in torches:
        environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        environment["PYTHONPATH"] = f"{own}:{install_torch(torch, machine)}"
        commands = [("-c", SMOKE), *(words.split() for words in CONFORM if torch == torches[0])]
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for words in commands:
                subprocess.run([python, *words], check=True, cwd=folder, env=environment)
        print(
            f"make: torch {torch} on {machine}: passed in {time.monotonic() - begun:.0f} s under qemu",
            flush=True,
        )
