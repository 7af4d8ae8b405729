"""Find drivers by folder (``isthmus/drivers/<name>/driver.toml``), entry point, or path.

Nothing is opened here. A package outside Isthmus adds a driver with an entry point of the group
``isthmus.drivers``: its name is the driver's, its value a function that returns the path of the
``driver.toml``, or of a library that needs none.
"""

import os
import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
DISABLED = ("none", "0")  # values of ISTHMUS_DRIVER that disable the chip
DESCRIPTION = "driver.toml"
EMBEDDED = "host"  # always available, so every other driver takes precedence
ON_REQUEST = frozenset({"numpy"})  # only when selected by name: an example


class DriverError(ValueError):
    """A driver's description cannot be used; the message is one line: file, key, remedy."""


class Candidate(NamedTuple):
    """A driver that may be opened.

    Attributes:
        name: name that selects it.
        path: its library.
        origin: where it was found: folder, entry point or path.
        operators: its operator libraries (shared libraries or Python files), in order of preference.
        delegate: "none" or "cpu" to restrict the library's declaration; "" to keep it.
        prefer: "kernel" or "delegate": the route of an operator that has both.
        fallback: whether operators without a route may run on the CPU by copying.
        known_failures: file of conformance cases that are known to fail, or "".
        description: one line, or "" for the library's own.
        devices: pattern of the device files; a driver that has it is found by itself only where one exists.
        requires: library of the vendor that it opens, in a folder of LD_LIBRARY_PATH.
        setup: command after which that library is found.
        code_generator: compiles runs of pointwise operators (:mod:`isthmus.opset.pointwise`): ``c``, ``triton``,
            the path of a Python file, or "".
        batch_invariant: whether the bits of a row never depend on the rest of its batch, in any operator.
        peak_flops: floating-point operations per second of matrix products that its maker states, by dtype.
    """

    name: str
    path: str
    origin: str
    operators: tuple[str, ...] = ()
    delegate: str = ""
    prefer: str = "kernel"
    fallback: bool = True
    known_failures: str = ""
    description: str = ""
    devices: str = ""
    requires: str = ""
    setup: str = ""
    code_generator: str = ""
    batch_invariant: bool = False
    peak_flops: tuple[tuple[str, float], ...] = ()


class Search(NamedTuple):
    """Candidates in order of preference, the places searched, and the reason if there are none."""

    candidates: tuple[Candidate, ...]
    searched: tuple[str, ...]
    problem: str = ""


@cache
def _entry_points() -> Any:
    return entry_points()  # cached: reading takes milliseconds of `import torch`


def installed_entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, of every installed package."""
    return list(_entry_points().select(group=group))


def find(asked: str = "") -> Search:
    """Find the drivers to try.

    Args:
        asked: name of a driver, path of a ``driver.toml`` or of a library, or "" for any.
    """
    if os.sep in asked or asked.endswith((".so", ".toml")):
        return _at_path(asked)
    searched: list[str] = []
    shipped = _shipped_candidates(searched)
    if asked and any(candidate.name == asked for candidate in shipped):
        return Search(tuple(c for c in shipped if c.name == asked), tuple(searched))
    candidates = [*_from_entry_points(searched, asked), *shipped]
    candidates.sort(key=lambda candidate: candidate.name == EMBEDDED)
    if asked:
        known = {c.name for c in shipped} | {
            entry.name for entry in installed_entry_points("isthmus.drivers")
        }
        names = ", ".join(sorted(known)) or "none"
        candidates = [c for c in candidates if c.name == asked]
        problem = f"unknown driver {asked!r}; expected {names}, or the path of a {DESCRIPTION}"
    else:
        candidates = [c for c in candidates if _is_present(c, searched)]
        problem = f"no driver library in {FOLDER}; install isthmus again"
    return Search(tuple(candidates), tuple(searched), "" if candidates else problem)


def unready_drivers() -> list[str]:
    """Return a line for each driver whose device is present and whose vendor's library is not."""
    found = [*_from_entry_points([], ""), *_shipped_candidates([])]
    present = (c for c in found if c.devices and _has_device(c))
    return [problem for candidate in present if (problem := _missing_library(candidate))]


def _is_present(candidate: Candidate, searched: list[str]) -> bool:
    """Whether to try a driver that is not selected by name; if not, adds the reason."""
    if candidate.name in ON_REQUEST:
        return False
    problem = ""
    if candidate.devices:
        absent = f"driver {candidate.name}: no device {candidate.devices}"
        problem = _missing_library(candidate) if _has_device(candidate) else absent
    if problem:
        searched.append(problem)
    return not problem


def _has_device(candidate: Candidate) -> bool:
    return any(Path("/").glob(candidate.devices.lstrip("/")))


def _missing_library(candidate: Candidate) -> str:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if not candidate.requires or any(
        Path(folder, candidate.requires).exists() for folder in folders if folder
    ):
        return ""
    place = f"{candidate.requires} is in no folder of LD_LIBRARY_PATH"
    return (
        f"driver {candidate.name}: a device {candidate.devices} exists, but {place}; run `{candidate.setup}`"
    )


