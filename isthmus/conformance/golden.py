"""Golden data: what every operator must answer, as files that are read without PyTorch.

A folder holds ``manifest.json`` (format, opset, seed, operators, SHA-256 of every file and of itself) and for each
family of operators ``<family>.json`` (cases) and ``<family>.safetensors`` (arrays, in
:mod:`isthmus.conformance.arrays`). An array is stored once however many cases share it. Equal cases give equal bytes.

    writer = Writer(folder, opset=digest, seed=0)
    writer.operator("aten::add.Tensor", "aten::add.Tensor(Tensor self, ...", "pointwise", tier=["core"])
    writer.family("pointwise", cases)
    writer.close()

A case in JSON: ``id``, ``operator``, ``dtype``, ``layout``; ``arguments`` in the order of ``schema.inputs``, each
one of ``{"tensor": key, "dtype", "shape", "strides", "offset"}`` (the key names the elements of its storage),
``{"tensors": [...]}``, ``{"number": x}``, ``{"numbers": [...]}``, ``{"text": s}`` or null; ``outputs`` in the order
of ``schema.outputs`` and ``written`` by the name of the argument: ``{"tensor": key of the reference, "dtype",
"shape", "magnitude": key}``, ``{"law": {...}, "dtype", "shape"}``, a list of those, or null; ``tolerance``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus._support import files
from isthmus.conformance import arrays
from isthmus.conformance.cases import Case, Expected, Result, Tensor, Tolerance, Value, row_major
from isthmus.conformance.encoding import case_from_json, case_to_json

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
]

FORMAT = 1
MANIFEST = "manifest.json"
REMEDY = "run `isthmus conform generate` again"


class GoldenError(ValueError):
    """The data cannot be used; the message is one line: which file, what is wrong, the remedy."""


@dataclass(frozen=True)
class OperatorEntry:
    """An operator of the manifest: schema (text), family, tiers ("core", names of models), whether it is random."""

    schema: str
    family: str
    tiers: tuple[str, ...] = ()
    random: bool = False


def _digest(manifest: dict[str, Any]) -> str:
    """SHA-256 of all of a manifest but its own."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


class Writer:
    """Writes a folder of golden data; the manifest comes last, so that a half-written folder is none.

    Args:
        folder: made if absent.
        opset: digest of the opset that the cases are from.
        seed: of the samples.
    """

    def __init__(self, folder: Path, opset: str, seed: int) -> None:
        self._folder = folder
        self._head: dict[str, Any] = {"format": FORMAT, "opset": opset, "seed": seed}
        self._operators: dict[str, dict[str, Any]] = {}
        self._files: dict[str, str] = {}
        files.make_folder(folder)
        folder.chmod(0o750)
        (folder / MANIFEST).unlink(missing_ok=True)

    def operator(
        self, name: str, schema: str, family: str, tiers: Iterable[str] = (), random: bool = False
    ) -> None:
        """Name an operator that cases are of."""
        self._operators[name] = {
            "schema": schema,
            "family": family,
            "tiers": sorted(tiers),
            "random": random,
        }

    def family(self, name: str, cases: Iterable[Case]) -> int:
        """Write the cases of one family and return how many there are.

        Raises:
            ValueError: an operator was not named before, or a case has the name of another.
        """
        store = arrays.Store()
        rows, seen = [], set()
        for case in cases:
            key = (case.operator, case.dtype, case.id)
            if case.operator not in self._operators or key in seen:
                problem = "twice" if key in seen else "of an operator that was not named"
                raise ValueError(f"golden case {' '.join(key)}: {problem}")
            seen.add(key)
            rows.append(case_to_json(case, store))
        self._write(f"{name}.json", (json.dumps({"cases": rows}, separators=(",", ":")) + "\n").encode())
        self._files[f"{name}.safetensors"] = store.write(self._folder / f"{name}.safetensors")
        return len(rows)

    def close(self, **notes: Any) -> None:
        """Write the manifest. notes (versions of what made the data) go into it."""
        manifest = {**self._head, **notes, "operators": self._operators, "files": self._files}
        manifest["sha256"] = _digest(manifest)
        files.write_file(
            self._folder / MANIFEST, [json.dumps(manifest, indent=1, sort_keys=True).encode(), b"\n"]
        )

    def _write(self, name: str, data: bytes) -> None:
        self._files[name] = files.write_file(self._folder / name, [data])


class Reader:
    """Reads a folder of golden data. Files are checked against the manifest when they are first used.

    Attributes:
        folder: where it lies.
        manifest: as written.
        operators: by overload.

    Args:
        folder: where it lies.
        checked: its files were checked a moment ago.

    Raises:
        GoldenError: there is no data, or it is of another format, incomplete, cut short or altered.
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
                raise GoldenError(f"{file}: format {version}, this suite reads {FORMAT}; {REMEDY}")
            if self.manifest.get("sha256", _digest(self.manifest)) != _digest(self.manifest):
                raise GoldenError(f"{file}: altered; {REMEDY}")
            self.operators = {
                name: OperatorEntry(**{**row, "tiers": tuple(row["tiers"])})
                for name, row in self.manifest["operators"].items()
            }
            self._digests: dict[str, str] = dict(self.manifest["files"])
        except FileNotFoundError:
            raise GoldenError(f"{file}: no golden data there; run `isthmus conform generate`") from None
        except OSError as error:
            raise GoldenError(f"{file}: {error.strerror}") from None
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise GoldenError(
                f"{file}: not a manifest of golden data ({type(error).__name__}: {error}); {REMEDY}"
            ) from None
        missing = [name for name in self._digests if not (folder / name).is_file()]
        if missing:
            raise GoldenError(f"{folder / missing[0]}: the file is missing; {REMEDY}")

    @property
    def families(self) -> list[str]:
        """Families that there are cases of."""
        return sorted(name.removesuffix(".json") for name in self._digests if name.endswith(".json"))

    def rows(self, family: str) -> list[dict[str, Any]]:
        """The cases of a family as they are written, in their order. Raises GoldenError."""
        for suffix in (".json", ".safetensors"):
            self._check(family + suffix)
        rows: list[dict[str, Any]] = json.loads((self.folder / f"{family}.json").read_bytes())["cases"]
        return rows

    def cases(self, family: str) -> list[Case]:
        """The cases of a family, in their order; arrays are read as they are used. Raises GoldenError."""
        rows = self.rows(family)
        store = arrays.Mapped(self.folder / f"{family}.safetensors")
        return [case_from_json(row, store) for row in rows]

    def _check(self, name: str) -> None:
        if self._trusts_all or name in self._trusted:
            return
        file = self.folder / name
        if name not in self._digests:
            raise GoldenError(f"{file}: the manifest has no such file; {REMEDY}")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != self._digests[name]:
            raise GoldenError(
                f"{file}: altered or cut short ({file.stat().st_size} bytes, SHA-256 {digest[:12]}... instead of "
                f"{self._digests[name][:12]}...); {REMEDY}"
            )
        self._trusted.add(name)
