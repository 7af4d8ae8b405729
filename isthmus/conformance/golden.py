"""Golden data: what every operator must answer, as files that are read without PyTorch.

A folder holds ``manifest.json`` (format, opset, seed, SHA-256 of every file, operators) and for each family of
operators ``<family>.json`` (cases) and ``<family>.safetensors`` (arrays, in :mod:`isthmus.conformance.arrays`).
An array is stored once however many cases share it. Equal cases give equal bytes.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.conformance import arrays
from isthmus.conformance.arrays import Array
from isthmus.opset import dtypes as dt

FORMAT = 1
MANIFEST = "manifest.json"
LAYOUTS = ("contiguous", "strided", "zero-size", "0-dim", "broadcast", "large")
REMEDY = "run `isthmus conform generate` again"


class GoldenError(ValueError):
    """The data cannot be used; the message is one line: which file, what is wrong, the remedy."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor argument: a view on a storage.

    Attributes:
        storage: 1-D array of the elements, those between the strides included.
        shape: sizes.
        strides: in elements, not negative; 0 in an expanded dimension.
        offset: of the first element, in elements.
    """

    storage: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def contiguous(cls, array: Array) -> Tensor:
        """The whole of an array, in row-major order."""
        return cls(np.ascontiguousarray(array).reshape(-1), array.shape, row_major(array.shape))

    @property
    def array(self) -> Array:
        """The view as a NumPy array."""
        size = self.storage.dtype.itemsize
        strides = [stride * size for stride in self.strides]
        if 0 in self.shape:
            return np.empty(self.shape, self.storage.dtype)
        return np.lib.stride_tricks.as_strided(
            self.storage[self.offset :], self.shape, strides, writeable=False
        )

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in row-major order without gaps."""
        expected = row_major(self.shape)
        same = (s == e or n == 1 for n, s, e in zip(self.shape, self.strides, expected, strict=True))
        return 0 in self.shape or all(same)


@dataclass(frozen=True, eq=False)
class Expected:
    """What a result must be.

    Attributes:
        dtype: of the result, by PyTorch's name.
        shape: of the result.
        reference: the right values: float64 for floats, complex128 for complex, else of ``dtype``; None where
            only a law is known.
        magnitude: the operator on absolute values, float64, where rounding errors add up; None elsewhere.
        law: of a random result: ``{"name": "normal", "mean": m, "std": s}``, ``{"name": "uniform", "low": a,
            "high": b}``, ``{"name": "bernoulli", "p": p}``, ``{"name": "integers", "low": a, "high": b}``,
            ``{"name": "permutation"}``; ``{"name": "any"}`` where the operator leaves the values open.
    """

    dtype: str
    shape: tuple[int, ...]
    reference: Array | None = None
    magnitude: Array | None = None
    law: Mapping[str, Any] | None = None


class Tolerance(NamedTuple):
    """Of a float element: ``|got - ref| <= ulp * ulp_of(dtype, ref) + accumulate * eps * magnitude``.

    eps is that of the compute dtype: float32 for the halves, else the dtype's. 0 and 0 ask for the very bits.
    """

    ulp: float = 0.0
    accumulate: float = 0.0
    reason: str = ""


Value = Tensor | Sequence["Tensor | None"] | bool | int | float | str | Sequence[float] | None
Result = Expected | Sequence["Expected | None"] | None


