"""Commands without PyTorch: they work if they do not need it, and otherwise say so in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.repository import CORE, ROOT

PATTERNS = ("aten::add.Tensor", "aten::mm")
OPERATORS = [word for pattern in PATTERNS for word in ("--operators", pattern)]
# Tools that inspect PyTorch itself, and shared libraries.
NEED_TORCH = ("through_pytorch", "trace", "torchgen_schemas", "libisthmus_host")


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Golden data of two operators, generated with PyTorch."""
    folder = tmp_path_factory.mktemp("golden")
    command = [sys.executable, "-m", "isthmus", "conform", "generate", "--output", str(folder)]
    subprocess.run([*command, "--operators", ",".join(PATTERNS)], check=True, capture_output=True, text=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment in which `import torch` fails as if not installed, also in child processes."""
    (tmp_path / "sitecustomize.py").write_text('import sys\nsys.modules["torch"] = None\n')
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def isthmus(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["env"], ["run", "--help"], ["conform", "--help"]]
)
def test_commands_that_work(environment: dict[str, str], arguments: list[str]) -> None:
    done = isthmus(environment, *arguments)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("arguments", [["ops"], ["run", "-c", "import torch"], ["run", "--explain"]])
def test_commands_that_need_pytorch(environment: dict[str, str], arguments: list[str]) -> None:
    done = isthmus(environment, *arguments)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(
        f"isthmus {arguments[0]}: PyTorch is not installed; run `pip install 'torch>=2.13,<2.16'`"
    )


@pytest.mark.full
def test_doctor_names_what_is_missing(environment: dict[str, str]) -> None:
    done = isthmus(environment, "doctor")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 1 and len(failed) == 1 and "PyTorch is not installed" in failed[0]


@pytest.mark.full
@pytest.mark.sampled(1)
@pytest.mark.parametrize("driver", ["numpy", "host"])
def test_a_driver_is_judged(environment: dict[str, str], golden: Path, tmp_path: Path, driver: str) -> None:
    library = str(CORE / "src/isthmus/drivers/numpy/operators.py")
    arguments = ["--driver", driver, "--golden", str(golden), "--output", str(tmp_path / "report")]
    arguments += ["--jobs", "1", "--library", library, *OPERATORS]
    done = isthmus(environment, "conform", "run", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "report" / "report.json").is_file()


def test_modules_for_chip_makers_do_not_import_torch() -> None:
    """They do not import it even if it is installed."""
    code = f"""
import pkgutil, importlib, sys
import isthmus.conformance, isthmus.drivers, isthmus.opset
for package in (isthmus.drivers, isthmus.opset, isthmus.conformance):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.rpartition(".")[2] not in {NEED_TORCH}:
            importlib.import_module(module.name)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


@pytest.mark.slow
def test_an_installation_without_torch(golden: Path, tmp_path: Path) -> None:
    """`pip install .` into a fresh environment builds all but the core, pulls no PyTorch, and judges a chip."""
    source, venv = tmp_path / "source", tmp_path / "venv"
    ignored = shutil.ignore_patterns(".*", "build", "runs", "*.so", "torch_*", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=ignored)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    installed = subprocess.run(
        [
            *pip,
            "install",
            "--quiet",
            *(str(source / "packages" / name) for name in ("isthmus-common", "isthmus")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr[-3000:]
    names = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True).stdout
    assert "torch" not in names and "isthmus" in names
    package = next((venv / "lib").glob("python3*/site-packages/isthmus"))
    assert not [*package.glob("binaries/torch_*")]
    headers = {path.name for path in (package / "include").iterdir()}
    assert headers >= {"driver.h", "operators.h", "isthmus_ops.h"}
    command = [str(venv / "bin/isthmus"), "conform", "run", "--driver", "numpy", "--golden", str(golden)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*command, *OPERATORS, "--output", str(tmp_path / "report")],
        env=clean, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
