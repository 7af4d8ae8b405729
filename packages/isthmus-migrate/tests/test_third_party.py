"""The table of libraries against the stand-ins and the patches of `isthmus run`, which it must not lag behind."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import stand_ins
from isthmus.shim import libraries
from isthmus.stand_ins import provide
from isthmus_migrate.source import third_party

FOLDER = Path(stand_ins.__file__).parent


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def names_of(path: Path) -> Iterator[str]:
    """The public names that a module defines, or lists in ``__all__``."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_public(node.name):
            yield node.name
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from (name for name in ast.literal_eval(node.value) if is_public(name))


def provided(package: str) -> Iterator[str]:
    """The dotted public names of a stand-in, modules without any included."""
    folder = FOLDER / package
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts == ("__init__",) or not all(map(is_public, parts)):
            continue
        module = ".".join(parts).removesuffix(".__init__")
        modules = {each.stem for each in path.parent.iterdir()} if path.name == "__init__.py" else set()
        found = [name for name in names_of(path) if name not in modules]
        if not found and path.name != "__init__.py":
            yield module
        yield from (f"{module}.{name}" for name in found)


@pytest.mark.parametrize("package", provide.PROVIDED)
def test_what_a_stand_in_has_is_not_reported_as_missing(package: str) -> None:
    names = list(provided(package))
    assert len(names) >= 2
    reported = {name: third_party.library(name) for name in names}
    assert {name for name, entry in reported.items() if entry is None or entry[1].code == "IM301"} == set()


@pytest.mark.parametrize("package", provide.PROVIDED)
def test_the_top_level_modules_of_a_stand_in_have_entries(package: str) -> None:
    for module in provide.PROVIDED[package]:
        entry = third_party.library(module)
        assert entry is not None and entry[1].code != "IM301", module


STAND_INS = {name: each for name, each in third_party.LIBRARIES.items() if each.code == "IM302"}


@pytest.mark.parametrize("name", STAND_INS)
def test_an_entry_of_a_stand_in_names_a_package_that_has_it(name: str) -> None:
    package = STAND_INS[name].advice.partition("--provide ")[2].partition("`")[0]
    assert name in {each[: len(name)] for each in provided(package) if f"{each}.".startswith(f"{name}.")}


class Asked:
    """A scope that notes the modules for which the shim has patches."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def when_imported(self, module: str, patch: Callable[[], Any], reason: str) -> None:
        self.modules.append(module)


def test_libraries_that_the_shim_patches_are_not_reported_as_missing() -> None:
    asked = Asked()
    libraries.install(asked)  # type: ignore[arg-type]
    assert "bitsandbytes" in asked.modules and "xformers.ops.fmha" in asked.modules
    found = {module: third_party.library(module) for module in (*asked.modules, "bitsandbytes.optim")}
    assert [module for module, entry in found.items() if entry and entry[1].code == "IM301"] == []