@dataclass(frozen=True, eq=False)
class Case:
    """One call of an operator.

    Attributes:
        id: unique within the operator and dtype: "strided-3x4".
        operator: canonical overload: "aten::add.Tensor".
        dtype: of the tensors that the case is about.
        layout: one of LAYOUTS.
        arguments: in the order of ``schema.inputs``.
        outputs: in the order of ``schema.outputs``; None where an output mask leaves it out.
        written: new values of the arguments that the operator writes to.
        tolerance: of float results.
    """

    id: str
    operator: str
    dtype: str
    layout: str
    arguments: Sequence[Value]
    outputs: Sequence[Result]
    tolerance: Tolerance
    written: Mapping[str, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class OperatorEntry:
    """An operator of the manifest: schema (text), family, tiers ("core", names of models), whether it is random."""

    schema: str
    family: str
    tiers: tuple[str, ...] = ()
    random: bool = False


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor as PyTorch gives them: a size of 0 counts as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


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
        folder.mkdir(parents=True, exist_ok=True)
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
            rows.append(_case_to_json(case, store))
        self._write(f"{name}.json", (json.dumps({"cases": rows}, separators=(",", ":")) + "\n").encode())
        self._files[f"{name}.safetensors"] = store.write(self._folder / f"{name}.safetensors")
        return len(rows)

    def close(self, **notes: Any) -> None:
        """Write the manifest. notes (versions of what made the data) go into it."""
        manifest = {**self._head, **notes, "operators": self._operators, "files": self._files}
        arrays.write_file(
            self._folder / MANIFEST, [json.dumps(manifest, indent=1, sort_keys=True).encode(), b"\n"]
        )

    def _write(self, name: str, data: bytes) -> None:
        self._files[name] = arrays.write_file(self._folder / name, [data])


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
        return [_case_from_json(row, store) for row in rows]

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


_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def _number_to_json(value: float) -> Any:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and not np.isfinite(number):
        return str(number)
    return number


def _number_from_json(value: Any) -> Any:
    return _SPECIAL[value] if isinstance(value, str) else value


def _value_to_json(value: Value, store: arrays.Store) -> Any:
    if isinstance(value, Tensor):
        return {
            "tensor": store.add(value.storage),
            "dtype": dt.name_of(value.storage.dtype),
            "shape": list(value.shape),
            "strides": list(value.strides),
            "offset": value.offset,
        }
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, Tensor) for item in value) or (value and value[0] is None):
            return {"tensors": [None if item is None else _value_to_json(item, store) for item in value]}
        return {"numbers": [_number_to_json(item) for item in value]}
    return None if value is None else {"number": _number_to_json(value)}  # type: ignore[arg-type]


def _value_from_json(row: Any, store: arrays.Mapped) -> Value:
    if row is None:
        return None
    if "tensor" in row:
        return Tensor(store.get(row["tensor"]), tuple(row["shape"]), tuple(row["strides"]), row["offset"])
    if "tensors" in row:
        return [_value_from_json(item, store) for item in row["tensors"]]  # type: ignore[return-value]
    if "numbers" in row:
        return [_number_from_json(item) for item in row["numbers"]]
    return row["text"] if "text" in row else _number_from_json(row["number"])


def _result_to_json(result: Result, store: arrays.Store) -> Any:
    if result is None:
        return None
    if not isinstance(result, Expected):
        return [_result_to_json(item, store) for item in result]
    row: dict[str, Any] = {"dtype": result.dtype, "shape": list(result.shape)}
    if result.reference is not None:
        row["tensor"] = store.add(np.ascontiguousarray(result.reference).reshape(-1))
    if result.magnitude is not None:
        row["magnitude"] = store.add(np.ascontiguousarray(result.magnitude).reshape(-1))
    if result.law is not None:
        row["law"] = dict(result.law)
    return row


def _result_from_json(row: Any, store: arrays.Mapped) -> Result:
    if row is None:
        return None
    if isinstance(row, list):
        return [_result_from_json(item, store) for item in row]  # type: ignore[misc]
    shape = tuple(row["shape"])
    reference, magnitude = (
        store.get(row[key]).reshape(shape) if key in row else None for key in ("tensor", "magnitude")
    )
    return Expected(row["dtype"], shape, reference, magnitude, row.get("law"))


def _case_to_json(case: Case, store: arrays.Store) -> dict[str, Any]:
    return {
        "id": case.id,
        "operator": case.operator,
        "dtype": case.dtype,
        "layout": case.layout,
        "arguments": [_value_to_json(value, store) for value in case.arguments],
        "outputs": [_result_to_json(result, store) for result in case.outputs],
        "written": {name: _result_to_json(result, store) for name, result in case.written.items()},
        "tolerance": case.tolerance._asdict(),
    }


def _case_from_json(row: dict[str, Any], store: arrays.Mapped) -> Case:
    return Case(
        id=row["id"],
        operator=row["operator"],
        dtype=row["dtype"],
        layout=row["layout"],
        arguments=[_value_from_json(value, store) for value in row["arguments"]],
        outputs=[_result_from_json(result, store) for result in row["outputs"]],
        tolerance=Tolerance(**row["tolerance"]),
        written={name: _result_from_json(result, store) for name, result in row["written"].items()},
    )
