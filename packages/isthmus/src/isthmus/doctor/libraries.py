"""Check installed packages on disk: incomplete, duplicate, or hidden by another folder."""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

from isthmus.doctor import versions
from isthmus_common.finding import Finding, fail, ok, run_checks, warning

_SUBJECT = "libraries"


class Library(NamedTuple):
    """A library that Isthmus uses or adapts.

    Attributes:
        name: name of its distribution.
        module: name of its module.
        needs_torch: whether its import needs PyTorch.
        heavy: its import takes longer than all others together; only its metadata and requirements are checked.
    """

    name: str
    module: str
    needs_torch: bool = False
    heavy: bool = False


LIBRARIES = (
    Library("torch", "torch", needs_torch=True),
    Library("numpy", "numpy"),
    Library("ml-dtypes", "ml_dtypes"),
    Library("apache-tvm-ffi", "tvm_ffi"),
    Library("pydantic", "pydantic"),
    Library("pyyaml", "yaml"),
    Library("safetensors", "safetensors"),
    Library("rich", "rich"),
    Library("typer", "typer"),
    Library("tokenizers", "tokenizers"),
    Library("triton", "triton"),
    Library("transformers", "transformers", needs_torch=True),
    Library("accelerate", "accelerate", needs_torch=True),
    Library("deepspeed", "deepspeed", needs_torch=True),
    Library("megatron-core", "megatron.core", needs_torch=True, heavy=True),
)


def examine() -> Iterator[Finding]:
    """Check for missing, incomplete and duplicate packages."""
    findings = [
        *run_checks(
            _SUBJECT, _leftovers, _unfinished_installations, _missing_files, _modules, _doubles, _shadows
        )
    ]
    yield from findings
    if not findings:
        yield ok(
            _SUBJECT,
            f"{len({name_of(found) for found in installed_distributions()})} packages, complete, no duplicates",
        )


def name_of(distribution: Distribution) -> str:
    """Return the normalised name of a distribution; "" if it has none."""
    try:
        name = distribution.metadata["Name"] or ""
    except (KeyError, TypeError, OSError, UnicodeDecodeError):
        return ""
    return name.lower().replace("_", "-").replace(".", "-")


def find(module: str) -> ModuleSpec | None:
    """Find where a module would be imported from, without importing it or its parent packages."""
    path: list[str] | None = None
    spec, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path) for finder in finders)), None)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def installed_distributions() -> Iterable[Distribution]:
    """Return the distributions on the search path, without those vendored by setuptools."""
    return distributions(path=[entry for entry in sys.path if Path(entry).name != "_vendor"])


def _folders() -> list[Path]:
    """Return the folders of the search path without duplicates."""
    return list(dict.fromkeys(Path(entry).resolve() for entry in sys.path if Path(entry).is_dir()))


def _leftovers() -> Iterator[Finding]:
    """Find what an interrupted `pip uninstall` leaves: names with the first letter replaced."""
    for folder in _folders():
        for leftover in sorted(folder.glob("~*")):
            text = f"{leftover} is left over from an interrupted installation"
            yield warning(_SUBJECT, text, f"delete it: `rm -r {leftover}`")


def _unfinished_installations() -> Iterator[Finding]:
    for folder in _folders():
        for found in sorted(folder.glob("*.dist-info")):
            metadata = found / "METADATA"
            if not metadata.is_file() or not metadata.stat().st_size:
                name = found.name.partition("-")[0]
                remedy = f"`rm -r {found}`, then `pip install --force-reinstall {name}`"
                yield fail(_SUBJECT, f"{found} has no METADATA: its installation was interrupted", remedy)


def _missing_files() -> Iterator[Finding]:
    for distribution in installed_distributions():
        files = _recorded_files(distribution)
        missing = [file for file in files if not file.exists()]
        if not missing:
            continue
        name = name_of(distribution)
        count = f"{len(missing)} of {len(files)} files are missing"
        text = f"{name} {distribution.version}: {count}, such as {missing[0]}"
        broken = [file for file in missing if file.suffix == ".so" or file.name == "__init__.py"]
        found = fail if broken else warning  # slim images omit files that are not imported
        yield found(_SUBJECT, text, _reinstall_command(name, distribution.version))


def _recorded_files(distribution: Distribution) -> list[Path]:
    """Return the files in a distribution's RECORD except .pyc files, which may be deleted."""
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return [
        Path(str(distribution.locate_file(row[0]))) for row in rows if row and not row[0].endswith(".pyc")
    ]


def _reinstall_command(name: str, version: str) -> str:
    return f"`pip install --force-reinstall --no-deps {name}=={version}`"


def _modules() -> Iterator[Finding]:
    """Check that each library has both metadata and a module, or neither."""
    for library in LIBRARIES:
        version, spec = versions.installed_version(library.name), find(library.module)
        if version and spec is None:
            text = f"{library.name} {version} is installed, but module {library.module} does not exist"
            yield fail(_SUBJECT, text, _reinstall_command(library.name, version))
        elif spec is not None and not version:
            text = f"{library.module} is at {_place(spec)} without metadata: unknown version"
            yield warning(_SUBJECT, text, "install it with pip, or remove its folder from PYTHONPATH")


def _place(spec: ModuleSpec) -> str:
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "?")


def _doubles() -> Iterator[Finding]:
    """Find packages with two versions in one folder: the second was installed over the first."""
    places: dict[tuple[str, Path], set[str]] = defaultdict(set)
    for distribution in installed_distributions():
        if name := name_of(distribution):
            folder = Path(str(distribution.locate_file(""))).resolve()
            places[name, folder].add(distribution.version)
    for (name, place), found in sorted(places.items()):
        if len(found) > 1:
            text = f"{place} has several versions of {name}: {', '.join(sorted(found))}"
            yield fail(_SUBJECT, text, f"`pip uninstall {name}` until none is left, then reinstall it")


def _shadows() -> Iterator[Finding]:
    """Find modules that are on the search path twice: the first hides the others."""
    for library in LIBRARIES:
        relative = library.module.replace(".", "/")
        there = [folder for folder in _folders() if _exists(folder / relative)]
        if len(there) > 1:
            hidden = ", ".join(map(str, there[1:]))
            text = f"{library.module} in {there[0]} hides the one in {hidden}"
            yield warning(_SUBJECT, text, f"remove {there[0]} from PYTHONPATH, or uninstall one of them")


def _exists(path: Path) -> bool:
    return (path / "__init__.py").is_file() or path.with_name(f"{path.name}.py").is_file()
