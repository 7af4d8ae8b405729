"""The packages of this repository: one version, borders, and imports by name."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from isthmus_common import package_folders
from tools.repository import CORE, ROOT

PACKAGES = sorted(ROOT.glob("packages/*"))
# Each file that imports a module by a name in a string, with its reason.
BY_NAME = {
    "packages/isthmus/src/isthmus/coverage/models.py": "the model that a user names",
    "packages/isthmus/src/isthmus/doctor/imports.py": "every requirement, one after the other",
    "packages/isthmus/src/isthmus/doctor/plugins.py": "plugins of PyTorch (entry points)",
    "packages/isthmus/src/isthmus/drivers/__init__.py": "drivers of other packages (entry points)",
    "packages/isthmus/src/isthmus/drivers/generators/__init__.py": "the code generator that a driver names",
    "packages/isthmus/src/isthmus/drivers/libraries.py": "apache-tvm-ffi, without PyTorch",
    "packages/isthmus/src/isthmus/megatron/explain.py": "modules of Megatron",
    "packages/isthmus/src/isthmus/megatron/helpers.py": "modules of Megatron",
    "packages/isthmus/src/isthmus/ops/npu.py": "torch_npu",
    "packages/isthmus/src/isthmus/doctor/__init__.py": "checks of packages above (entry points)",
    "packages/isthmus/src/isthmus/ops/patching/__init__.py": "the library that a user names",
    "packages/isthmus/src/isthmus/ops/triton/__init__.py": "a family of kernels, when it is first called",
    "packages/isthmus/src/isthmus/opset/__init__.py": "the families of operators, when they are first asked for",
    "packages/isthmus/src/isthmus/opset/families/spatial.py": "PyTorch, in a table that is read without it",
    "packages/isthmus/src/isthmus/opset/reference.py": "the module of a reference, when it is first called",
    "packages/isthmus/src/isthmus/shim/cuda_module.py": "modules of PyTorch",
    "packages/isthmus/src/isthmus/shim/devices.py": "modules of PyTorch",
    "packages/isthmus-common/src/isthmus_common/children.py": "the function that a caller names",
    "packages/isthmus-common/src/isthmus_common/commands.py": "commands (entry points)",
    "packages/isthmus-common/src/isthmus_common/options.py": "what an option starts, and tables (entry points)",
    "packages/isthmus-common/src/isthmus_common/options_header.py": "the table of options that the build names",
    "packages/isthmus-common/src/isthmus_common/patches.py": "the module of a patch",
    "packages/isthmus-common/src/isthmus_common/tools.py": "functions of upper packages (entry points)",
    "packages/isthmus-diagnostics/src/isthmus_diagnostics/plan/parallel/probe.py": "Megatron, after its adaptor",
    "packages/isthmus-formats/src/isthmus_formats/checkpoint/architectures/__init__.py": "each architecture",
    "packages/isthmus-formats/src/isthmus_formats/checkpoint/formats/__init__.py": "each format",
    "packages/isthmus-formats/src/isthmus_formats/data/formats/__init__.py": "the format that is asked for",
    "packages/isthmus-migrate/src/isthmus_migrate/rules/registry.py": "each rule; rules of others (entry points)",
    "packages/isthmus-triton/src/isthmus_triton/cli.py": "the file that is compared",
    "packages/isthmus-triton/src/isthmus_triton/interpret.py": "the module of a kernel",
    "packages/isthmus-triton/src/isthmus_triton/npu.py": "Triton's modules, which are not complete before",
}


def calls(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            found.add(
                node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            )
    return found & {"import_module", "__import__", "entry_points"}


# Distribution of a module, where its name is not the module's.
DISTRIBUTIONS = {
    "megatron": "megatron-core",
    "pynvml": "nvidia-ml-py",
    "tvm_ffi": "apache-tvm-ffi",
    "yaml": "pyyaml",
}
# Modules that are not installed for a package: of the user's project, or provided by isthmus itself.
OTHERS = {
    "isthmus": {"amp_C", "apex", "flash_attn"},
    "isthmus-ascend": {"acl", "numpy"},  # pyACL: in its own folder, for programs that bring NumPy
    "isthmus-common": {"isthmus", "torch"},
}


def requirements(lines: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", line)[0].lower() for line in lines}


def imported_modules(folder: Path) -> set[str]:
    """Return the top-level modules of others that the sources of a package import, anywhere."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    return found - sys.stdlib_module_names - {folder.name}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_requires_exactly_what_it_imports(package: Path) -> None:
    """An import needs a dependency, or an extra whose absence the importing command reports."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    name = project["name"]
    folder = package / "src" / name.replace("-", "_")
    imported = {
        DISTRIBUTIONS.get(each, each.replace("_", "-"))
        for each in imported_modules(folder) - OTHERS.get(name, set())
    }
    required = requirements(project["dependencies"])
    optional = requirements(
        [line for extra in project.get("optional-dependencies", {}).values() for line in extra]
    )
    assert imported <= required | optional, "imported, but neither required nor in an extra"
    assert required <= imported, "required, but not imported"


def test_every_import_by_name_has_a_reason() -> None:
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob("packages/*/src/**/*.py") if calls(path)}
    assert found == set(BY_NAME)


def option_names(path: Path) -> set[tuple[str, str]]:
    """Return package of the table and name, for each option that a file reads by a name of its own."""
    tree = ast.parse(path.read_text())
    owners = {
        alias.asname or alias.name: (node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "options" or (alias.name == "TABLE" and (node.module or "").endswith(".options"))
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner, name = node.func.value, node.args[0]
            if isinstance(owner, ast.Attribute):  # options.TABLE
                owner = owner.value
            package = owners.get(owner.id, "") if isinstance(owner, ast.Name) else ""
            known = package not in ("", "isthmus_common") and isinstance(name, ast.Constant)
            if known and node.func.attr in ("switch", "integer", "text", "variable"):
                found.add((package, str(name.value)))
    return found


def test_options_that_are_read_are_in_the_table() -> None:
    read = set().union(*(option_names(path) for path in ROOT.glob("packages/*/src/**/*.py")))
    assert len(read) > 30
    known = {
        (package, option.name)
        for package in {package for package, _ in read}
        for option in importlib.import_module(f"{package}.options").TABLE.options
    }
    assert read <= known, read - known


def test_the_packages_are_known() -> None:
    names = {path.name for path in ROOT.glob("packages/*/src/*") if not path.name.endswith(".egg-info")}
    assert set(package_folders.PACKAGES) == names
    assert package_folders.folders()[0] == f"{CORE}/src/isthmus/"
    assert len(package_folders.folders()) == len(package_folders.PACKAGES)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_a_package_is_complete(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    assert project["name"] == package.name and project["dynamic"] == ["version"]
    assert version(package.name) == (ROOT / "VERSION").read_text().strip()
    assert (package / "VERSION").resolve() == ROOT / "VERSION"
    assert (package / "src" / package.name.replace("-", "_") / "py.typed").is_file()
    page = (package / "README.md").read_text()
    assert page.startswith(f"# {package.name}\n") and "Limits:" in page and page.count("\nisthmus ") >= 2
    assert len(page.splitlines()) < 40


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs/contributing/architecture.md").read_text()
    named = re.findall(r"`([\w./-]+/[\w.-]+)`", page)
    paths = [name for name in named if not name.startswith("isthmus-")]
    assert len(paths) > 30 and not [
        path for path in paths if not any((top / path).exists() for top in (ROOT, CORE, CORE / "src"))
    ]
