"""Golden data: cases with expected results, in files that are read without PyTorch.

A folder contains ``manifest.json`` (format, opset, seed, operators, SHA-256 of every file and of itself) and for each
operator, such as ``aten::mm``, ``aten.mm.json.xz`` (cases) and ``aten.mm.safetensors.xz`` (arrays, see
:mod:`isthmus.conformance.arrays`), so that a run of one operator reads no others. Equal arrays of an operator are
stored once. Equal cases give equal bytes.

    writer = Writer(folder, opset=digest, seed=0)
    files = write_cases(folder, "aten::mm", cases)
    writer.operator("aten::mm", OperatorEntry("aten::mm(Tensor self, ...", "matmul", len(cases), ("core",)), files)
    writer.close()

A case in JSON: ``id``, ``operator``, ``dtype``, ``layout``; ``arguments`` in the order of ``schema.inputs``, each
one of ``{"tensor": key, "dtype", "shape", "strides", "offset"}`` (the key names the elements of its storage),
``{"tensors": [...]}``, ``{"number": x}``, ``{"numbers": [...]}``, ``{"text": s}`` or null; ``outputs`` in the order
of ``schema.outputs`` and ``written`` by the name of the argument: ``{"tensor": key of the reference, "dtype",
"shape", "magnitude": key}``, ``{"law": {...}, "dtype", "shape"}``, a list of those, or null; ``tolerance``;
``output_layout``.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

from isthmus.conformance import arrays
from isthmus.conformance.cases import Case, Expected, Result, Tensor, Tolerance, Value, row_major
from isthmus.conformance.encoding import case_from_json, case_to_json
from isthmus_common import files

__all__ = [
    "Case",
    "Expected",
    "GoldenError",
    "OperatorEntry",
    "Reader",
    "Result",
    "Tensor",
    "Tolerance",
    "Value",
    "Writer",
    "row_major",
    "write_cases",
]

FORMAT = 4
MANIFEST = "manifest.json"


class GoldenError(ValueError):
    """Golden data is missing or invalid; the message is one line."""


def remedy(folder: Path) -> str:
    """Say how to make the data of a folder."""
    return f"run `isthmus conform generate --output {folder}`"


@dataclass(frozen=True)
class OperatorEntry:
    """An operator of the manifest.

    Attributes:
        schema: text of its schema.
        family: its family.
        cases: number of its cases.
        tiers: "core" and names of models, sorted.
        random: whether its results follow a law.
        derived: number of those that are derived (:mod:`isthmus.opset.derivation`).
        rejected: number of derived calls that PyTorch rejected, which are not cases.
    """

    schema: str
    family: str
    cases: int
    tiers: tuple[str, ...] = ()
    random: bool = False
    derived: int = 0
    rejected: int = 0


def _digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its own entry."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


class Writer:
    """Writes a folder of golden data. The manifest comes last, so that an incomplete folder is detected.

    Args:
        folder: created if absent. Data of the same opset, seed and notes in it stays.
        notes: versions and options that decide the data.
    """

    def __init__(self, folder: Path, opset: str, seed: int, **notes: Any) -> None:
        self._folder = folder
        self._head: dict[str, Any] = {"format": FORMAT, "opset": opset, "seed": seed, **notes}
        self._operators: dict[str, dict[str, Any]] = {}
        self._files: dict[str, str] = {}
        files.make_folder(folder)
        folder.chmod(0o750)
        with suppress(GoldenError):
            manifest = Reader(folder).manifest
            if all(manifest.get(key) == value for key, value in self._head.items()):
                self._operators, self._files = manifest["operators"], manifest["files"]
                return
        (folder / MANIFEST).unlink(missing_ok=True)

    def operator(self, name: str, entry: OperatorEntry, written: Mapping[str, str]) -> None:
        """Add an operator and its files, as returned by :func:`write_cases`."""
        self._operators[name] = asdict(entry)
        self._files.update(written)

    def close(self) -> None:
        """Write the manifest."""
        manifest = {**self._head, "operators": self._operators, "files": self._files}
        manifest["sha256"] = _digest(manifest)
        files.write_file(
            self._folder / MANIFEST, [json.dumps(manifest, indent=1, sort_keys=True).encode(), b"\n"]
        )


def write_cases(folder: Path, operator: str, cases: Iterable[Case]) -> dict[str, str]:
    """Write the cases of one operator; return the SHA-256 of each file by name.

    Raises:
        ValueError: a case of another operator, or a duplicate case.
    """
    store = arrays.Store()
    rows, seen = [], set()
    for case in cases:
        key = (case.operator, case.dtype, case.id)
        if case.operator != operator or key in seen:
            problem = "duplicate" if key in seen else f"written as a case of {operator}"
            raise ValueError(f"golden case {' '.join(key)}: {problem}")
        seen.add(key)
        rows.append(case_to_json(case, store))
    text = json.dumps({"cases": rows}, separators=(",", ":")) + "\n"
    json_file, arrays_file = _files_of(operator)
    return {
        json_file: arrays.write_compressed(folder / json_file, [text.encode()]),
        arrays_file: store.write(folder / arrays_file),
    }


def _files_of(operator: str) -> tuple[str, str]:
    """Return the names of an operator's files: cases and arrays."""
    stem = operator.replace("::", ".")
    return f"{stem}.json.xz", f"{stem}.safetensors.xz"