def read_description(file: Path, origin: str) -> Candidate:
    """Read the driver description in a ``driver.toml``.

    Raises:
        DriverError: the file cannot be read, or a key is unknown, missing or has an invalid value.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DriverError(f"{file}: {error}") from None
    folder = file.resolve().parent
    text = _Keys(file, table)
    candidate = Candidate(
        name=text.text("name", required=True),
        path=str(folder / text.text("library", required=True)),
        origin=origin,
        operators=tuple(str((folder / name).resolve()) for name in text.texts("operators")),
        delegate=text.choice("delegate", ("", "none", "cpu")),
        prefer=text.choice("prefer", ("kernel", "delegate")),
        fallback=text.take("fallback", bool, True),
        known_failures=str(folder / name) if (name := text.text("known_failures")) else "",
        description=text.text("description"),
        devices=text.text("devices"),
        requires=text.text("requires"),
        setup=text.text("setup"),
        code_generator=text.path_or_name("code_generator", folder),
        batch_invariant=text.take("batch_invariant", bool, False),
        peak_flops=tuple(text.numbers("peak_flops").items()),
    )
    text.check_unknown()
    return candidate._replace(path=str(Path(candidate.path).resolve()))


class _Keys:
    """Keys of a description, checked as they are read."""

    def __init__(self, file: Path, table: dict[str, Any]) -> None:
        self._file, self._table = file, table
        self._read: set[str] = set()

    def take(self, key: str, kind: type, default: Any) -> Any:
        self._read.add(key)
        value = self._table.get(key, default)
        if not isinstance(value, kind):
            raise DriverError(f"{self._file}: {key} = {value!r} is not a {kind.__name__}")
        return value

    def text(self, key: str, required: bool = False) -> str:
        value: str = self.take(key, str, "")
        if required and not value:
            raise DriverError(f"{self._file}: the key {key!r} is missing")
        return value

    def texts(self, key: str) -> list[str]:
        value: list[str] = self.take(key, list, [])
        if not all(isinstance(item, str) for item in value):
            raise DriverError(f"{self._file}: {key} = {value!r} is not a list of paths")
        return value

    def numbers(self, key: str) -> dict[str, float]:
        value: dict[str, float] = self.take(key, dict, {})
        if not all(isinstance(item, (int, float)) and item > 0 for item in value.values()):
            raise DriverError(f"{self._file}: {key} = {value!r} is not a table of positive numbers")
        return value

    def path_or_name(self, key: str, folder: Path) -> str:
        value = self.text(key)
        return str((folder / value).resolve()) if value.endswith(".py") else value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        value: str = self.take(key, str, allowed[0])
        if value not in allowed:
            raise DriverError(
                f"{self._file}: {key} = {value!r}; expected one of {', '.join(filter(None, allowed))}"
            )
        return value

    def check_unknown(self) -> None:
        unknown = sorted(set(self._table) - self._read)
        if unknown:
            raise DriverError(
                f"{self._file}: unknown key: {unknown[0]}; expected one of {', '.join(sorted(self._read))}"
            )


def _at_path(asked: str) -> Search:
    path = Path(asked).expanduser().absolute()
    if not path.is_file():
        problem = f"{path} is not a file; name a driver or the path of its {DESCRIPTION} or library"
        return Search((), (str(path),), problem)
    try:
        candidate = _describe_candidate(path, "path")
    except DriverError as error:
        return Search((), (str(path),), str(error))
    return Search((candidate,), (str(path),))


def _describe_candidate(path: Path, origin: str, name: str = "") -> Candidate:
    if path.suffix == ".toml":
        return read_description(path, origin)
    return Candidate(name or path.stem.removeprefix("libisthmus_"), str(path), origin)


def _shipped_candidates(searched: list[str]) -> list[Candidate]:
    found = []
    for file in sorted(FOLDER.glob(f"*/{DESCRIPTION}")):
        try:
            candidate = read_description(file, "folder")
        except DriverError as error:
            searched.append(str(error))
            continue
        if Path(candidate.path).is_file():
            found.append(candidate)
        else:
            searched.append(f"{file}: its library {candidate.path} is not built")
    searched.append(f"{FOLDER}/*/{DESCRIPTION}: {len(found)} usable")
    return found


def _from_entry_points(searched: list[str], asked: str) -> list[Candidate]:
    found = []
    for entry in installed_entry_points("isthmus.drivers"):
        if asked and entry.name != asked:
            continue
        place = f"entry point isthmus.drivers {entry.name} = {entry.value}"
        try:
            candidate = _describe_candidate(Path(entry.load()()), "entry point", entry.name)
        except Exception as error:  # a third-party package; the search continues
            searched.append(f"{place}: {type(error).__name__}: {error}")
            continue
        searched.append(f"{place}: {candidate.path}")
        found.append(candidate._replace(name=entry.name))
    if not found:
        searched.append("entry points of the group isthmus.drivers: none usable")
    return found
