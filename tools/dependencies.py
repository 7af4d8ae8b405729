"""Test the packages with the lowest and with the newest versions of what they require: ``make dependencies``.

Each run makes an environment under build/dependencies with the C++ core of this checkout, and does the smoke tests.
The versions that pass are written to docs/results/dependencies.md. With ``lowest`` it prints the lower bounds only,
as constraints for pip.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import wheel
from tools.repository import ROOT
from tools.requirements import requirements
from tools.wheel import ADD, TORCH

PROJECTS = sorted(ROOT.glob("packages/*/pyproject.toml"))
EXTRAS = ["train", "data"]  # what the example and the commands of data need
BUILD = ROOT / "build" / "dependencies"
PAGE = ROOT / "docs" / "results" / "dependencies.md"
OPERATORS = "aten::_softmax,aten::uniform_"
SMOKE = (
    ("python", "-c", ADD),
    ("isthmus", "doctor"),
    ("isthmus", "run", "examples/pretrain_llama.py", "--tiny", "--overwrite", "--output", f"{BUILD}/llama"),
    *(
        (
            "isthmus",
            "conform",
            "run",
            "--driver",
            driver,
            "--operators",
            OPERATORS,
            "--output",
            f"{BUILD}/{driver}",
        )
        for driver in ("host", "numpy")
    ),
    ("isthmus", "migrate", "analyse", "--fail-on", "never", "packages/isthmus/tests/scripts"),
    ("isthmus", "data", "inspect", "examples/alpaca.json"),
    ("isthmus", "plan", "parallel", "--help"),
    (
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "packages/isthmus-common/tests"),
        *(
            "packages/isthmus-cluster/tests/test_inventory.py",
            "packages/isthmus-cluster/tests/test_ranktable.py",
        ),
        "packages/isthmus-diagnostics/tests/accuracy/test_judging.py",
        *(
            "packages/isthmus-migrate/tests/test_own_rules.py",
            "packages/isthmus-migrate/tests/test_analyse_engine.py",
        ),
        *("packages/isthmus-formats/tests/data/test_inspect.py", "tests/tools/test_packages.py"),
    ),
)


def lowest(lines: list[str]) -> dict[str, str]:
    """Return the lower bound of each requirement, by its name."""
    found = (re.match(r"([\w.-]+)\s*[=>]=\s*([\w.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def call(folder: Path, *words: str) -> None:
    """Run a program of an environment; raise CalledProcessError if it fails."""
    wheel.call(folder / "bin" / words[0], *words[1:])


def installed(folder: Path) -> dict[str, str]:
    """Return the versions in an environment, by name."""
    listing = subprocess.check_output([folder / "bin" / "python", "-m", "pip", "freeze", "--all"], text=True)
    pairs = (line.split("==") for line in listing.splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test(name: str, lines: list[str]) -> dict[str, str]:
    """Make an environment with these requirements, and do the smoke tests in it; return its versions."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = ("python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--quiet")
    call(
        folder,
        *pip,
        "setuptools",
        "wheel",
        f"torch=={TORCH}",
        "pytest",
        "pytest-timeout",
        "hypothesis",
        *lines,
    )
    core, *others = sorted((path.parent for path in PROJECTS), key=lambda package: package.name != "isthmus")
    os.environ["ISTHMUS_BUILD"] = "none"  # the core of this checkout is built
    for packages in ([core], others):  # isthmus-ascend is described with the headers of isthmus
        editable = [word for package in packages for word in ("--editable", str(package))]
        call(folder, *pip, "--no-deps", "--no-build-isolation", *editable)
    del os.environ["ISTHMUS_BUILD"]
    for words in SMOKE:
        print(f"dependencies: {name}: {' '.join(words)[:100]}", flush=True)
        call(folder, *words)
    return installed(folder)


def page(bounds: dict[str, str], low: dict[str, str], new: dict[str, str]) -> str:
    """Return the text of the page with the versions that pass."""
    rows = [f"| {name} | {low[name]} | {new[name]} |" for name in sorted(bounds)]
    return "\n".join(
        [
            "# Dependencies",
            "",
            "The lowest and the newest version of each requirement with which the smoke tests pass (computing on the",
            "chip, `isthmus run` of the example, conformance of two operators, commands and tests of each package).",
            f"Made by `make dependencies`, with torch=={TORCH} and the core built for apache-tvm-ffi"
            f" {lowest((ROOT / 'constraints.txt').read_text().splitlines())['apache-tvm-ffi']}.",
            "",
            "| package | lowest | newest |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main(arguments: list[str]) -> None:
    """Print the lower bounds, or test both ends and write the page."""
    lines = list(dict.fromkeys(requirements(PROJECTS, EXTRAS)))
    bounds = lowest(lines)
    pins = [f"{name}=={version}" for name, version in bounds.items()]
    if arguments == ["lowest"]:
        print(*pins, sep="\n")
        return
    low = test("lowest", pins)
    PAGE.write_text(page(bounds, low, test("newest", lines)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