class Cases(Sequence[Case]):
    """Cases that are decoded each time they are accessed."""

    def __init__(self, rows: list[dict[str, Any]], store: arrays.Loaded) -> None:
        self._rows, self._store = rows, store

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> list[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | list[Case]:
        """Decode one case, or those of a slice."""
        if isinstance(index, slice):
            return [case_from_json(row, self._store) for row in self._rows[index]]
        return case_from_json(self._rows[index], self._store)


class Reader:
    """Reads a folder of golden data. Files are checked against the manifest on first use.

    Attributes:
        folder: the folder.
        manifest: content of the manifest.
        operators: operators by overload.

    Args:
        checked: skip the checks, because another process has just made them.

    Raises:
        GoldenError: no data, or data that is incomplete, truncated, modified or of another format.
    """

    def __init__(self, folder: Path, checked: bool = False) -> None:
        self.folder = folder
        self._trusted: set[str] = set()
        self._trusts_all = checked
        file = folder / MANIFEST
        try:
            self.manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            version = self.manifest["format"]
            if version != FORMAT:
                raise GoldenError(f"{file}: format {version}, expected {FORMAT}; {remedy(folder)}")
            if self.manifest.get("sha256", _digest(self.manifest)) != _digest(self.manifest):
                raise GoldenError(f"{file}: modified; {remedy(folder)}")
            self.operators = {
                name: OperatorEntry(**{**row, "tiers": tuple(row["tiers"])})
                for name, row in self.manifest["operators"].items()
            }
            self._digests: dict[str, str] = dict(self.manifest["files"])
        except FileNotFoundError:
            raise GoldenError(f"{file}: no such file; {remedy(folder)}") from None
        except OSError as error:
            raise GoldenError(f"{file}: {error.strerror}") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise GoldenError(
                f"{file}: not a manifest of golden data ({type(error).__name__}: {error}); {remedy(folder)}"
            ) from None
        missing = [name for name in self._digests if not (folder / name).is_file()]
        if missing:
            raise GoldenError(f"{folder / missing[0]}: no such file; {remedy(folder)}")

    def check(self, operator: str) -> None:
        """Check the files of an operator. Raises GoldenError."""
        for name in _files_of(operator):
            self._check(name)

    def cases(self, operator: str) -> Sequence[Case]:
        """Return the cases of an operator, decoded on access. Raises GoldenError."""
        self.check(operator)
        rows, store = (self.folder / name for name in _files_of(operator))
        return Cases(json.loads(arrays.read_compressed(rows))["cases"], arrays.Loaded(store))

    def _check(self, name: str) -> None:
        if self._trusts_all or name in self._trusted:
            return
        file = self.folder / name
        if name not in self._digests:
            raise GoldenError(f"{file}: not listed in the manifest; {remedy(self.folder)}")
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise GoldenError(f"{file}: {error.strerror}; {remedy(self.folder)}") from None
        if digest != self._digests[name]:
            raise GoldenError(
                f"{file}: modified or truncated ({file.stat().st_size} bytes, SHA-256 {digest[:12]}..., expected "
                f"{self._digests[name][:12]}...); {remedy(self.folder)}"
            )
        self._trusted.add(name)
